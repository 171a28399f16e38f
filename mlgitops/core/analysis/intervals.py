"""Estimates for people: how much worse, how sure, and how noisy the history was. Decisions rest on evidence.py."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.analysis.counts import ArmCounts, Interval
from mlgitops.core.analysis.evidence import wilson
from mlgitops.core.errors import InvalidInput

DEFAULT_DISPERSION: Final = 2.0
"""Assumed where no A/A history says how noisy the service is.

Independent requests would give 1. Failures that come in pairs (a client that retries once, a batch of two) give 2, so
2 keeps the promised rate of false rollbacks there and costs twice the requests. Stronger bursts need a measured value.
"""

_Z95: Final = 1.959963984540054
METHOD: Final = "Newcombe's score interval, combined over steps (MOVER); fixed-sample, 95 %"
"""How `Estimate.lower` and `.upper` are made; valid at one look, so shown and never decided on."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Canary against baseline, over strata that are compared only within themselves."""

    difference: float | None
    """Rate of the canary minus rate of the baseline, Mantel–Haenszel weights; None without data in both arms."""
    lower: float | None
    """Lower 95 % limit of the difference (see `METHOD`)."""
    upper: float | None
    """Upper 95 % limit."""
    odds_ratio: float | None
    """Mantel–Haenszel odds ratio; None where the counts leave it undefined or infinite."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record."""
        return {
            "difference": self.difference,
            "lower": self.lower,
            "upper": self.upper,
            "oddsRatio": self.odds_ratio,
            "method": METHOD,
        }


def estimate(strata: Sequence[tuple[ArmCounts, ArmCounts]], *, dispersion: float = 1.0) -> Estimate:
    """Return how much worse the canary is.

    Strata keep a change of weight between steps from passing for a difference between the arms (Simpson's paradox).
    Each stratum's limits are Newcombe's (1998, method 10, from Wilson's); they are combined by the method of variance
    estimates recovery (Zou & Donner 2008).

    Args:
        strata: (canary, baseline) per step cohort.
        dispersion: Divides the numbers of requests in the limits, so that they are as wide as the noise is.
    """
    used = [(canary, baseline) for canary, baseline in strata if canary.total and baseline.total]
    if not used:
        return Estimate(difference=None, lower=None, upper=None, odds_ratio=None)
    raw = [canary.total * baseline.total / (canary.total + baseline.total) for canary, baseline in used]
    weights = [weight / math.fsum(raw) for weight in raw]
    parts = [newcombe(canary, baseline, dispersion=dispersion) for canary, baseline in used]
    difference = math.fsum(weight * middle for weight, (middle, _, _) in zip(weights, parts, strict=True))
    below = math.hypot(*(weight * (middle - low) for weight, (middle, low, _) in zip(weights, parts, strict=True)))
    above = math.hypot(*(weight * (high - middle) for weight, (middle, _, high) in zip(weights, parts, strict=True)))
    return Estimate(
        difference=difference,
        lower=max(-1.0, difference - below),
        upper=min(1.0, difference + above),
        odds_ratio=_odds_ratio(used),
    )


def newcombe(canary: ArmCounts, baseline: ArmCounts, *, dispersion: float = 1.0) -> tuple[float, float, float]:
    """Return (difference, lower, upper) of two rates, 95 %, Newcombe's method 10; both totals more than 0."""
    of_canary, of_baseline = canary.bad / canary.total, baseline.bad / baseline.total
    low_c, high_c = wilson(canary.bad / dispersion, canary.total / dispersion, z=_Z95)
    low_b, high_b = wilson(baseline.bad / dispersion, baseline.total / dispersion, z=_Z95)
    difference = of_canary - of_baseline
    lower = difference - math.hypot(of_canary - low_c, high_b - of_baseline)
    upper = difference + math.hypot(high_c - of_canary, of_baseline - low_b)
    return difference, lower, upper


def _odds_ratio(strata: Sequence[tuple[ArmCounts, ArmCounts]]) -> float | None:
    above = below = 0.0
    for canary, baseline in strata:
        total = canary.total + baseline.total
        above += canary.bad * (baseline.total - baseline.bad) / total
        below += baseline.bad * (canary.total - canary.bad) / total
    return above / below if below else None


def dispersion_from_history(minutes: Sequence[Interval], *, block_length: int = 10) -> float | None:
    """Return the long-run dispersion φ of an A/A history: how much noisier than independent requests.

    Per minute U = x₁ − k·n₁/N and V = k·n₁·n₂·(N−k)/(N²(N−1)) are deviation and variance of a fair split of the bad
    outcomes; summed over blocks, correlation from minute to minute shows. The mean of (ΣU)²/ΣV over the K blocks is
    raised to its upper 80 % limit by the χ² quantile, so a short history errs on the careful side.

    Args:
        minutes: Counts of two pod groups of the *same* version, per minute, in order; the groups are `canary` and
            `baseline` here.
        block_length: Minutes in a block; a last incomplete block is left out.

    Returns:
        φ ≥ 1; None where no block has a bad outcome, so that history says nothing.

    Raises:
        InvalidInput: The block length is not positive.
    """
    if block_length < 1:
        raise InvalidInput(f"a block of {block_length} minutes cannot be")
    ratios = []
    for start in range(0, len(minutes) - block_length + 1, block_length):
        deviations, variances = zip(*map(_split, itertools.islice(minutes, start, start + block_length)), strict=True)
        if (variance := math.fsum(variances)) > 0:
            ratios.append(math.fsum(deviations) ** 2 / variance)
    if not ratios:
        return None
    from scipy.special import gammaincinv

    blocks = len(ratios)
    quantile = 2 * float(gammaincinv(blocks / 2, 0.2))
    return max(1.0, math.fsum(ratios) / quantile)


def _split(minute: Interval) -> tuple[float, float]:
    """Return deviation and variance of the first group's bad outcomes, given all; (0, 0) where nothing can vary."""
    first, second = minute.canary, minute.baseline
    total, bad = first.total + second.total, first.bad + second.bad
    if total < 2:
        return 0.0, 0.0
    variance = bad * first.total * second.total * (total - bad) / (total * total * (total - 1))
    return first.bad - bad * first.total / total, variance
