"""Absolute limits, for a release that has no baseline: the first one of an environment."""

import math
from collections.abc import Sequence
from typing import Final

from mlgitops.core.analysis import words
from mlgitops.core.analysis.counts import Arm, Measure, Sample, errors_of, labels_of, totals
from mlgitops.core.analysis.evidence import log_sum_exp
from mlgitops.core.configuration import Limits

ODDS_RATIOS: Final = (1.25, 1.5, 2.0, 4.0, 16.0)
"""How far above the limit the bets are, as odds ratios; each gets the same share."""


def log_evidence_above(bad: int, total: int, limit: float, *, dispersion: float = 1.0) -> float:
    """Return the log of the evidence that a rate is above `limit`.

    A mixture of likelihood ratios of higher rates against the limit itself: under every rate up to the limit its mean
    is at most 1, however often one looks (Ville 1939).

    Args:
        bad: Bad outcomes so far.
        total: All outcomes so far.
        limit: Highest rate that is tolerated, between 0 and 1.
        dispersion: Divides the log, at least 1.

    Returns:
        ln E, dimensionless; 0 with no data. "At most the limit" is rejected at level α when it reaches ln(1/α).
    """
    gains = gains_above(bad, total, limit)
    return log_sum_exp([gained / dispersion for gained in gains]) - math.log(len(gains))


def gains_above(bad: int, total: int, limit: float) -> list[float]:
    """Return the log likelihood ratio of each higher rate against the limit itself; it adds up over counts."""
    rates = [ratio * limit / (1 - limit + ratio * limit) for ratio in ODDS_RATIOS]
    return [bad * math.log(rate / limit) + (total - bad) * math.log1p((limit - rate) / (1 - limit)) for rate in rates]


def beyond_limits(samples: Sequence[Sample], limits: Limits, *, alpha: float, dispersion: float) -> str:
    """Say in words which limit a release is beyond, beyond doubt; empty when none.

    Args:
        samples: Every sample of its rollout; it is the only arm that answers, the baseline's.
        limits: Highest shares that are tolerated.
        alpha: Chance of ever mistrusting a release that keeps them, over all limits together.
        dispersion: Divides the evidence, at least 1.
    """
    asked: list[tuple[str, Measure, float]] = []
    if limits.failed is not None:
        asked.append(("requests failed", errors_of, limits.failed))
    if limits.wrong is not None:
        asked.append(("labelled requests were wrong", labels_of, limits.wrong))
    for name, measure, limit in asked:
        counts = totals(samples, measure, Arm.BASELINE)
        found = log_evidence_above(counts.bad, counts.total, limit, dispersion=dispersion)
        if found >= math.log(len(asked) / alpha):
            return (
                f"{counts.bad:,} of {counts.total:,} {name} ({words.percent(counts.bad / counts.total)}); "
                f"the plan's limit for a first release is {words.percent(limit)}"
            )
    return ""
