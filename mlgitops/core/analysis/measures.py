"""What each kind of metric makes of the samples: counts to show, evidence to decide on."""

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mlgitops.core.analysis import evidence
from mlgitops.core.analysis.counts import (
    Arm,
    ArmCounts,
    Increase,
    Interval,
    Measure,
    Sample,
    common_bounds,
    errors_of,
    intervals_of,
    labels_of,
    latest,
    slow_increases,
    slower_than,
)
from mlgitops.core.configuration import MetricRule

FROM_THE_START: Final = 0.9
"""Share of the bets that begin with the rollout; the rest is halved for each later step. It costs 2 % more requests."""
SLOW_SHARE: Final = 0.01
"""Latency is judged around the bound that this share of the baseline's requests exceeds: its p99."""
BOUNDS: Final = 3
"""Bucket bounds that latency is judged at; their e-values are averaged."""


Newest = Mapping[tuple[str, Arm], Sample]
"""The newest sample of each (cohort, arm)."""


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
    before, now = _of_baseline(latest(history), measure), latest(samples)
    judged = evidence.with_before(intervals_of(samples, measure), before)
    worse, within = _paths(judged, rule, dispersion)
    known = before + _of_baseline(now, measure)
    return Reading(strata=_strata(now, measure), known=known, worse=worse, within=within, processes=1)


def evidence_path(
    samples: Sequence[Sample], rule: MetricRule, *, dispersion: float, history: Sequence[Sample] = ()
) -> evidence.Path:
    """Return (moment, ln E against "no worse than the margin") for a plot; ascending, empty without data."""
    return read(samples, rule, dispersion=dispersion, history=history).worse


def _paths(judged: Sequence[evidence.Judged], rule: MetricRule, dispersion: float) -> tuple[evidence.Path, ...]:
    mixture = evidence.centred_on(rule.effect / rule.margin)
    worse = _from_each_step(judged, evidence.worse_bets(mixture, margin=rule.margin), dispersion)
    return worse, evidence.path_of(judged, evidence.within_bets(rule.effect), dispersion=dispersion)


def _from_each_step(judged: Sequence[evidence.Judged], bets: evidence.Bets, dispersion: float) -> evidence.Path:
    """Return the evidence of bets of which most begin with the rollout and some anew with each later step.

    A canary that fails only under more traffic would otherwise have to make up for all the evidence that its quiet
    first steps gave it. A bet that has not begun counts 1, so the weighted sum starts at 1 and is an e-process like
    each of its parts.
    """
    step_of = {cohort: _step(cohort) for cohort in {interval.cohort for interval, _ in judged}}
    steps = sorted({step_of[interval.cohort] for interval, _ in judged if interval.canary.total})
    parts: list[Callable[[Interval], bool]] = [lambda _: True]
    weights, left = [FROM_THE_START], 1 - FROM_THE_START
    for step in steps[1:]:
        cohorts = frozenset(cohort for cohort, number in step_of.items() if number >= step)
        parts.append(lambda interval, cohorts=cohorts: interval.cohort in cohorts)  # type: ignore[misc]
        left /= 2
        weights.append(left)
    logs, rest = [math.log(weight) for weight in weights], math.log(left)
    paths = evidence.paths_of(judged, bets, parts, dispersion=dispersion)
    return [
        (
            points[0][0],
            evidence.log_sum_exp([rest, *[log + value for log, (_, value) in zip(logs, points, strict=True)]]),
        )
        for points in zip(*paths, strict=True)
    ]


def _step(cohort: str) -> int:
    """Return the number of a cohort's step, `<rollout>-<step>`; 0 for a cohort that has none."""
    number = cohort.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _strata(newest: Newest, measure: Measure) -> dict[str, tuple[ArmCounts, ArmCounts]]:
    counts = {key: measure(sample) for key, sample in newest.items()}
    nothing = ArmCounts()
    return {
        cohort: (counts.get((cohort, Arm.CANARY), nothing), counts.get((cohort, Arm.BASELINE), nothing))
        for cohort in sorted({cohort for cohort, _ in counts})
    }


def _read_latency(samples: Sequence[Sample], rule: MetricRule, dispersion: float, history: Sequence[Sample]) -> Reading:
    bounds = common_bounds(sample for sample in samples if sample.total)
    if not bounds:
        missing = "the samples have no latency bucket in common" if any(sample.total for sample in samples) else ""
        strata = _strata(latest(samples), errors_of) if not missing else {}
        return Reading(strata=strata, known=ArmCounts(), worse=[], within=[], processes=BOUNDS, missing=missing)
    earlier = [sample for sample in history if set(bounds) <= {bound for bound, _ in sample.latency}]
    before, now = latest(earlier), latest(samples)
    history_at = [_of_baseline(before, slower_than(bound)) for bound in bounds]
    pairs = [_paths(judged, rule, dispersion) for judged in _around_p99(slow_increases(samples, bounds), history_at)]
    known = [past + _of_baseline(now, slower_than(bound)) for past, bound in zip(history_at, bounds, strict=True)]
    chosen = _window(known[0].total, [counts.bad for counts in known])
    middle = (chosen.start + chosen.stop) // 2
    return Reading(
        strata=_strata(now, slower_than(bounds[middle])),
        known=known[middle],
        worse=evidence.average([worse for worse, _ in pairs]),
        within=evidence.average([within for _, within in pairs]),
        processes=len(pairs),
        bounds=bounds[chosen.start : chosen.stop],
        bound_seconds=bounds[middle],
    )


def _around_p99(increases: Sequence[Increase], history: Sequence[ArmCounts]) -> list[list[evidence.Judged]]:
    """Give each of the judged bounds its intervals; which bucket it is, is settled anew before every interval.

    The choice looks at the baseline strictly before the interval, so it is part of the bet. An interval before which
    nothing is known only teaches. Only what is chosen is made into intervals: there are many buckets.
    """
    chosen: list[list[evidence.Judged]] = [[] for _ in range(min(BOUNDS, len(history)))]
    before = [history[0].total, *[counts.bad for counts in history]]
    for _, group in itertools.groupby(increases, key=operator.attrgetter("at")):
        together = list(group)
        total, slower = before[0], before[1:]
        window = _window(total, slower) if total else range(len(chosen))
        known = [ArmCounts(total=total, bad=slower[bound]) for bound in window]
        for increase in together:
            for judged, bound, past in zip(chosen, window, known, strict=True):
                interval = _at_bound(increase, bound) if total else _silent(increase)
                judged.append((interval, past))
            before = list(map(operator.add, before, increase.baseline))
    return chosen


def _at_bound(increase: Increase, bound: int) -> Interval:
    at, cohort, canary, baseline = increase
    return Interval(
        at=at,
        cohort=cohort,
        canary=ArmCounts(total=canary[0], bad=canary[1 + bound]),
        baseline=ArmCounts(total=baseline[0], bad=baseline[1 + bound]),
    )


def _silent(increase: Increase) -> Interval:
    return Interval(at=increase.at, cohort=increase.cohort, canary=ArmCounts(), baseline=ArmCounts())


def _of_baseline(newest: Newest, measure: Measure) -> ArmCounts:
    """Return the baseline's counts over all cohorts."""
    return sum((measure(sample) for (_, arm), sample in newest.items() if arm is Arm.BASELINE), ArmCounts())


def _window(total: int, slower: Sequence[int]) -> range:
    """Return which bounds, ascending, lie around the p99, given how many of `total` were slower than each."""
    beyond = (place for place, bad in enumerate(slower) if bad <= SLOW_SHARE * total)
    p99 = next(beyond, len(slower) - 1)
    size = min(BOUNDS, len(slower))
    start = min(max(p99 - 1, 0), len(slower) - size)
    return range(start, start + size)
