"""Whether requests were split as git says: counted, not only configured.

The router draws a request's arm by its id, so of n requests in a step the canary's share is binomial. What it really
was is compared with the step's weight before the step may pass. A share that chance does not explain means that the
arms met different requests: clients that repeat one id, a router that does not follow, a count that misses one side.
Then nothing that compares the arms can be trusted, in either direction.
"""

import math
from collections.abc import Sequence
from typing import Final

from mlgitops.core.analysis.counts import Arm, Sample, latest
from mlgitops.core.analysis.words import percent

LEVEL: Final = 1e-6
"""Chance, at most, of taking a right split for a wrong one at one look."""
FEWEST: Final = 200
"""Requests below which nothing is said."""


def distorted(samples: Sequence[Sample], cohort: str, weight_percent: float) -> str:
    """Say how the canary's share in a step differs from its weight; empty where chance explains it, or too few came.

    Args:
        samples: Checked samples of one rollout, in any order.
        cohort: The step.
        weight_percent: What git says, between 0 and 100.

    Source:
        The tail is bounded by exp(−n·KL), Chernoff (1952), so that no share is called wrong that has a larger chance.
    """
    newest = latest(samples)
    canary, baseline = (newest.get((cohort, arm)) for arm in (Arm.CANARY, Arm.BASELINE))
    own, other = canary.total if canary else 0, baseline.total if baseline else 0
    total = own + other
    if total < FEWEST:
        return ""
    share, wanted = own / total, weight_percent / 100
    if total * _divergence(share, wanted) <= math.log(2 / LEVEL):
        return ""
    return (
        f"the canary answered {own:,} of {total:,} requests of step {cohort}, {percent(share)}, where git says "
        f"{weight_percent:g} %: the two sides met different requests (a client that repeats one X-Request-Id sends all "
        f"of its requests to one side)"
    )


def _divergence(share: float, wanted: float) -> float:
    """Return the Kullback–Leibler divergence of two coins, in nats."""
    parts = ((share, wanted), (1 - share, 1 - wanted))
    return sum(one * math.log(one / other) for one, other in parts if one > 0)
