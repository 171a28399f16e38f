"""Intervals of metrics, and of paired differences between two models on the same examples."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from mlgitops.core.analysis.evidence import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES: Final = 2000
FEWEST_RESAMPLES: Final = 400
_DRAWS: Final = 20_000_000
"""Bound on resamples × examples: about a second. Above 10,000 examples there are fewer resamples."""
_CHUNK: Final = 4_000_000
WILSON: Final = "wilson"
NEWCOMBE: Final = "newcombe-paired"
BOOTSTRAP: Final = "bootstrap-bca"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A two-sided interval."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""
    method: str
    """How it was made: `wilson`, `newcombe-paired` or `bootstrap-bca`."""


def quantile(confidence: float) -> float:
    """Return the normal quantile of a two-sided interval: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def proportion(successes: float, total: float, confidence: float) -> Interval:
    """Return Wilson's score interval of a share of examples; 0 to 1 without any."""
    low, high = wilson(successes, total, z=quantile(confidence))
    return Interval(low=low, high=high, method=WILSON)


def paired_difference(both: int, only_first: int, only_second: int, neither: int, confidence: float) -> Interval:
    """Return the interval of a difference between two shares of the same examples, first − second.

    Args:
        both: Examples that both models get right.
        only_first: Those only the first gets right.
        only_second: Those only the second gets right.
        neither: Those both get wrong.
        confidence: Of the two-sided interval.

    Source:
        Newcombe (1998), Statistics in Medicine 17, 2635–2650, method 10: Wilson's limits, combined with the (continuity
        corrected) correlation of the two answers. Keeps its confidence for few examples and few discordant ones.
    """
    total = both + only_first + only_second + neither
    if total == 0:
        return Interval(low=-1.0, high=1.0, method=NEWCOMBE)
    first, second = (both + only_first) / total, (both + only_second) / total
    first_low, first_high = wilson(both + only_first, total, z=quantile(confidence))
    second_low, second_high = wilson(both + only_second, total, z=quantile(confidence))
    phi = _correlation(both, only_first, only_second, neither)
    down = _distance(first - first_low, second_high - second, phi)
    up = _distance(first_high - first, second - second_low, phi)
    difference = (only_first - only_second) / total
    return Interval(low=max(-1.0, difference - down), high=min(1.0, difference + up), method=NEWCOMBE)


def _correlation(both: int, only_first: int, only_second: int, neither: int) -> float:
    product = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    if product == 0:
        return 0.0
    covariance = both * neither - only_first * only_second
    if covariance > 0:
        covariance = max(0, covariance - (both + only_first + only_second + neither) / 2)  # type: ignore[assignment]
    return covariance / math.sqrt(product)


def _distance(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def resamples(examples: int) -> int:
    """Return how many bootstrap resamples are drawn for so many examples."""
    return max(FEWEST_RESAMPLES, min(RESAMPLES, _DRAWS // max(1, examples)))


def resampled_sums(columns: "NDArray[Any]", seed: int) -> "NDArray[Any]":
    """Return sums over bootstrap resamples of the examples; the same seed draws the same examples for every column.

    Args:
        columns: Shape [examples, k].
        seed: Of the generator.

    Returns:
        Shape [resamples, k].
    """
    import numpy as np

    examples, count = len(columns), resamples(len(columns))
    generator, parts, left = np.random.default_rng(seed), [], count
    while left:
        rows = min(left, max(1, _CHUNK // examples))
        drawn = generator.integers(0, examples, (rows, examples))
        flat = (drawn + np.arange(rows)[:, np.newaxis] * examples).ravel()
        times = np.bincount(flat, minlength=rows * examples).reshape(rows, examples)
        parts.append(times.astype(np.float64) @ columns)  # floats take the fast matrix product
        left -= rows
    return np.concatenate(parts)


def bias_corrected(
    values: "NDArray[Any]", estimate: float, jackknife: "NDArray[Any]", confidence: float
) -> Interval | None:
    """Return the bias-corrected and accelerated bootstrap interval.

    `scipy.stats.bootstrap` gives the same, but draws anew for each metric and calls it once per example for the
    acceleration; here both come from sums, which makes twenty metrics with slices a matter of a second.

    Args:
        values: The metric on each resample; undefined ones (NaN) are left out.
        estimate: The metric on the examples themselves.
        jackknife: The metric with each example left out in turn.
        confidence: Of the two-sided interval.

    Returns:
        None when it is undefined on the examples or on most resamples.

    Source:
        Efron (1987), J. Amer. Statist. Assoc. 82, 171–185.
    """
    import numpy as np

    defined = values[np.isfinite(values)]
    if not math.isfinite(estimate) or len(defined) < max(1, len(values) // 2):
        return None
    normal = NormalDist()
    below = float(((defined < estimate).sum() + (defined == estimate).sum() / 2) / len(defined))
    if not 0 < below < 1:
        return Interval(low=float(defined.min()), high=float(defined.max()), method=BOOTSTRAP)
    shift, acceleration = normal.inv_cdf(below), _acceleration(jackknife)
    levels = []
    for side in (-1, 1):
        z = shift + side * quantile(confidence)
        levels.append(normal.cdf(shift + z / (1 - acceleration * z)))
    low, high = np.quantile(defined, levels)
    return Interval(low=float(low), high=float(high), method=BOOTSTRAP)


def _acceleration(jackknife: "NDArray[Any]") -> float:
    import numpy as np

    defined = jackknife[np.isfinite(jackknife)]
    if not len(defined):
        return 0.0
    centred = defined.mean() - defined
    spread = float((centred**2).sum())
    # Rounding noise of a metric that no single example changes is no skewness.
    if spread <= len(defined) * (np.finfo(np.float64).eps * max(1.0, float(np.abs(defined).max()))) ** 2:
        return 0.0
    return float((centred**3).sum() / (6 * spread**1.5))
