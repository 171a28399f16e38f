"""How others decide, written from their documentation and the behaviour of their source; no line of it is copied.

Each rule takes what became known in each minute, arrays (rollouts, minutes), and returns the minute in which it rolls
back; `NEVER` where it does not. What is compared is the decision alone: that Flagger also stops advancing the weight
after a failed check is left out, as all rules judge the same traffic.

Flagger: `pkg/controller/scheduler.go`, `scheduler_metrics.go`. Argo Rollouts: `analysis/analysis.go`,
`utils/evaluate/evaluate.go`. Kayenta: `NetflixACAJudge.scala`, `MannWhitneyClassifier.scala`, `MannWhitney.scala`.
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from benchmarks.canary.traffic import Array
from benchmarks.canary.twin import NEVER, first

CONFIDENCE: Final = 0.98
"""Of Kayenta's interval."""
TOLERANCE: Final = 0.25
"""Kayenta's share of the Hodges–Lehmann estimate that its interval has to exceed."""
FIRST_LOOK: Final = 10
"""Minutes before Kayenta is asked: with fewer than five points its interval's end is the least difference itself."""


def flagger(requests: Array, bad: Array, *, threshold: float, checks: int) -> Array:
    """Roll back at the `checks`-th failed check, however many passed in between; no data is a failed check.

    Args:
        requests: The canary's.
        bad: Of these.
        threshold: Share of bad outcomes above which a check fails.
        checks: Flagger's `threshold`.
    """
    failed = (requests == 0) | (bad > threshold * requests)
    return first(failed.cumsum(axis=1) >= checks)


def argo(
    requests: Array,
    bad: Array,
    *,
    success: float,
    failure: float | None = None,
    failure_limit: int = 0,
    inconclusive_limit: int = 0,
    consecutive_error_limit: int = 4,
) -> Array:
    """Abort when there are more failed measurements, or more errors in a row, than the limits.

    A measurement without data is an error. One that meets neither condition is inconclusive; too many of these pause
    the rollout for a person, who is not asked here: such a rollout is not rolled back.

    Args:
        requests: The canary's.
        bad: Of these.
        success: A measurement succeeds when at most this share is bad.
        failure: It fails when more than this share is; None for whenever it does not succeed.
        failure_limit: Failed measurements that are tolerated.
        inconclusive_limit: Inconclusive ones that are.
        consecutive_error_limit: Errors in a row that are.
    """
    error = requests == 0
    succeeded = ~error & (bad <= success * requests)
    failed = ~error & (bad > (success if failure is None else failure) * requests)
    unclear = ~error & ~succeeded & ~failed
    row, in_a_row = np.zeros(len(error)), np.zeros(error.shape)
    for minute in range(error.shape[1]):
        row = np.where(error[:, minute], row + 1, 0)
        in_a_row[:, minute] = row
    ended = first((failed.cumsum(axis=1) > failure_limit) | (in_a_row > consecutive_error_limit))
    paused = first(unclear.cumsum(axis=1) > inconclusive_limit)
    return np.where(paused < ended, NEVER, ended)


def kayenta(series: tuple[Array, Array, Array, Array], *, looks: range) -> Array:
    """Roll back when the share of bad outcomes per minute is classified as high.

    Args:
        series: Requests and bad ones of the canary, then of the baseline.
        looks: Minutes, counted from 1, after which all points so far are judged.
    """
    canary, canary_bad, baseline, baseline_bad = series
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = canary_bad / canary, baseline_bad / baseline
    found, unshifted = np.full(len(x), NEVER), _unshifted(x, y)
    for look in looks:
        maybe = np.flatnonzero((found == NEVER) & (unshifted[:, look - 1] > _QUANTILE))
        if len(maybe):
            found[maybe[is_high(x[maybe, :look], y[maybe, :look])]] = look - 1
    return found


def _unshifted(x: Array, y: Array) -> Array:
    """Return Mann-Whitney's z of `x` over `y` after each minute; infinite where every `x` is above every `y`.

    Where it is low, the canary cannot be classified as high, and nothing costlier has to be asked.
    """
    above, ties, m, n = (np.zeros(len(x)) for _ in range(4))
    found = []
    for minute in range(x.shape[1]):
        before = slice(0, minute)
        one, other = x[:, minute, None], y[:, minute, None]
        above += _above(one, y[:, before]) + _above(x[:, before], other) + _above(one, other)
        for new, more in ((one, []), (other, [x[:, minute]])):
            alike = (x[:, before] == new).sum(axis=1) + (y[:, before] == new).sum(axis=1)
            alike = alike + sum((value == new[:, 0]).astype(int) for value in more)
            ties += 3 * alike * (alike + 1)  # what a group's t³ − t grows by
        m, n = m + np.isfinite(one[:, 0]), n + np.isfinite(other[:, 0])
        found.append(np.where((above == m * n) & (above > 0), np.inf, _z(above, ties, m, n)))
    return np.stack(found, axis=1)


def _above(x: Array, y: Array) -> Array:
    return np.asarray(((x > y) + (x == y) / 2).sum(axis=1))


def is_high(x: Array, y: Array) -> Array:
    """Return where Kayenta's judge classifies the canary's values `x` as high beside the baseline's `y`.

    The lower end of the Mann-Whitney interval exceeds a quarter of the estimate exactly when the test statistic for
    "shifted by that quarter" still exceeds its quantile, so no end has to be searched for. Where even the smallest
    difference of all does not reach the quantile, the interval ends there. NaN, a minute without data, is removed.

    Args:
        x: (rollouts, minutes), of which some are known.
        y: As many.
    """
    least = _least(x) + _least(-y)
    estimate = _hodges_lehmann(x, y)
    shift = TOLERANCE * np.abs(estimate)
    ends_at_least = _statistic(x, y, least) <= _QUANTILE
    return np.asarray(np.where(ends_at_least, least > shift, (estimate > 0) & (_statistic(x, y, shift) > _QUANTILE)))


_QUANTILE: Final = -float(ndtri((1 - CONFIDENCE) / 2))


def _least(values: Array) -> Array:
    return np.asarray(np.where(np.isfinite(values), values, np.inf).min(axis=1))


def _hodges_lehmann(x: Array, y: Array) -> Array:
    """Return the median of all differences."""
    differences = (x[:, :, None] - y[:, None, :]).reshape(len(x), -1)
    differences.sort(axis=1)  # NaN comes last
    count, rows = np.isfinite(differences).sum(axis=1), np.arange(len(x))
    return np.asarray((differences[rows, (count - 1) // 2] + differences[rows, count // 2]) / 2)


def _statistic(x: Array, y: Array, shift: Array) -> Array:
    """Return Mann-Whitney's z of `x - shift` over `y`, corrected for ties and continuity, as R's `wilcox.test`."""
    moved = x - shift[:, None]
    m, n = np.isfinite(x).sum(axis=1), np.isfinite(y).sum(axis=1)
    differences = moved[:, :, None] - y[:, None, :]
    above = (differences > 0).sum(axis=(1, 2)) + (differences == 0).sum(axis=(1, 2)) / 2
    return _z(above, _ties(np.sort(np.concatenate([moved, y], axis=1), axis=1)), m, n)


def _z(above: Array, ties: Array, m: Array, n: Array) -> Array:
    """Return z of the number of pairs with x above y, corrected for continuity and ties; 0 where all are tied."""
    deviation, total = above - m * n / 2, m + n
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)))
        z = (deviation - np.sign(deviation) / 2) / np.sqrt(variance)
    return np.asarray(np.where(variance > 0, z, 0.0))


def _ties(ordered: Array) -> Array:
    """Return Σ(t³ − t) over the groups of t equal values in each row, which is ascending."""
    found, run = np.zeros(len(ordered)), np.ones(len(ordered))
    for place in range(1, ordered.shape[1]):
        run = np.where(ordered[:, place] == ordered[:, place - 1], run + 1, 1)
        found += 3 * run * (run - 1)  # what a group's t³ − t grows by with its t-th value
    return found


def z_test(series: tuple[Array, Array, Array, Array], *, looks: range, level: float = 0.01) -> Array:
    """Roll back when the one-sided test of two shares, all counts so far pooled, is significant.

    Args:
        series: See `kayenta`.
        looks: See `kayenta`.
        level: Of each look.
    """
    n_c, x_c, n_b, x_b = (one.cumsum(axis=1) for one in series)
    total = n_c + n_b
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (x_c + x_b) / total
        z = (x_c / n_c - x_b / n_b) / np.sqrt(pooled * (1 - pooled) * (1 / n_c + 1 / n_b))
    crossed = np.nan_to_num(z, nan=0.0, posinf=0.0, neginf=0.0) > -ndtri(level)
    looked_at = np.isin(np.arange(1, crossed.shape[1] + 1), list(looks))
    return first(crossed & looked_at)


def group_sequential(series: tuple[Array, Array, Array, Array], *, level: float = 0.01) -> Array:
    """Roll back when the Cochran–Mantel–Haenszel statistic over the minutes reaches Pocock's constant boundary.

    Args:
        series: See `kayenta`; the number of its minutes is the number of looks that the boundary is made for.
        level: Of the whole design, one-sided.
    """
    n_c, x_c, n_b, x_b = series
    total, bad = n_c + n_b, x_c + x_b
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.where(total > 0, x_c - bad * n_c / total, 0.0).cumsum(axis=1)
        variance = np.where(total > 1, bad * n_c * n_b * (total - bad) / (total**2 * (total - 1)), 0.0).cumsum(axis=1)
        z = np.where(variance > 0, deviation / np.sqrt(variance), 0.0)
    return first(z >= pocock(n_c.shape[1], level))


@lru_cache(maxsize=16)
def pocock(looks: int, level: float) -> float:
    """Return the boundary that a sum of independent normal steps, over its standard deviation, ever reaches so seldom.

    By recursive integration over the density of what is not yet rejected (Armitage, McPherson & Rowe 1969).
    """
    low, high = float(-ndtri(level)), float(-ndtri(level / looks))
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if _ever(middle, looks) > level else (low, middle)
    return (low + high) / 2


def _ever(boundary: float, looks: int) -> float:
    grid = np.linspace(-8 * math.sqrt(looks), boundary * math.sqrt(looks), 600)
    width = grid[1] - grid[0]
    step = np.exp(-((grid[:, None] - grid[None, :]) ** 2) / 2) / math.sqrt(2 * math.pi) * width
    density, reached = (
        np.where(grid < boundary, np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi), 0.0),
        float(ndtr(-boundary)),
    )
    for look in range(2, looks + 1):
        end = boundary * math.sqrt(look)
        reached += float((density * ndtr(grid - end)).sum() * width)
        density = np.where(grid < end, step @ density, 0.0)
    return reached


def sprt(series: tuple[Array, Array, Array, Array], *, rate: float, odds_ratio: float, level: float = 0.01) -> Array:
    """Roll back when the likelihood ratio of the two known rates over their common mean reaches 1/level: the oracle."""
    return first(log_ratio(series, rate=rate, odds_ratio=odds_ratio).cumsum(axis=1) >= -math.log(level))


def log_ratio(series: tuple[Array, Array, Array, Array], *, rate: float, odds_ratio: float) -> Array:
    """Return ln of the block e-variable whose rates are the true ones, for each minute."""
    n_c, x_c, n_b, x_b = series
    worse = odds_ratio * rate / (1 - rate + odds_ratio * rate)
    mean = (n_c * worse + n_b * rate) / np.maximum(n_c + n_b, 1)
    both = (n_c > 0) & (n_b > 0)
    mean = np.where(both, mean, rate)
    gain = x_c * np.log(worse / mean) + (n_c - x_c) * np.log((1 - worse) / (1 - mean))
    gain += x_b * np.log(rate / mean) + (n_b - x_b) * np.log((1 - rate) / (1 - mean))
    return np.where(both, gain, 0.0)
