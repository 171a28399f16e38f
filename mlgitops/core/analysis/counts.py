"""Counts of what users met: as they grew, and as intervals that a test can take in."""

import enum
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from mlgitops.core.errors import InvalidInput, Problem

LARGEST_COUNT = 2**53
"""Counts up to here are exact as floats; a larger one is refused rather than rounded."""


class Arm(enum.StrEnum):
    """The two sides of a rollout."""

    CANARY = "canary"
    BASELINE = "baseline"


@dataclass(frozen=True, kw_only=True)
class SliceCounts:
    """What a sample counts of the requests of one slice alone; each count is part of the sample's."""

    name: str
    """The slice, as plans name it."""
    total: int = 0
    failed: int = 0
    latency: tuple[tuple[float, int], ...] = ()
    labelled: int = 0
    incorrect: int = 0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Cumulative counts of one arm in one step cohort at one moment; never decreasing within (cohort, arm)."""

    at: datetime
    """When it was read; aware, UTC."""
    cohort: str
    """`<rollout number>-<step>`: the step during which the *requests* were made, however late their labels come."""
    arm: Arm
    total: int
    """Requests answered or failed."""
    failed: int
    """Of these, failed by the server (5xx, timeout, connection); a malformed request is not its fault."""
    latency: tuple[tuple[float, int], ...] = ()
    """(upper bound in seconds, requests at most that slow), cumulative, ascending, without the infinite bound."""
    labelled: int = 0
    """Requests whose true label has come."""
    incorrect: int = 0
    """Of these, predicted wrongly."""
    slices: tuple[SliceCounts, ...] = ()
    """The same of the slices that were told; a request may belong to several, or to none."""

    def of(self, name: str | None) -> "Sample":
        """Return what this sample counts of one slice, nothing where it does not tell of it; None for all requests."""
        if name is None:
            return self
        counts = next((one for one in self.slices if one.name == name), SliceCounts(name=name))
        return replace(
            self,
            total=counts.total,
            failed=counts.failed,
            latency=counts.latency,
            labelled=counts.labelled,
            incorrect=counts.incorrect,
            slices=(),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, without slices where there is none; `from_mapping` gives the same sample again."""
        slices = [{**vars(one), "latency": [list(pair) for pair in one.latency]} for one in self.slices]
        return {
            **({"slices": slices} if slices else {}),
            "at": self.at.isoformat(),
            "cohort": self.cohort,
            "arm": str(self.arm),
            "total": self.total,
            "failed": self.failed,
            "labelled": self.labelled,
            "incorrect": self.incorrect,
            "latency": [list(one) for one in self.latency],
        }

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Sample":
        """Return the sample of `to_mapping`; KeyError, TypeError or ValueError of anything else."""
        read = {"at": datetime.fromisoformat(values["at"]), "arm": Arm(values["arm"])}
        slices = [SliceCounts(**{**one, "latency": _pairs(one["latency"])}) for one in values.get("slices", ())]
        return cls(**{**values, **read, "latency": _pairs(values["latency"]), "slices": tuple(slices)})


def _pairs(values: Iterable[Sequence[Any]]) -> tuple[tuple[float, int], ...]:
    return tuple([(bound, count) for bound, count in values])


@dataclass(frozen=True, kw_only=True)
class ArmCounts:
    """Requests of one arm that can be judged, and how many of them went badly."""

    total: int = 0
    """Requests whose outcome is known."""
    bad: int = 0
    """Of these, the bad ones: failed, wrong, or slow."""

    def __add__(self, other: "ArmCounts") -> "ArmCounts":
        return ArmCounts(total=self.total + other.total, bad=self.bad + other.bad)

    def __sub__(self, other: "ArmCounts") -> "ArmCounts":
        return ArmCounts(total=self.total - other.total, bad=self.bad - other.bad)

    @property
    def rate(self) -> float | None:
        """Bad share of the total; None without any request."""
        return self.bad / self.total if self.total else None


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What came in from both arms of one cohort between two readings."""

    at: datetime
    """End of the interval: when its counts became known."""
    cohort: str
    """Step in which the requests were made; only requests of one cohort are compared with each other."""
    canary: ArmCounts
    """Increase of the canary's counts."""
    baseline: ArmCounts
    """Increase of the concurrent baseline's counts."""


Newest = Mapping[tuple[str, Arm], Sample]
"""The newest sample of each (cohort, arm)."""
Measure = Callable[[Sample], ArmCounts]
"""How a metric reads a sample: which requests count, and which of them are bad."""


def errors_of(sample: Sample) -> ArmCounts:
    """Count requests, bad where the server failed them."""
    return ArmCounts(total=sample.total, bad=sample.failed)


def labels_of(sample: Sample) -> ArmCounts:
    """Count requests whose label has come, bad where the prediction was wrong."""
    return ArmCounts(total=sample.labelled, bad=sample.incorrect)


def slower_than(bound_seconds: float) -> Measure:
    """Return the measure that counts requests, bad where not answered within `bound_seconds`, a bucket's bound.

    A sample from before the first request may have no buckets yet; with requests it must have this one.
    """

    def measure(sample: Sample) -> ArmCounts:
        if not sample.total:
            return ArmCounts()
        return ArmCounts(total=sample.total, bad=sample.total - dict(sample.latency)[bound_seconds])

    return measure


class Cut:
    """Where one cohort's last interval ended, of counts whose first is the requests.

    An interval ends when both arms have been read, and both have new requests, since the one before: a missing scrape
    and a silent arm make it longer. When it ends depends on numbers of requests only, never on their outcomes.
    """

    __slots__ = ("baseline", "canary")

    def __init__(self, canary: Sequence[int], baseline: Sequence[int]) -> None:
        """Begin at these cumulative counts; all zero for a new cohort."""
        self.canary, self.baseline = canary, baseline

    def take(self, canary: Sequence[int], baseline: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """Return what each arm gained since the last end, and end an interval here; None where it goes on."""
        if canary[0] == self.canary[0] or baseline[0] == self.baseline[0]:
            return None
        gained = list(map(operator.sub, canary, self.canary)), list(map(operator.sub, baseline, self.baseline))
        self.canary, self.baseline = canary, baseline
        return gained


def moments(samples: Iterable[Sample]) -> Iterator[tuple[datetime, list[Sample]]]:
    """Yield samples by the moment of their reading, oldest first."""
    for at, together in itertools.groupby(sorted(samples, key=_when), key=_when):
        yield at, list(together)


def of_slice(newest: Newest, name: str | None) -> Newest:
    """Return the newest samples as they count one slice; None for all requests."""
    return newest if name is None else {key: sample.of(name) for key, sample in newest.items()}


def both_arms(newest: Newest, together: Sequence[Sample]) -> list[tuple[str, Sample, Sample]]:
    """Return (cohort, canary, baseline) of the cohorts read together, as far as both arms are known, in their order."""
    cohorts = sorted({sample.cohort for sample in together})
    pairs = [(cohort, newest.get((cohort, Arm.CANARY)), newest.get((cohort, Arm.BASELINE))) for cohort in cohorts]
    return [(cohort, canary, baseline) for cohort, canary, baseline in pairs if canary and baseline]


def intervals_of(samples: Sequence[Sample], measure: Measure) -> tuple[Interval, ...]:
    """Cut cumulative samples into intervals, per cohort, in the order of their ends; see `Cut`.

    Args:
        samples: Samples of one rollout, in any order; counters of a cohort start at zero.
        measure: The metric's reading of a sample.

    Returns:
        Intervals sorted by (`at`, `cohort`), each with at least one request in each arm. What came after the last
        end waits for the next reading.
    """
    newest: dict[tuple[str, Arm], Sample] = {}
    cuts: defaultdict[str, Cut] = defaultdict(lambda: Cut((0, 0), (0, 0)))
    found = []
    for at, together in moments(samples):
        newest.update({(sample.cohort, sample.arm): sample for sample in together})
        for cohort, *both in both_arms(newest, together):
            read = [measure(sample) for sample in both]
            if gained := cuts[cohort].take(*((counts.total, counts.bad) for counts in read)):
                canary, baseline = (ArmCounts(total=total, bad=bad) for total, bad in gained)
                found.append(Interval(at=at, cohort=cohort, canary=canary, baseline=baseline))
    return tuple(found)


def latest(samples: Sequence[Sample]) -> Newest:
    """Return the newest sample of each (cohort, arm)."""
    return {(sample.cohort, sample.arm): sample for sample in sorted(samples, key=_when)}


def totals(samples: Sequence[Sample], measure: Measure, arm: Arm) -> ArmCounts:
    """Return one arm's counts over all cohorts, as of the newest samples."""
    newest = (sample for (_, of), sample in latest(samples).items() if of is arm)
    return sum((measure(sample) for sample in newest), ArmCounts())


def check_samples(samples: Sequence[Sample], settled: Newest = MappingProxyType({})) -> None:
    """Refuse samples that cannot be counts of a real system.

    Args:
        samples: In any order.
        settled: The newest samples of before, checked; what comes now is of later moments.

    Raises:
        InvalidInput: Names every sample whose counts are no whole numbers from 0 to 2⁵³, whose parts exceed the whole,
            whose time is naive, whose buckets are out of order, that counts less than an earlier one, or that is no
            younger than what was settled.
    """
    problems = [problem for sample in samples if not _is_sound(sample) for problem in _problems_of(sample)]
    if not problems:
        newest, end = dict(settled), max(map(_when, settled.values()), default=None)
        for sample in sorted(samples, key=_when):
            key = sample.cohort, sample.arm
            if end and sample.at <= end:
                message = f"the sample of {sample.at.isoformat()} came after that of {end.isoformat()} was settled"
                problems.append(Problem(message=message, pointer=_place(sample), mend="judge all samples anew"))
                continue
            before = newest.get(key)
            if before and not _has_grown(before, sample):
                problems += _problems_between(before, sample)
            if before and (before.slices or sample.slices):
                problems += _slices_between(before, sample)
            newest[key] = sample
    if problems:
        raise InvalidInput(problems)


def _when(sample: Sample) -> datetime:
    return sample.at


def _place(sample: Sample) -> str:
    return f"samples.{sample.cohort}.{sample.arm}"


def _is_sound(sample: Sample) -> bool:
    """Say quickly that a sample is surely right by itself; one that is not is looked at closely."""
    bounds, counts = zip(*sample.latency, strict=True) if sample.latency else ((), ())
    numbers = (sample.total, sample.failed, sample.labelled, sample.incorrect, *counts)
    if sample.at.tzinfo is not UTC or {*map(type, numbers)} != {int}:
        return False
    rising = (0, *counts, sample.total, LARGEST_COUNT)
    return (
        all(map(operator.le, rising, rising[1:]))
        and all(map(operator.lt, bounds, bounds[1:]))
        and 0 <= sample.failed <= sample.total
        and 0 <= sample.incorrect <= sample.labelled <= sample.total
        and not sample.slices
    )


def _has_grown(before: Sample, after: Sample) -> bool:
    """Say quickly that no counter fell between two samples; where it is not sure, they are looked at closely."""
    failed, incorrect = after.failed - before.failed, after.incorrect - before.incorrect
    total = after.total - before.total
    if not (0 <= failed <= total and 0 <= incorrect <= after.labelled - before.labelled):
        return False
    if len(before.latency) != len(after.latency):
        return False
    return all(
        low == high and 0 <= now - old <= total
        for (low, old), (high, now) in zip(before.latency, after.latency, strict=True)
    )


def _problems_of(sample: Sample) -> Iterator[Problem]:
    """Yield what is wrong with one sample by itself."""
    counts = {name: getattr(sample, name) for name in ("total", "failed", "labelled", "incorrect")}
    counts |= {f"latency[{bound}]": count for bound, count in sample.latency}
    wrong = [name for name, count in counts.items() if not _is_count(count)]
    messages = [f"{name} is {counts[name]!r}, not a whole number from 0 to 2^53" for name in wrong]
    if sample.at.utcoffset() != timedelta(0):
        messages.append(f"the time {sample.at.isoformat()} is not in UTC")
    if not wrong:
        messages += _inner_contradictions(sample)
    for message in messages:
        yield Problem(message=message, pointer=_place(sample))
    if not wrong:
        yield from _problems_of_slices(sample)


def _problems_of_slices(sample: Sample) -> Iterator[Problem]:
    """Yield what is wrong with a sample's slices: each counts a part of its requests."""
    names = [one.name for one in sample.slices]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(message=f"slice {name} is told more than once", pointer=_place(sample))
    for name in dict.fromkeys(names):
        part = sample.of(name)
        problems = list(_problems_of(part))
        yield from (_in_slice(one, name) for one in problems)
        for what in ("total", "failed", "labelled", "incorrect") if not problems else ():
            if getattr(part, what) > getattr(sample, what):
                message = f"{what} is {getattr(part, what)}, more than the {getattr(sample, what)} of all requests"
                yield Problem(message=message, pointer=f"{_place(sample)}.slices.{name}")


def _slices_between(before: Sample, after: Sample) -> Iterator[Problem]:
    """Yield in which slices two samples of the same cohort and arm contradict each other."""
    for name in sorted({one.name for one in (*before.slices, *after.slices)}):
        pair = before.of(name), after.of(name)
        if not _has_grown(*pair):
            yield from (_in_slice(one, name) for one in _problems_between(*pair))


def _in_slice(problem: Problem, name: str) -> Problem:
    return replace(problem, pointer=f"{problem.pointer}.slices.{name}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT


def _inner_contradictions(sample: Sample) -> Iterator[str]:
    pairs = (("failed", "total"), ("labelled", "total"), ("incorrect", "labelled"))
    for part, whole in pairs:
        if getattr(sample, part) > getattr(sample, whole):
            yield f"{part} is {getattr(sample, part)}, more than {whole} {getattr(sample, whole)}"
    bounds = [bound for bound, _ in sample.latency]
    counts = [count for _, count in sample.latency]
    if not all(low < high for low, high in itertools.pairwise(bounds)):
        yield "the bounds of latency do not ascend"
    if not all(low <= high for low, high in itertools.pairwise([*counts, sample.total])):
        yield "the buckets of latency are not cumulative up to total"


def _problems_between(before: Sample, after: Sample) -> Iterator[Problem]:
    """Yield what two samples of the same cohort and arm contradict each other in; counters never decrease."""
    for name, (old, new) in _counters(before, after).items():
        if new < old:
            message = f"{name} fell from {old} to {new} at {after.at.isoformat()}"
            yield Problem(message=message, pointer=_place(after), mend="correct counter resets before judging")


def _counters(before: Sample, after: Sample) -> dict[str, tuple[int, int]]:
    """Pair every counter of two samples, the counters of good outcomes included."""
    old_buckets, new_buckets = dict(before.latency), dict(after.latency)
    return {
        "total": (before.total, after.total),
        "failed": (before.failed, after.failed),
        "labelled": (before.labelled, after.labelled),
        "incorrect": (before.incorrect, after.incorrect),
        "total without failed": (before.total - before.failed, after.total - after.failed),
        "labelled without incorrect": (before.labelled - before.incorrect, after.labelled - after.incorrect),
    } | {
        f"{name}[{bound}]": pair
        for bound in sorted(old_buckets.keys() & new_buckets.keys())
        for name, pair in {
            "latency": (old_buckets[bound], new_buckets[bound]),
            "slower than": (before.total - old_buckets[bound], after.total - new_buckets[bound]),
        }.items()
    }
