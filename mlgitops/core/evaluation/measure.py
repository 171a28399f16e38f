"""Both models on the same examples: metrics with intervals, per slice, and the paired differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mlgitops.core.evaluation.intervals import (
    Interval,
    bias_corrected,
    paired_difference,
    proportion,
    resampled_sums,
)
from mlgitops.core.evaluation.statistics import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

Statistics = Sequence[Statistic]
SIMULTANEOUS: Final = (2, 3, 5, 10, 20, 50, 100)
"""Numbers of comparisons over slices that a report is ready for; a gate takes the next one up."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How intervals are made."""

    confidence: float = 0.95
    """Of every two-sided interval."""
    seed: int = 0
    """Of the bootstrap: the same seed gives the same report."""
    simultaneous: tuple[int, ...] = ()
    """Numbers of comparisons for which differences also get the interval that holds for all of them at once."""


def measure(
    candidate: Statistics, champion: Statistics | None, slices: Mapping[str, "NDArray[Any]"], settings: Settings
) -> dict[str, Any]:
    """Return the measured part of an evaluation report.

    Args:
        candidate: Metrics over all examples.
        champion: The same metrics of the champion, on the same examples in the same order; None without one.
        slices: By name: a boolean mask of shape [examples].
        settings: Confidence and seed.

    Returns:
        `candidate` and `champion` (None without one), each with `metrics` and `slices`; `comparison` (None without a
        champion) with the same two. A metric has `value`, `low`, `high`, `method`, `better` (and nulls where it is
        undefined); a slice has `examples` and `metrics`; a difference (candidate − champion) has `difference`, `low`,
        `high`, `method`, `better`.
    """
    whole = _part(candidate, champion, settings)
    many = replace(settings, simultaneous=SIMULTANEOUS)
    parts = {
        name: (int(mask.sum()), _part(_take(candidate, mask), _take(champion, mask) if champion else None, many))
        for name, mask in slices.items()
    }
    result: dict[str, Any] = {}
    for side in ("candidate", "champion", "comparison"):
        absent = side != "candidate" and champion is None
        result[side] = (
            None
            if absent
            else {
                "metrics": whole[side],
                "slices": {name: {"examples": count, "metrics": part[side]} for name, (count, part) in parts.items()},
            }
        )
    return result


def _take(statistics: Statistics, mask: "NDArray[Any]") -> Statistics:
    return [one.take(mask) for one in statistics]


def _part(candidate: Statistics, champion: Statistics | None, settings: Settings) -> dict[str, dict[str, Any]]:
    """Measure one set of examples: everything, or a slice."""
    first, second = list(candidate), list(champion or ())
    examples = len(first[0].columns)
    if examples == 0:
        return {"candidate": {}, "champion": {}, "comparison": {}}
    every = (*first, *second)
    drawn = _draw([one for one in every if not one.ratio], settings.seed)
    own, other = [_Drawn(one, drawn.get(id(one))) for one in first], [_Drawn(one, drawn.get(id(one))) for one in second]
    others = {one.statistic.name: one for one in other}
    pairs = [(one, others[one.statistic.name]) for one in own if one.statistic.name in others]
    return {
        "candidate": {one.statistic.name: _single(one, settings) for one in own},
        "champion": {one.statistic.name: _single(one, settings) for one in other},
        "comparison": {one.statistic.name: _difference(one, another, settings) for one, another in pairs},
    }


def _draw(statistics: Statistics, seed: int) -> dict[int, "NDArray[Any]"]:
    """Resample the examples once for all metrics of both models; sums by the metric's identity."""
    import numpy as np

    if not statistics:
        return {}
    sums = resampled_sums(np.concatenate([one.columns for one in statistics], axis=1), seed)
    ends = np.cumsum([one.columns.shape[1] for one in statistics])
    return {id(one): part for one, part in zip(statistics, np.split(sums, ends[:-1], axis=1), strict=True)}


def confidence_of(confidence: float, comparisons: int) -> float:
    """Return the confidence of each of several intervals that hold together with `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / comparisons


class _Drawn:
    """A metric with its values on the resamples, and with each example left out."""

    def __init__(self, statistic: Statistic, sums: "NDArray[Any] | None") -> None:
        self.statistic = statistic
        self._sums = sums

    def resampled(self) -> "NDArray[Any]":
        assert self._sums is not None
        return self.statistic.value(self._sums, float(len(self.statistic.columns)))

    def jackknife(self) -> "NDArray[Any]":
        columns = self.statistic.columns
        return self.statistic.value(columns.sum(axis=0) - columns, float(len(columns) - 1))


def _single(drawn: _Drawn, settings: Settings) -> dict[str, Any]:
    statistic = drawn.statistic
    value = statistic.estimate()
    interval: Interval | None = None
    if statistic.ratio:
        successes, total = statistic.columns.sum(axis=0)
        interval = proportion(float(successes), float(total), settings.confidence) if total else None
    elif len(statistic.columns) > 1:
        interval = bias_corrected(drawn.resampled(), value, drawn.jackknife(), settings.confidence)
    return {"value": _number(value), **_limits(interval), "better": statistic.better}


def _difference(candidate: _Drawn, champion: _Drawn, settings: Settings) -> dict[str, Any]:
    """Return candidate − champion; for a metric that is best at zero, the difference of its absolute values."""
    import numpy as np

    first, second = candidate.statistic, champion.statistic
    towards_zero = first.better == "zero"

    def subtract(one: Any, other: Any) -> Any:
        return np.abs(one) - np.abs(other) if towards_zero else one - other

    value = float(subtract(first.estimate(), second.estimate()))

    def interval(confidence: float) -> Interval | None:
        if first.ratio:
            return _paired(first, second, confidence)
        return bias_corrected(resampled, value, left_out, confidence) if len(first.columns) > 1 else None

    if not first.ratio and len(first.columns) > 1:
        resampled = subtract(candidate.resampled(), champion.resampled())
        left_out = subtract(candidate.jackknife(), champion.jackknife())
    found = {"difference": _number(value), **_limits(interval(settings.confidence)), "better": first.better}
    together = {many: interval(confidence_of(settings.confidence, many)) for many in settings.simultaneous}
    if any(together.values()):
        found["simultaneous"] = {
            str(many): [_number(one.low), _number(one.high)] for many, one in together.items() if one is not None
        }
    return found


def _paired(first: Statistic, second: Statistic, confidence: float) -> Interval | None:
    counted = first.columns[:, 1] > 0
    one, other = first.columns[counted, 0] > 0, second.columns[counted, 0] > 0
    if not len(one):
        return None
    both, only_first, only_second = int((one & other).sum()), int((one & ~other).sum()), int((~one & other).sum())
    return paired_difference(both, only_first, only_second, len(one) - both - only_first - only_second, confidence)


def _limits(interval: Interval | None) -> dict[str, Any]:
    if interval is None:
        return {"low": None, "high": None, "method": None}
    return {"low": _number(interval.low), "high": _number(interval.high), "method": interval.method}


def _number(value: float) -> float | None:
    return float(f"{value:.10g}") if math.isfinite(value) else None
