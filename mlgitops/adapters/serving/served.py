"""What the router served: counts by release, and the recent requests, kept in files that outlive the process.

The counts are a function of an append-only log: every segment begins with the counts so far, every request and every
label is one line after it, written at once. A router that was killed and started again reads them back, so counters
go on where they were, `trace` still works, and a label finds its request.
"""

import bisect
import contextlib
import json
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving.buckets import LABEL_DELAY_BUCKETS_SECONDS, LATENCY_BUCKETS_SECONDS
from mlgitops.adapters.serving.outcomes import Prediction, agrees

OUTCOMES: Final = ("ok", "refused", "failed")
SEGMENT_LINES: Final = 50_000
KEPT_SEGMENTS: Final = 5


class SeriesKey(NamedTuple):
    """What requests are counted by."""

    environment: str
    model: str
    cohort: str
    arm: str
    release: str
    artifact_digest: str
    slice: str = ""
    """Only requests of this slice; empty for all requests."""

    def with_slices(self, names: Sequence[str]) -> "list[SeriesKey]":
        """Return the key of all requests, and those of slices."""
        return [self, *(self._replace(slice=name) for name in names)]


@dataclass(kw_only=True)
class Series:
    """Counts of one key; they only grow."""

    outcomes: list[int] = field(default_factory=lambda: [0] * len(OUTCOMES))
    """Requests, by place in `OUTCOMES`."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_SECONDS) + 1))
    """Requests by the first bound they did not exceed; the last place is for the slower ones. Not cumulative."""
    seconds: float = 0.0
    """Sum of all times."""
    labelled: int = 0
    incorrect: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(LABEL_DELAY_BUCKETS_SECONDS) + 1))
    """Labels by the time from answer to label, as `buckets`; of all requests alone, not of slices."""
    delay_seconds: float = 0.0
    """Sum of these times."""
    touched_at: float = 0.0
    """Unix time of the last change."""


@dataclass(kw_only=True)
class Served:
    """One request that was answered, or failed."""

    key: SeriesKey
    at: float
    """Unix time of the answer."""
    outcome: str
    seconds: float
    predicted: list[Prediction] | None
    """One prediction per row; None when there is nothing a label could be compared with."""
    correct: bool | None = None
    """Whether its label agreed; None before the label came."""
    slices: Sequence[str] = ()
    """Slices that it was counted in, too."""

    @property
    def keys(self) -> list[SeriesKey]:
        """What it is counted by: all requests, and each of its slices."""
        return self.key.with_slices(self.slices)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is remembered."""

    requests: int = 200_000
    """Most requests kept in memory; older ones cannot be labelled or traced any more."""
    age_seconds: float = 86_400.0
    """Oldest request that still takes a label; counts untouched for as long are no longer told."""
    segment_lines: int = SEGMENT_LINES
    kept_segments: int = KEPT_SEGMENTS
    slices: int = 20
    """Most slices that are counted in one step of a model; whoever asks names them, and must not fill the memory."""


class ServedLog:
    """Counts, recent requests, and their log."""

    def __init__(self, folder: Path, *, limits: Limits | None = None, now: Callable[[], float] = time.time) -> None:
        """Open the log, reading back what an earlier process wrote."""
        self._folder, self._limits, self._now = folder, limits or Limits(), now
        self.epoch = uuid.uuid4().hex
        """Names the line of counts: as long as it is the same, counts never fell."""
        self.series: dict[SeriesKey, Series] = {}
        self.in_force: frozenset[tuple[str, str, str]] = frozenset()
        """Environment, model and cohort of the routes in force; their counts are never dropped."""
        self.write_errors = 0
        """Lines that could not be written; requests are served all the same."""
        self._requests: OrderedDict[tuple[str, str, str], Served] = OrderedDict()
        """By environment, model and request id: a client may use one id in several environments."""
        self._slices: dict[tuple[str, ...], set[str]] = {}
        """Slices that are counted, by environment, model and cohort."""
        self._numbers: dict[SeriesKey, int] = {}
        self._lines = 0
        self._segment = 0
        self._file = -1
        self._resumed = False
        folder.mkdir(parents=True, exist_ok=True)
        self._restore()

    def served(
        self,
        request_id: str,
        key: SeriesKey,
        outcome: str,
        seconds: float,
        predicted: list[Prediction] | None,
        *,
        slices: Sequence[str] = (),
    ) -> None:
        """Count one request and remember it. A repeated id is counted, and what its first request got stays."""
        # Rounded before it is counted, so that reading the line back counts into the same bucket.
        at, seconds, counted = round(self._now(), 3), round(seconds, 6), self._counted(key, slices)
        entry = Served(key=key, at=at, outcome=outcome, seconds=seconds, predicted=predicted, slices=counted)
        self._add(request_id, entry)
        line = ["s", at, request_id, self._number(key), outcome, seconds, predicted]
        self._write([*line, counted] if counted else line)

    def label(
        self, environment: str, model: str, request_id: str, label: Sequence[Prediction], tolerance: float | None
    ) -> str:
        """Take one label; the first wins.

        Returns:
            `accepted`, `repeated`, `late` (older than the age limit), `unknown` (never served here, or forgotten), or
            `invalid` (the request has no prediction that this label could be compared with).
        """
        entry = self._requests.get((environment, model, request_id))
        if entry is None:
            return "unknown"
        if entry.correct is not None:
            return "repeated"
        if self._now() - entry.at > self._limits.age_seconds:
            return "late"
        correct = None if entry.predicted is None else agrees(entry.predicted, label, tolerance)
        if correct is None:
            return "invalid"
        entry.correct = correct
        at = round(self._now(), 3)
        delay = round(max(0.0, at - entry.at), 3)
        self._count_label(entry.keys, at, correct=correct, delay=delay)
        self._write(["l", at, request_id, self._number(entry.key), correct, list(entry.slices), delay])
        return "accepted"

    def find(self, environment: str, model: str, request_id: str) -> Served | None:
        """Return a request that is still remembered."""
        return self._requests.get((environment, model, request_id))

    def current(self) -> Iterator[tuple[SeriesKey, Series]]:
        """Return the counts that may still change: of cohorts in force, and of those that can still get a label."""
        oldest = self._now() - self._limits.age_seconds
        for key in [key for key, series in self.series.items() if series.touched_at < oldest]:
            if key[:3] not in self.in_force:
                del self.series[key]
                self._slices.pop(key[:3], None)
        return iter(self.series.items())

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _add(self, request_id: str, entry: Served) -> None:
        for key in entry.keys:
            series = self.series.setdefault(key, Series())
            series.outcomes[OUTCOMES.index(entry.outcome)] += 1
            series.buckets[bisect.bisect_left(LATENCY_BUCKETS_SECONDS, entry.seconds)] += 1
            series.seconds += entry.seconds
            series.touched_at = entry.at
        self._remember(request_id, entry)

    def _counted(self, key: SeriesKey, slices: Sequence[str]) -> list[str]:
        """Return those of a request's slices that are counted: as many of a step as there may be, the first ones."""
        if not slices:
            return []
        if key[:3] not in self._slices:
            self._slices[key[:3]] = {one.slice for one in self.series if one[:3] == key[:3] and one.slice}
        known = self._slices[key[:3]]
        for name in slices:
            if len(known) < self._limits.slices:
                known.add(name)
        return [name for name in dict.fromkeys(slices) if name in known]

    def _remember(self, request_id: str, entry: Served) -> None:
        self._requests.setdefault((entry.key.environment, entry.key.model, request_id), entry)
        while len(self._requests) > self._limits.requests:
            self._requests.popitem(last=False)

    def _count_label(self, keys: Sequence[SeriesKey], at: float, *, correct: bool, delay: float | None) -> None:
        for key in keys:
            series = self.series.setdefault(key, Series())
            series.labelled += 1
            series.incorrect += not correct
            series.touched_at = at
            if delay is not None and not key.slice:
                series.delays[bisect.bisect_left(LABEL_DELAY_BUCKETS_SECONDS, delay)] += 1
                series.delay_seconds += delay

    def _number(self, key: SeriesKey) -> int:
        """Return the number that stands for a key in this segment, defining it on first use."""
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._write(["k", self._numbers[key], *key])
        return self._numbers[key]

    def _write(self, line: list[Any]) -> None:
        try:
            os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError:
            # A full disk must not stop the serving; the counts in memory go on, and the metric tells.
            self.write_errors += 1
        self._lines += 1
        if self._lines >= self._limits.segment_lines and line[0] != "k":
            self._rotate()

    def _path(self, segment: int) -> Path:
        return self._folder / f"served-{segment:08d}.jsonl"

    def _segments(self) -> list[int]:
        return sorted(int(path.stem.partition("-")[2]) for path in self._folder.glob("served-????????.jsonl"))

    def _rotate(self) -> None:
        """Begin a segment with the counts so far, and drop the oldest."""
        try:
            self._begin(self._segment + 1)
        except OSError:
            self.write_errors += 1
            self._lines = 0
            return
        for segment in self._segments()[: -self._limits.kept_segments]:
            with contextlib.suppress(OSError):
                self._path(segment).unlink()

    def _begin(self, segment: int) -> None:
        counts = [[*key, vars(series)] for key, series in self.current()]
        head = ["h", self.epoch, list(LATENCY_BUCKETS_SECONDS), counts]
        write_atomically(self._path(segment), json.dumps(head, separators=(",", ":")).encode() + b"\n", mode=0o600)
        self._open(segment)
        self._numbers, self._lines = {}, 0

    def _open(self, segment: int) -> None:
        opened = os.open(self._path(segment), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.close()
        self._file, self._segment = opened, segment

    def _restore(self) -> None:
        """Read the requests of all segments, and the counts of the newest."""
        kept = self._segments()[-self._limits.kept_segments :]
        for segment in kept:
            self._replay(segment)
        if kept and self._resumed:
            self._cut_torn_line(kept[-1])
            self._open(kept[-1])
        else:
            self._begin(kept[-1] + 1 if kept else 1)

    def _replay(self, segment: int) -> None:
        """Read one segment: its counts replace those before it, its lines add to them."""
        keys: dict[int, SeriesKey] = {}
        self._lines = 0
        with self._path(segment).open("rb") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
                    self._replay_line(json.loads(raw), keys)
                self._lines += 1
        self._numbers = {key: number for number, key in keys.items()}

    def _replay_line(self, line: list[Any], keys: dict[int, SeriesKey]) -> None:
        match line[0]:
            case "h":
                self._replay_head(line)
            case "k":
                keys[line[1]] = SeriesKey(*line[2:])
            case "s":
                _, at, request_id, number, outcome, seconds, predicted, *rest = line
                own, slices = keys[number], rest[0] if rest else ()
                entry = Served(key=own, at=at, outcome=outcome, seconds=seconds, predicted=predicted, slices=slices)
                self._add(request_id, entry)
            case "l":
                _, at, request_id, number, correct, *rest = line
                slices, delay = rest or ((), None)  # nothing of both in logs of before
                self._count_label(keys[number].with_slices(slices), at, correct=correct, delay=delay)
                labelled = self.find(keys[number].environment, keys[number].model, request_id)
                if labelled is not None:
                    labelled.correct = correct
            case _:
                pass

    def _replay_head(self, line: list[Any]) -> None:
        _, epoch, bounds, counts = line
        self._resumed = tuple(bounds) == LATENCY_BUCKETS_SECONDS
        self.series = {}
        if self._resumed:
            # With other bounds the counts could not go on: they would start again under a new epoch.
            self.epoch = epoch
            self.series = {SeriesKey(*one[:-1]): Series(**one[-1]) for one in counts}

    def _cut_torn_line(self, segment: int) -> None:
        """Cut a last line that a killed process wrote in part."""
        path = self._path(segment)
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
