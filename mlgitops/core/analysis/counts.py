"""Counts of what users met: as they grew, and as intervals that a test can take in."""

import enum
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from mlgitops.core.errors import InvalidInput, Problem

LARGEST_COUNT = 2**53
"""Counts up to here are exact as floats; a larger one is refused rather than rounded."""


class Arm(enum.StrEnum):
    """The two sides of a rollout."""

    CANARY = "canary"
    BASELINE = "baseline"


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


class Increase(NamedTuple):
    """What came in between two readings, as `Interval`, of several counts at once: the requests, then bad ones."""

    at: datetime
    cohort: str
    canary: tuple[int, ...]
    baseline: tuple[int, ...]


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


def common_bounds(samples: Iterable[Sample]) -> tuple[float, ...]:
    """Return the bucket bounds in seconds that every sample has, ascending; empty where one has none."""
    layouts = {tuple([bound for bound, _ in sample.latency]) for sample in samples}
    shared = set.intersection(*map(set, layouts)) if layouts else set()
    return tuple(sorted(shared))


def intervals_of(samples: Sequence[Sample], measure: Measure) -> tuple[Interval, ...]:
    """Cut cumulative samples into intervals, per cohort, in the order of their ends.

    An interval ends when both arms have been read, and both have new requests, since the one before: a missing scrape
    and a silent arm make it longer. When it ends depends on numbers of requests only, never on their outcomes.

    Args:
        samples: Samples of one rollout, in any order; counters of a cohort start at zero.
        measure: The metric's reading of a sample.

    Returns:
        Intervals sorted by (`at`, `cohort`), each with at least one request in each arm. What came after the last
        end waits for the next reading.
    """

    def counts(sample: Sample) -> tuple[int, ...]:
        read = measure(sample)
        return read.total, read.bad

    return tuple(
        Interval(at=at, cohort=cohort, canary=_arm_counts(canary), baseline=_arm_counts(baseline))
        for at, cohort, canary, baseline in _increases(samples, counts)
    )


def slow_increases(samples: Sequence[Sample], bounds: Sequence[float]) -> list[Increase]:
    """Cut samples as `intervals_of` does, once for several bounds of latency.

    Args:
        samples: As for `intervals_of`.
        bounds: Bounds in seconds that every sample with requests has; see `common_bounds`.

    Returns:
        Increases of the requests, then of the requests slower than each bound.
    """
    nothing = (0,) * (1 + len(bounds))

    def counts(sample: Sample) -> tuple[int, ...]:
        total = sample.total
        if not total:
            return nothing
        within = dict(sample.latency)
        return total, *[total - within[bound] for bound in bounds]

    return _increases(samples, counts)


def _increases(samples: Sequence[Sample], counts: Callable[[Sample], tuple[int, ...]]) -> list[Increase]:
    cohorts = _series(samples)
    found = [increase for cohort in cohorts for increase in _cut(cohort, cohorts[cohort], counts)]
    return sorted(found, key=operator.attrgetter("at", "cohort"))


def _cut(cohort: str, samples: Sequence[Sample], counts: Callable[[Sample], tuple[int, ...]]) -> Iterator[Increase]:
    """Yield the increases of one cohort; the first count decides where one ends."""
    counted: dict[Arm, tuple[int, ...]] = {}
    seen: dict[Arm, tuple[int, ...]] = {}
    for at, read in itertools.groupby(samples, key=_when):
        for sample in read:
            seen[sample.arm] = counts(sample)
        fresh = [_grown(seen.get(arm, ()), counted.get(arm)) for arm in (Arm.CANARY, Arm.BASELINE)]
        if all(one and one[0] for one in fresh):
            counted = dict(seen)
            yield Increase(at, cohort, *fresh)


def _grown(now: tuple[int, ...], before: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(map(operator.sub, now, before)) if before else now


def _arm_counts(counts: tuple[int, ...]) -> ArmCounts:
    return ArmCounts(total=counts[0], bad=counts[1])


def latest(samples: Sequence[Sample]) -> Mapping[tuple[str, Arm], Sample]:
    """Return the newest sample of each (cohort, arm)."""
    return {(sample.cohort, sample.arm): sample for sample in sorted(samples, key=_when)}


def totals(samples: Sequence[Sample], measure: Measure, arm: Arm) -> ArmCounts:
    """Return one arm's counts over all cohorts, as of the newest samples."""
    newest = (sample for (_, of), sample in latest(samples).items() if of is arm)
    return sum((measure(sample) for sample in newest), ArmCounts())


def check_samples(samples: Sequence[Sample]) -> None:
    """Refuse samples that cannot be counts of a real system.

    Raises:
        InvalidInput: Names every sample whose counts are no whole numbers from 0 to 2⁵³, whose parts exceed the whole,
            whose time is naive, whose buckets are out of order, or that counts less than an earlier one.
    """
    problems = [problem for sample in samples if not _is_sound(sample) for problem in _problems_of(sample)]
    if not problems:
        for cohort in _series(samples).values():
            for arm in Arm:
                own = [sample for sample in cohort if sample.arm is arm]
                for before, after in itertools.pairwise(own):
                    if not _has_grown(before, after):
                        problems += _problems_between(before, after)
    if problems:
        raise InvalidInput(problems)


def _when(sample: Sample) -> datetime:
    return sample.at


def _series(samples: Sequence[Sample]) -> Mapping[str, Sequence[Sample]]:
    series: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=_when):
        series[sample.cohort].append(sample)
    return series


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
