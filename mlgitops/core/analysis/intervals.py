"""Estimates for people: how much worse, and how sure. Decisions rest on evidence.py."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.analysis.counts import ArmCounts
from mlgitops.core.analysis.evidence import wilson

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
