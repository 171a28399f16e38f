"""What each kind of metric makes of the counts as they come: evidence to decide on, counts to show.

The evidence of a metric is kept as a state that does not grow with the rollout: per step cohort the counts as of the
last interval and the log of what each bet has gained there; and the highest the evidence ever was. What comes next is
added to it, so that a look costs what is new, and any way of cutting the same samples into looks gives the same numbers
to the last digit.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mlgitops.core.analysis import evidence
from mlgitops.core.analysis.counts import (
    Arm,
    ArmCounts,
    Cut,
    Measure,
    Newest,
    Sample,
    errors_of,
    labels_of,
    latest,
    of_slice,
    slower_than,
)
from mlgitops.core.configuration import MetricRule

FROM_THE_START: Final = 0.9
"""Share of the bets that begin with the rollout. It costs 2 % more requests than all of them.

Half of the rest begins with the second step, a quarter with the third, and so on: by a step's number, so that no share
depends on what came.
"""
SLOW_SHARE: Final = 0.01
"""Latency is judged around the bound that this share of the baseline's requests exceeds: its p99."""
BOUNDS: Final = 3
"""Bucket bounds that latency is judged at; their e-values are averaged."""
COURSE_POINTS: Final = 240
"""Points of evidence over time that are kept, at most; when there are more, every other one but the highest goes."""
_ROUNDING: Final = 1e-9
"""More than the rounding errors of evidence, and less than anybody could care about."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One metric over a whole rollout so far."""

    strata: dict[str, tuple[ArmCounts, ArmCounts]]
    """(canary, baseline) by cohort, as of the newest samples."""
    known: ArmCounts
    """Everything known of the baseline: history and all cohorts."""
    log_evidence: float
    """ln E against "no worse than the margin", now; all cohorts."""
    highest: float
    """The highest it ever was, at least 0."""
    log_within: float
    """ln E against "worse by the named effect or more", now; all cohorts."""
    within_by_cohort: dict[str, float]
    """The same from the intervals of one cohort alone."""
    processes: int
    """E-processes that are averaged."""
    course: evidence.Path
    """The evidence against "no worse than the margin" over time, thinned; its highest and its last point are there."""
    bounds: tuple[float, ...] = ()
    """Bucket bounds in seconds that latency is judged at now; counts are shown at the middle one."""
    bound_seconds: float | None = None
    """For latency: the bound that counts are shown at."""
    missing: str = ""
    """Why the metric cannot be read at all; empty when it can."""


@dataclass(kw_only=True)
class _Stratum:
    """One metric in one step cohort."""

    step: int
    """Number of the step."""
    cut: Cut
    """Where the last interval ended."""
    worse: list[list[float]]
    """ln of what each bet against "no worse" gained, for each e-process; not yet divided by the dispersion."""
    within: list[list[float]]
    """The same of the bets against "worse by the effect"."""

    def copy(self) -> "_Stratum":
        cut = Cut(self.cut.canary, self.cut.baseline)
        return _Stratum(step=self.step, cut=cut, worse=list(self.worse), within=list(self.within))


@dataclass(kw_only=True)
class _Track:
    """How the evidence against "no worse" went."""

    now: float = 0.0
    """ln E when it was last calculated."""
    gained: float = 0.0
    """At most so much did it gain since then."""
    highest: float = 0.0
    """The highest it ever was, at least 0."""
    points: int = 0
    """Moments so far."""
    stride: int = 1
    """One of so many moments is in `kept`."""
    kept: evidence.Path
    """Some of the moments, thinned."""
    peak: datetime | None = None
    """The moment of `highest`; None while it never was above 0."""

    def mark(self, at: datetime, gained: float, log_evidence: Callable[[], float]) -> None:
        """Note a moment at which no bet gained more than `gained`.

        A sum of stakes grows by no larger a factor than the best of them, so most moments of a canary that is no worse
        cannot have reached a new height, and need no calculation.
        """
        self.gained += max(0.0, gained)
        keep = self.points % self.stride == 0
        if keep or self.now + self.gained + _ROUNDING >= self.highest:
            self.now, self.gained = log_evidence(), 0.0
            if self.now > self.highest:
                self.highest, self.peak = self.now, at
        if keep:
            self.kept.append((at, self.now))
        if len(self.kept) > COURSE_POINTS:
            self.kept, self.stride = self.kept[::2], 2 * self.stride
        self.points += 1

    def course(self) -> evidence.Path:
        """Return the moments that are kept, and the highest one, which decides."""
        if self.peak is None or (self.peak, self.highest) in self.kept:
            return self.kept
        return sorted([*self.kept, (self.peak, self.highest)])

    def copy(self) -> "_Track":
        return _Track(**{**vars(self), "kept": list(self.kept)})


class MetricEvidence:
    """The evidence of one metric of a rollout, as its samples come."""

    def __init__(self, rule: MetricRule, dispersion: float, history: Newest) -> None:
        """Begin.

        Args:
            rule: The metric, with the effect to be seen and the margin that is tolerated.
            dispersion: Divides every log of evidence, at least 1.
            history: The newest samples from before the rollout, of which the baseline arm shapes the bets.
        """
        self._dispersion, self._slice, self._history = dispersion, rule.slice, of_slice(history, rule.slice)
        self._worse = evidence.worse_bets(evidence.centred_on(rule.effect / rule.margin), margin=rule.margin)
        self._within = evidence.within_bets(rule.effect)
        self._of_labels = rule.kind == "labels"
        self._measure: Measure = labels_of if self._of_labels else errors_of
        self._processes = 1
        self._strata: dict[str, _Stratum] = {}
        known = _of_baseline(self._history, self._measure)
        self._before = [known.total, known.bad]
        self._until: datetime | None = None
        self._track = _Track(kept=[])

    def take(self, at: datetime, together: Sequence[Sample], pairs: Sequence[tuple[str, Sample, Sample]]) -> None:
        """Take what was read at one moment, later than all before.

        Args:
            at: The moment.
            together: The samples of that moment.
            pairs: (cohort, canary, baseline) of the cohorts with a new sample, as of now.
        """
        if self._slice is not None:
            together = [sample.of(self._slice) for sample in together]
            pairs = [(cohort, one.of(self._slice), other.of(self._slice)) for cohort, one, other in pairs]
        if not self._can_read(together):
            return
        grown, places, most = [], self._places(), 0.0
        for cohort, canary, baseline in pairs:
            counts = self._counts(canary), self._counts(baseline)
            stratum = self._strata.get(cohort) or self._begin(cohort, len(counts[0]))
            gained = stratum.cut.take(*counts)
            if gained:
                grown.append(gained[1])
                most += self._bet(stratum, places, *gained)  # a bet may stand on the intervals of several cohorts
        if not grown:
            return
        for one in grown:  # only now: what came at one moment does not inform itself
            self._before = list(map(operator.add, self._before, one))
        self._until = at
        self._track.mark(at, most / self._dispersion, self._log_evidence)

    def reading(self, newest: Newest) -> Reading:
        """Return what is known now.

        Args:
            newest: The newest samples of the rollout.
        """
        now, strata = self._log_evidence(), self._strata.values()
        logs = [self._log_within([one.within[process] for one in strata]) for process in self._range()]
        alone = {
            cohort: self._mean([self._log_within([sums]) for sums in stratum.within])
            for cohort, stratum in self._strata.items()
        }
        course = self._track.course()
        if self._until is not None and course[-1][0] != self._until:
            course = [*course, (self._until, now)]
        return Reading(
            **self._shown(of_slice(newest, self._slice)),
            log_evidence=now,
            highest=max(self._track.highest, now),
            log_within=self._mean(logs),
            within_by_cohort=alone,
            processes=self._processes,
            course=course,
        )

    def copy(self) -> "MetricEvidence":
        """Return the same, to go on from without changing this one."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._strata = {cohort: stratum.copy() for cohort, stratum in self._strata.items()}
        other._track = self._track.copy()
        return other

    def to_mapping(self) -> dict[str, Any]:
        """Return the state as plain values; `resume` goes on from them to the last digit."""
        track = self._track
        return {
            "before": list(self._before),
            "until": None if self._until is None else self._until.isoformat(),
            "now": track.now,
            "gained": track.gained,
            "highest": track.highest,
            "peak": None if track.peak is None else track.peak.isoformat(),
            "points": track.points,
            "stride": track.stride,
            "course": [[at.isoformat(), value] for at, value in track.kept],
            "cohorts": {
                cohort: {
                    "canary": list(stratum.cut.canary),
                    "baseline": list(stratum.cut.baseline),
                    "worse": stratum.worse,
                    "within": stratum.within,
                }
                for cohort, stratum in self._strata.items()
            },
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from `to_mapping` of the same metric, dispersion and history, in the place of a beginning."""
        self._before, until = list(state["before"]), state["until"]
        self._until = None if until is None else datetime.fromisoformat(until)
        peak = state["peak"]
        self._track = _Track(
            peak=None if peak is None else datetime.fromisoformat(peak),
            **{name: state[name] for name in ("now", "gained", "highest", "points", "stride")},
            kept=[(datetime.fromisoformat(at), value) for at, value in state["course"]],
        )
        self._strata = {
            cohort: _Stratum(
                step=_step(cohort),
                cut=Cut(tuple(one["canary"]), tuple(one["baseline"])),
                worse=[list(sums) for sums in one["worse"]],
                within=[list(sums) for sums in one["within"]],
            )
            for cohort, one in state["cohorts"].items()
        }

    def _can_read(self, together: Sequence[Sample]) -> bool:  # noqa: ARG002 - latency looks at its buckets
        return True

    def _counts(self, sample: Sample) -> Sequence[int]:
        """Return requests, then bad ones: `_measure` in plain numbers, for a whole rollout is replayed through it."""
        return (sample.labelled, sample.incorrect) if self._of_labels else (sample.total, sample.failed)

    def _places(self) -> Sequence[int]:
        """Return which of `_counts` are the bad outcomes, for each e-process."""
        return (1,)

    def _shown(self, newest: Newest) -> dict[str, Any]:
        """Return what a reading tells of counts."""
        known = _of_baseline(self._history, self._measure) + _of_baseline(newest, self._measure)
        return {"strata": _strata(newest, self._measure), "known": known}

    def _range(self) -> range:
        return range(self._processes)

    def _begin(self, cohort: str, counts: int) -> _Stratum:
        nothing = (0,) * counts
        stratum = self._strata[cohort] = _Stratum(
            step=_step(cohort),
            cut=Cut(nothing, nothing),
            worse=[[0.0] * len(self._worse.weights) for _ in self._range()],
            within=[[0.0] * len(self._within.weights) for _ in self._range()],
        )
        return stratum

    def _bet(self, stratum: _Stratum, places: Sequence[int], canary: Sequence[int], baseline: Sequence[int]) -> float:
        """Add an interval to the sums, and return the most that a bet against "no worse" gained."""
        most, n_c, n_b, known = 0.0, canary[0], baseline[0], self._before[0]
        for process, place in enumerate(places):
            counts = n_c, canary[place], n_b, baseline[place], known, self._before[place]
            gains = self._worse.gains(counts)
            stratum.worse[process] = list(map(operator.add, stratum.worse[process], gains))
            most = max(most, *gains)
            gains = self._within.gains(counts)
            stratum.within[process] = list(map(operator.add, stratum.within[process], gains))
        return most

    def _log_evidence(self) -> float:
        """Return ln E of bets of which most began with the rollout and some anew with each later step.

        A canary that fails only under more traffic would otherwise have to make up for all the evidence that its quiet
        first steps gave it. A bet that has not begun counts 1, so the weighted sum starts at 1 and is an e-process like
        each of its parts.
        """
        return self._mean([self._of_process(process) for process in self._range()])

    def _of_process(self, process: int) -> float:
        starts, dispersion = self._worse.starts, self._dispersion
        begun = [one for one in self._strata.values() if any(one.worse[process])]
        if not begun:
            return 0.0
        sums, logs, left = [0.0] * len(starts), [], 1.0
        by_step: dict[int, list[_Stratum]] = {}
        for one in begun:
            by_step.setdefault(max(1, one.step), []).append(one)
        for step in sorted(by_step.keys() | {1}, reverse=True):
            for one in by_step.get(step, ()):
                sums = list(map(operator.add, sums, one.worse[process]))
            share = FROM_THE_START if step == 1 else math.ldexp(1 - FROM_THE_START, 1 - step)
            if share:
                left -= share
                logs.append(math.log(share) + evidence.log_mixture(starts, sums, dispersion))
        return evidence.log_sum_exp([math.log(left), *logs])

    def _log_within(self, parts: Sequence[Sequence[float]]) -> float:
        sums = [math.fsum(gains) for gains in zip(*parts, strict=True)]
        return evidence.log_mixture(self._within.starts, sums, self._dispersion)

    def _mean(self, logs: Sequence[float]) -> float:
        """Return the log of the mean of e-values; an average of e-processes is one."""
        if len(logs) < 2:
            return logs[0] if logs else 0.0
        return evidence.log_sum_exp(logs) - math.log(len(logs)) if any(logs) else 0.0


class LatencyEvidence(MetricEvidence):
    """The evidence of latency: three bucket bounds around the baseline's p99, e-values averaged.

    Which bucket a bound is, is settled anew before every interval, from the baseline strictly before it, so it is part
    of the bet; an interval before which nothing is known only teaches. Bounds are judged while every sample has them.
    """

    def __init__(self, rule: MetricRule, dispersion: float, history: Newest) -> None:
        """Begin, as of `MetricEvidence`."""
        super().__init__(rule, dispersion, history)
        self._bounds: tuple[float, ...] | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return the state as plain values; `resume` goes on from them to the last digit."""
        bounds = None if self._bounds is None else list(self._bounds)
        return {**super().to_mapping(), "bounds": bounds, "processes": self._processes}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from `to_mapping` of the same metric, dispersion and history, in the place of a beginning."""
        super().resume(state)
        self._bounds = None if state["bounds"] is None else tuple(state["bounds"])
        self._processes = state["processes"]

    def _can_read(self, together: Sequence[Sample]) -> bool:
        for sample in together:
            if sample.total:
                layout = tuple([bound for bound, _ in sample.latency])
                if layout != self._bounds:
                    self._agree(layout)
        return bool(self._bounds)

    def _agree(self, layout: tuple[float, ...]) -> None:
        """Keep the bounds that this layout has, too; the first one settles how many e-processes there are."""
        if self._bounds is None:
            self._bounds, self._processes = layout, max(1, min(BOUNDS, len(layout)))
            past = [_of_baseline(self._earlier(), slower_than(bound)) for bound in layout]
            self._before = [past[0].total if past else 0, *[counts.bad for counts in past]]
            return
        kept = [place for place, bound in enumerate(self._bounds) if bound in layout]
        self._bounds = tuple([self._bounds[place] for place in kept])
        columns = [0, *[1 + place for place in kept]]
        self._before = [self._before[column] for column in columns]
        for stratum in self._strata.values():
            canary, baseline = stratum.cut.canary, stratum.cut.baseline
            stratum.cut = Cut([canary[one] for one in columns], [baseline[one] for one in columns])

    def _earlier(self) -> Newest:
        """Return what of history has every bound."""
        bounds = set(self._bounds or ())
        return {key: one for key, one in self._history.items() if bounds <= {bound for bound, _ in one.latency}}

    def _counts(self, sample: Sample) -> Sequence[int]:
        total, bounds = sample.total, self._bounds or ()
        if not total:
            return (0,) * (1 + len(bounds))
        if len(sample.latency) == len(bounds):
            return total, *[total - within for _, within in sample.latency]
        within = dict(sample.latency)
        return total, *[total - within[bound] for bound in bounds]

    def _places(self) -> Sequence[int]:
        total, *slower = self._before
        return [1 + place for place in _window(total, slower)] if total else ()

    def _shown(self, newest: Newest) -> dict[str, Any]:
        bounds = self._bounds
        if not bounds:
            missing = "the samples have no latency bucket in common" if bounds is not None else ""
            strata = _strata(newest, errors_of) if not missing else {}
            return {"strata": strata, "known": ArmCounts(), "missing": missing}
        past = self._earlier()
        known = [_of_baseline(past, slower_than(bound)) + _of_baseline(newest, slower_than(bound)) for bound in bounds]
        chosen = _window(known[0].total, [counts.bad for counts in known])
        middle = (chosen.start + chosen.stop) // 2
        return {
            "strata": _strata(newest, slower_than(bounds[middle])),
            "known": known[middle],
            "bounds": bounds[chosen.start : chosen.stop],
            "bound_seconds": bounds[middle],
        }


def begun(rule: MetricRule, dispersion: float, history: Sequence[Sample] = ()) -> MetricEvidence:
    """Return the evidence of a metric before anything came; `history` is checked, see `MetricEvidence`."""
    kind = LatencyEvidence if rule.kind == "latency" else MetricEvidence
    return kind(rule, dispersion, latest(history))


def judged_bounds(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return the bucket bounds, around the p99 of all requests, that latency is judged at; none where none is common.

    Args:
        samples: Samples with requests, of both arms.
    """
    layouts = [{bound for bound, _ in one.latency} for one in samples]
    common = sorted(set.intersection(*layouts)) if layouts else []
    if not common:
        return ()
    newest = latest(samples).values()
    slower = [sum(slower_than(bound)(one).bad for one in newest) for bound in common]
    chosen = _window(sum(one.total for one in newest), slower)
    return tuple(common[chosen.start : chosen.stop])


def _step(cohort: str) -> int:
    """Return the number of a cohort's step, `<rollout>-<step>`; 0 for a cohort that has none."""
    number = cohort.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _strata(newest: Newest, measure: Measure) -> dict[str, tuple[ArmCounts, ArmCounts]]:
    counts = {key: measure(sample) for key, sample in newest.items()}
    nothing = ArmCounts()
    return {
        cohort: (counts.get((cohort, Arm.CANARY), nothing), counts.get((cohort, Arm.BASELINE), nothing))
        for cohort in sorted({cohort for cohort, _ in counts})
    }


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
