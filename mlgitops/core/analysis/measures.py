"""What each kind of metric makes of the samples: counts to show, evidence to decide on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mlgitops.core.analysis import evidence
from mlgitops.core.analysis.counts import (
    Arm,
    ArmCounts,
    Interval,
    Measure,
    Sample,
    common_bounds,
    errors_of,
    intervals_of,
    labels_of,
    latest,
    slower_than,
    totals,
)
from mlgitops.core.configuration import MetricRule

FROM_THE_START: Final = 0.9
"""Share of the bets that begin with the rollout; the rest is halved for each later step. It costs 2 % more requests."""
SLOW_SHARE: Final = 0.01
"""Latency is judged around the bound that this share of the baseline's requests exceeds: its p99."""
BOUNDS: Final = 3
"""Bucket bounds that latency is judged at; their e-values are averaged."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One metric over a whole rollout so far."""

    strata: dict[str, tuple[ArmCounts, ArmCounts]]
    """(canary, baseline) by cohort, as of the newest samples."""
    known: ArmCounts
    """Everything known of the baseline: history and all cohorts."""
    worse: evidence.Path
    """Evidence against "no worse than the margin" over time; all cohorts."""
    within: evidence.Path
    """Evidence against "worse by the named effect or more" over time; all cohorts."""
    processes: int
    """E-processes averaged into each path."""
    bounds: tuple[float, ...] = ()
    """Bucket bounds in seconds that latency is judged at now; counts are shown at the middle one."""
    bound_seconds: float | None = None
    """For latency: the bound that counts are shown at."""
    missing: str = ""
    """Why the metric cannot be read at all; empty when it can."""


def read(samples: Sequence[Sample], rule: MetricRule, *, dispersion: float, history: Sequence[Sample] = ()) -> Reading:
    """Read one metric.

    Args:
        samples: Checked samples of one rollout, all cohorts.
        rule: The metric, with the effect to be seen and the margin that is tolerated.
        dispersion: Divides every interval's log evidence, at least 1.
        history: Checked samples from before the rollout, of which the baseline arm shapes the bets.
    """
    if rule.kind == "latency":
        return _read_latency(samples, rule, dispersion, history)
    measure = errors_of if rule.kind == "errors" else labels_of
    before = totals(history, measure, Arm.BASELINE)
    judged = evidence.with_before(intervals_of(samples, measure), before)
    worse, within = _paths(judged, rule, dispersion)
    known = before + totals(samples, measure, Arm.BASELINE)
    return Reading(strata=_strata(samples, measure), known=known, worse=worse, within=within, processes=1)


def evidence_path(
    samples: Sequence[Sample], rule: MetricRule, *, dispersion: float, history: Sequence[Sample] = ()
) -> evidence.Path:
    """Return (moment, ln E against "no worse than the margin") for a plot; ascending, empty without data."""
    return read(samples, rule, dispersion=dispersion, history=history).worse


def _paths(judged: Sequence[evidence.Judged], rule: MetricRule, dispersion: float) -> tuple[evidence.Path, ...]:
    mixture = evidence.centred_on(rule.effect / rule.margin)
    worse = _from_each_step(judged, evidence.worse_bets(mixture, margin=rule.margin), dispersion)
    return worse, evidence.path_of(judged, evidence.within_bets(rule.effect), dispersion=dispersion)


def _from_each_step(
    judged: Sequence[evidence.Judged], bets: Sequence[tuple[float, evidence.Bet]], dispersion: float
) -> evidence.Path:
    """Return the evidence of bets of which most begin with the rollout and some anew with each later step.

    A canary that fails only under more traffic would otherwise have to make up for all the evidence that its quiet
    first steps gave it. A bet that has not begun counts 1, so the weighted sum starts at 1 and is an e-process like
    each of its parts.
    """
    steps = sorted({_step(interval) for interval, _ in judged if interval.canary.total})
    paths, weights = [evidence.path_of(judged, bets, dispersion=dispersion)], [FROM_THE_START]
    left = 1 - FROM_THE_START
    for step in steps[1:]:
        later = [pair if _step(pair[0]) >= step else _silent(pair) for pair in judged]
        paths.append(evidence.path_of(later, bets, dispersion=dispersion))
        left /= 2
        weights.append(left)
    logs = [math.log(weight) for weight in weights]
    return [
        (
            points[0][0],
            evidence.log_sum_exp(
                [math.log(left), *(log + value for log, (_, value) in zip(logs, points, strict=True))]
            ),
        )
        for points in zip(*paths, strict=True)
    ]


def _step(interval: Interval) -> int:
    """Return the number of a cohort's step, `<rollout>-<step>`; 0 for a cohort that has none."""
    number = interval.cohort.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _strata(samples: Sequence[Sample], measure: Measure) -> dict[str, tuple[ArmCounts, ArmCounts]]:
    newest = {key: measure(sample) for key, sample in latest(samples).items()}
    nothing = ArmCounts()
    return {
        cohort: (newest.get((cohort, Arm.CANARY), nothing), newest.get((cohort, Arm.BASELINE), nothing))
        for cohort in sorted({cohort for cohort, _ in newest})
    }


def _read_latency(samples: Sequence[Sample], rule: MetricRule, dispersion: float, history: Sequence[Sample]) -> Reading:
    bounds = common_bounds(sample for sample in samples if sample.total)
    if not bounds:
        missing = "the samples have no latency bucket in common" if any(sample.total for sample in samples) else ""
        strata = _strata(samples, errors_of) if not missing else {}
        return Reading(strata=strata, known=ArmCounts(), worse=[], within=[], processes=BOUNDS, missing=missing)
    earlier = [sample for sample in history if set(bounds) <= {bound for bound, _ in sample.latency}]
    at_bounds = []
    for bound in bounds:
        before = totals(earlier, slower_than(bound), Arm.BASELINE)
        at_bounds.append(evidence.with_before(intervals_of(samples, slower_than(bound)), before))
    pairs = [_paths(judged, rule, dispersion) for judged in _around_p99(at_bounds)]
    known = [
        totals(earlier, slower_than(bound), Arm.BASELINE) + totals(samples, slower_than(bound), Arm.BASELINE)
        for bound in bounds
    ]
    chosen = _window(known)
    middle = (chosen.start + chosen.stop) // 2
    return Reading(
        strata=_strata(samples, slower_than(bounds[middle])),
        known=known[middle],
        worse=evidence.average([worse for worse, _ in pairs]),
        within=evidence.average([within for _, within in pairs]),
        processes=len(pairs),
        bounds=bounds[chosen.start : chosen.stop],
        bound_seconds=bounds[middle],
    )


def _around_p99(at_bounds: Sequence[Sequence[evidence.Judged]]) -> list[list[evidence.Judged]]:
    """Give each of the judged bounds its intervals; which bucket it is, is settled anew before every interval.

    The choice looks at the baseline strictly before the interval, so it is part of the bet. An interval before which
    nothing is known only teaches.
    """
    chosen: list[list[evidence.Judged]] = [[] for _ in range(min(BOUNDS, len(at_bounds)))]
    for choices in zip(*at_bounds, strict=True):
        befores = [before for _, before in choices]
        window = _window(befores) if befores[0].total else None
        for place, judged in enumerate(chosen):
            judged.append(_silent(choices[0]) if window is None else choices[window.start + place])
    return chosen


def _silent(judged: evidence.Judged) -> evidence.Judged:
    interval, before = judged
    return Interval(at=interval.at, cohort=interval.cohort, canary=ArmCounts(), baseline=ArmCounts()), before


def _window(known: Sequence[ArmCounts]) -> range:
    """Return which bounds, ascending, lie around the p99 of counts of slower requests at each of them."""
    beyond = (place for place, counts in enumerate(known) if counts.bad <= SLOW_SHARE * counts.total)
    p99 = next(beyond, len(known) - 1)
    size = min(BOUNDS, len(known))
    start = min(max(p99 - 1, 0), len(known) - size)
    return range(start, start + size)
