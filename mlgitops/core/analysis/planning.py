"""How many requests of a canary have to be seen before its silence means something."""

import math
from typing import Final

from mlgitops.core.analysis.evidence import NAMED_WEIGHT
from mlgitops.core.errors import InvalidInput, Problem

POWER: Final = 0.9
"""Chance with which the planned requests show the named effect."""
_AIM: Final = 0.93
"""Chance in the approximation below: rare counts are skewed, which simulation shows to cost it up to four points."""
SMALLEST_RATE: Final = 0.01
"""Baseline rate that planning starts from where the observed one is smaller.

An odds ratio of 3 on a service that never fails is still no failure: without a smallest rate, no number of requests
would ever be enough. With 1 %, a named effect of 3 means "a rise to 2.9 % would have been seen". Only planning uses
it; evidence against a canary counts from the first bad outcome, at whatever rate.
"""


def planned_samples(
    effect: float,
    baseline_rate: float,
    *,
    canary_share: float,
    alpha: float,
    dispersion: float = 1.0,
    margin: float = 1.0,
    bets: int = 1,
) -> int:
    """Return the canary's requests after which the named effect would have been seen with about 90 % chance.

    The log of the bet on the effect is taken as a Brownian motion with drift, whose time to a level is distributed as
    an inverse Gaussian. Approximations: a steady baseline rate that the bets know, no overshoot, and only the bet on
    the effect itself counted. The dispersion multiplies both the variance and the requests.

    Args:
        effect: Odds ratio to be seen, more than the margin.
        baseline_rate: Share of bad outcomes in the baseline, between 0 and 1 without these.
        canary_share: The canary's share of all requests, between 0 and 1 without these.
        alpha: Level of the test that has to reach ln(1/α).
        dispersion: Multiplies the requests, at least 1.
        margin: Tolerated odds ratio, at least 1.
        bets: E-processes averaged into one (three for latency), of which one is counted on.

    Raises:
        InvalidInput: Names every argument out of its range.
    """
    _check(effect, margin, {"baseline_rate": baseline_rate, "canary_share": canary_share, "alpha": alpha}, dispersion)
    gain, variance = _per_request(effect, baseline_rate, (1 - canary_share) / canary_share, margin)
    needed = math.log(bets / alpha / NAMED_WEIGHT)
    enough = needed / gain
    while _chance(enough, needed, gain, variance) < _AIM:
        enough *= 2
    too_few = enough / 4
    while enough - too_few > enough * 1e-6:
        middle = (too_few + enough) / 2
        too_few, enough = (middle, enough) if _chance(middle, needed, gain, variance) < _AIM else (too_few, middle)
    return math.ceil(dispersion * enough)


def _chance(requests: float, level: float, gain: float, variance: float) -> float:
    """Return the chance that a Brownian motion reached `level` within `requests` steps of that mean and variance."""
    spread = math.sqrt(2 * requests * variance)
    straight = math.erfc((level - requests * gain) / spread) / 2
    returned = math.erfc((level + requests * gain) / spread) / 2
    return straight + (math.exp(min(700.0, 2 * gain * level / variance)) * returned if returned else 0.0)


def _per_request(effect: float, rate: float, others: float, margin: float) -> tuple[float, float]:
    """Return mean and variance of ln E per canary request (with `others` baseline requests) under the effect."""
    worse = effect * rate / (1 - rate + effect * rate)
    if margin == 1:
        middle = (worse + others * rate) / (1 + others)
        of_canary = math.log(worse / middle), math.log((1 - worse) / (1 - middle))
        of_baseline = math.log(rate / middle), math.log((1 - rate) / (1 - middle))
    else:
        factor = math.log((margin + others) / (effect + others))
        of_canary, of_baseline = (math.log(effect / margin) + factor, 0.0), (factor, 0.0)
    mean_c, variance_c = _moments(worse, *of_canary)
    mean_b, variance_b = _moments(rate, *of_baseline)
    gain = mean_c + others * mean_b
    # The conditional bet is on a ratio of rates: at high rates the effect's ratio of rates may lie within the margin.
    return max(gain, 1e-12), variance_c + others * variance_b


def _moments(rate: float, if_bad: float, if_good: float) -> tuple[float, float]:
    return rate * if_bad + (1 - rate) * if_good, rate * (1 - rate) * (if_bad - if_good) ** 2


def _check(effect: float, margin: float, shares: dict[str, float], dispersion: float) -> None:
    messages = [f"{name} is {value}, not between 0 and 1" for name, value in shares.items() if not 0 < value < 1]
    if not 1 <= margin < effect < math.inf:
        messages.append(f"the effect {effect} is not more than the margin {margin}, or the margin is below 1")
    if not 1 <= dispersion < math.inf:
        messages.append(f"the dispersion is {dispersion}, not a finite number of at least 1")
    if messages:
        raise InvalidInput([Problem(message=message, pointer="plan") for message in messages])
