"""Watching what serves against absolute limits, for as long as it serves, with one bound on all false alarms.

After promotion nothing is served beside the release that it could be compared with, and a comparison with its own past
would blame it for whatever changed in the world. So each limit is a hypothesis, "at most this share of requests goes
badly", that is tested for ever. Trouble may begin at any time, after weeks in which the share was far below the limit;
evidence that those weeks had to be paid back first would come too late. So bets are begun again and again: one at the
beginning and one in each block of `BLOCK` that follows, with shares of the stake that are 1 together. The whole is an
e-process, whatever the share did before: by Ville's inequality a release that keeps a limit ever raises its alarm with
at most the chance α, however long it serves and however often one looks.

Source:
    Ville (1939); the mixture over beginnings is that of Shin, Ramdas & Rinaldo, E-detectors (2023), with shares that
    sum to 1 instead of all being 1, so that it bounds the chance of a false alarm for ever, not the mean time to one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from mlgitops.core.analysis import words
from mlgitops.core.analysis.counts import (
    Arm,
    ArmCounts,
    Measure,
    Sample,
    check_samples,
    errors_of,
    labels_of,
    moments,
    slower_than,
)
from mlgitops.core.analysis.evidence import log_sum_exp, wilson
from mlgitops.core.analysis.limits import gains_above, log_evidence_above
from mlgitops.core.configuration import ServiceLimit
from mlgitops.core.events import stamp

BLOCK: Final = timedelta(minutes=10)
"""How often bets begin anew. Of a block's trouble at most this much time before it weighs against it."""
Z: Final = 1.96
"""Of the interval that is told for people; it decides nothing."""


@dataclass(frozen=True)
class _Start:
    """Where a bet began."""

    at: datetime
    block: int
    before: ArmCounts
    """What had been counted."""


Reading = tuple[datetime, ArmCounts]
"""When counts were read, and what they were, cumulative since the watch began."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What one limit's counts say."""

    limit: ServiceLimit
    counts: ArmCounts
    """From `since` until `until`."""
    since: datetime
    """Of an alarm, when the bet began that gained most: about when the trouble did. Else when the watch began."""
    until: datetime
    """When the evidence was highest, where it is an alarm; when something was counted last, where it is none."""
    dispersion: float
    log_evidence: float
    """ln E against "at most the limit", now; the share of bets that did not begin yet is left out."""
    highest_log_evidence: float
    """The highest it ever was, at least 0; this decides."""
    threshold: float
    """ln E at which it is an alarm."""
    bound_seconds: float | None = None
    """For latency: the bucket's bound that is counted by."""
    course: tuple[tuple[datetime, float], ...] = ()
    """(moment, ln E), for a plot."""

    @property
    def is_alarm(self) -> bool:
        """Whether the limit is passed beyond doubt."""
        return self.highest_log_evidence >= self.threshold

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's 95 % interval of the share since `since`, as wide as the noise makes it."""
        return wilson(self.counts.bad / self.dispersion, self.counts.total / self.dispersion, z=Z)

    @property
    def words(self) -> str:
        """Say it for people."""
        went = {
            "errors": "requests failed",
            "latency": f"requests took longer than {words.seconds(self.bound_seconds or 0.0)}",
            "labels": "labelled requests were answered wrongly",
        }[self.limit.kind]
        low, high = map(words.percent, self.interval)
        limit = words.percent(self.limit.share)
        times = f"From {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"
        share = f"{words.percent(self.counts.rate or 0.0)}, 95 % interval {low} to {high}"
        reached, needed = words.odds(self.highest_log_evidence), words.odds(self.threshold)
        return (
            f"{times} {self.counts.bad:,} of {self.counts.total:,} {went} ({share}); the limit is {limit}. "
            f"Evidence against “at most {limit}” reached {reached}, threshold {needed}."
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a record; no NaN, no infinity."""
        low, high = self.interval
        return {
            "limit": self.limit.to_mapping(),
            "since": stamp(self.since),
            "until": stamp(self.until),
            "counts": {"total": self.counts.total, "bad": self.counts.bad},
            "estimate": {"share": self.counts.rate, "lower": low, "upper": high},
            "dispersion": self.dispersion,
            "logEvidence": self.log_evidence,
            "highestLogEvidence": self.highest_log_evidence,
            "threshold": self.threshold,
            "boundSeconds": self.bound_seconds,
            "blockSeconds": BLOCK.total_seconds(),
        }


def measure_of(limit: ServiceLimit, samples: Sequence[Sample]) -> tuple[Measure | None, float | None]:
    """Return how a limit reads samples, and the bucket's bound for latency; no measure where no bucket will do.

    Of the bounds that every sample knows, the lowest that is not below the limit's time: what is slower than that is
    slower than the limit says, too.
    """
    if limit.kind != "latency":
        return (errors_of if limit.kind == "errors" else labels_of), None
    known = [{bound for bound, _ in sample.latency} for sample in samples if sample.total]
    common = set.intersection(*known) if known else set()
    bound = min((one for one in common if one >= (limit.seconds or 0.0)), default=None)
    return (None, None) if bound is None else (slower_than(bound), bound)


def readings(samples: Sequence[Sample], measure: Measure, begin: datetime, *, fresh: bool) -> list[Reading]:
    """Return what came in after `begin`, as it grew, over all cohorts together.

    Args:
        samples: Of what serves, its own arm alone, in any order.
        measure: The limit's reading of a sample.
        begin: When the watch began.
        fresh: Whether the release served nobody in these cohorts before: then what was counted first came after
            `begin`, also where earlier readings are no longer known.
    """
    base: dict[str, ArmCounts] = {}
    newest: dict[str, ArmCounts] = {}
    found: list[Reading] = []
    for at, together in moments(samples):
        read = {sample.cohort: measure(sample) for sample in together}
        if at <= begin:
            base.update(read)
            continue
        for cohort, counts in read.items():
            base.setdefault(cohort, ArmCounts() if fresh else counts)
            newest[cohort] = counts - base[cohort]
        found.append((at, sum(newest.values(), ArmCounts())))
    return found


def watch(
    samples: Sequence[Sample],
    limit: ServiceLimit,
    *,
    alpha: float,
    dispersion: float,
    begin: datetime,
    fresh: bool = True,
) -> Watch | None:
    """Say what one limit's counts say since a watch began.

    Args:
        samples: Of what serves; only the baseline's arm is read, which serves alone after promotion.
        limit: The limit.
        alpha: Chance of ever raising this alarm on a release that keeps the limit.
        dispersion: Divides the log of the evidence, at least 1.
        begin: When the watch began.
        fresh: See `readings`.

    Returns:
        None where nothing was counted that this limit is about.

    Raises:
        InvalidInput: Samples contradict themselves.
    """
    own = [sample for sample in samples if sample.arm is Arm.BASELINE]
    check_samples(own)
    measure, bound = measure_of(limit, own)
    read = readings(own, measure, begin, fresh=fresh) if measure is not None else []
    if not read or not read[-1][1].total:
        return None
    course, starts = _course(read, limit.share, dispersion, begin)
    highest = max(course, key=lambda one: one[1])
    until, best = read[-1][0], starts[0]
    if highest[1] >= -math.log(alpha):
        until = highest[0]
    then = next(counts for at, counts in read if at == until)
    if highest[1] >= -math.log(alpha):
        best = _best(then, [one for one in starts if one.at < until], limit.share, dispersion)
    return Watch(
        limit=limit,
        counts=then - best.before,
        since=best.at,
        until=until,
        dispersion=dispersion,
        log_evidence=course[-1][1],
        highest_log_evidence=max(0.0, highest[1]),
        threshold=-math.log(alpha),
        bound_seconds=bound,
        course=tuple(course),
    )


def _course(
    read: Sequence[Reading], share: float, dispersion: float, begin: datetime
) -> tuple[list[tuple[datetime, float]], list[_Start]]:
    """Return ln E at each reading, and where each bet began.

    A bet begins at the first reading of its block, the block's number fixing its share of the stake: those of blocks
    without a reading never begin. So what is left when older readings are no longer known is never more than the whole.
    """
    logs = [math.log(_share(0))] * len(gains_above(0, 1, share))
    block, before = (read[0][0] - begin) // BLOCK, ArmCounts()
    starts = [_Start(begin, 0, before)]
    course: list[tuple[datetime, float]] = []
    for at, counts in read:
        came = counts - before
        if came.total:
            gained = gains_above(came.bad, came.total, share)
            logs = [log + gain / dispersion for log, gain in zip(logs, gained, strict=True)]
            before = counts
        course.append((at, log_sum_exp(logs) - math.log(len(logs))))
        if (number := (at - begin) // BLOCK) > block:
            block, placed = number, math.log(_share(number))
            logs = [log_sum_exp([log, placed]) for log in logs]
            starts.append(_Start(at, number, counts))
    return course, starts


def _best(then: ArmCounts, begun: Sequence[_Start], share: float, dispersion: float) -> _Start:
    """Return the bet that had gained most when so much had been counted, its share of the stake included."""

    def gained(one: _Start) -> float:
        counts = then - one.before
        return log_evidence_above(counts.bad, counts.total, share, dispersion=dispersion) + math.log(_share(one.block))

    return max(begun, key=gained)


def _share(block: int) -> float:
    """Return the share of the stake of the bet that begins in a block, from 0; all of them together are 1."""
    return 1 / ((block + 1) * (block + 2))


def alarm_words(record: Mapping[str, Any]) -> list[str]:
    """Tell a monitoring record for a reader who knows no statistics, in paragraphs."""
    chance = words.percent(record["verdict"]["alpha"])
    return [
        str(record["verdict"]["words"]),
        f"A release that keeps its limits ever raises an alarm in at most {chance} of cases, however long it serves.",
    ]
