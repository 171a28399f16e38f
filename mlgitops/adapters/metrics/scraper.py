"""Reads the router's counters again and again, and keeps them as samples that never fall.

A counter that starts again is told by the router's epoch: while that is the same, no count ever fell, and a lower one
(the last lines of a killed router's log may be lost) is taken as the one before; when it changes, or when a series is
told no more, the new counts are added to the old ones.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.loopback import call
from mlgitops.adapters.metrics.embedded import samples_file
from mlgitops.core.errors import Unavailable
from mlgitops.ports.clock import Clock

STATE: Final = "scraper.json"
NO_ROLLOUT_BYTES: Final = 1_000_000
"""Largest file of requests outside any rollout; the older half goes when it is larger."""
SPACING: Final = 1_000
"""A rollout's samples are at least this part of its age apart: a day gives some thousands, a minute every scrape."""


FORGET_AFTER: Final = timedelta(hours=25)
"""An hour more than the router takes labels."""


class Key(NamedTuple):
    """What is sampled. An arm has one release in a cohort, except while it is replaced; its releases are added up."""

    environment: str
    model: str
    cohort: str
    arm: str

    @property
    def rollout(self) -> int:
        """The rollout's number; 0 for none."""
        return int(self.cohort.partition("-")[0])


Tagged = tuple[Key, str]
"""A key and the release that answered: what the router counts by."""
Counts = dict[str, Any]
"""`total`, `failed`, `labelled`, `incorrect`, and `latency`: cumulative counts by bound; `slices`: the same by name."""
NUMBERS: Final = ("total", "failed", "labelled", "incorrect")
OF_SLICES: Final = "mlgitops_slice_"
"""How the names of the counts of slices begin, after which they are like those of all requests."""


class Scraper:
    """Takes one sample each time it is due; part of the engine's loop."""

    def __init__(
        self, home: Path, port: Callable[[], int | None], clock: Clock, *, interval_seconds: float = 1.0
    ) -> None:
        """Continue from what an earlier engine kept in `home`.

        Args:
            home: Folder of the metrics alone.
            port: Says where the router answers; None while it does not.
            clock: Gives samples their time.
            interval_seconds: Time between two scrapes.
        """
        home.mkdir(parents=True, exist_ok=True)
        self._home, self._port, self._clock, self._interval_seconds = home, port, clock, interval_seconds
        self._due_at = 0.0
        self._epoch = ""
        self._base: dict[Key, Counts] = {}
        """What earlier epochs, and series that are told no more, counted."""
        self._last: dict[Tagged, Counts] = {}
        """What this epoch counted when last seen."""
        self._changed_at: dict[Key, datetime] = {}
        self._written: dict[Key, Counts] = {}
        self._times: dict[Path, tuple[datetime, datetime]] = {}
        """First and last sample of each file."""
        self._load()

    def tick(self) -> None:
        """Scrape when it is due; a router that cannot be asked now is asked next time."""
        port = self._port()
        if port is None or monotonic() < self._due_at:
            return
        self._due_at = monotonic() + self._interval_seconds
        with suppress(Unavailable):
            answer = call(port, "GET", "/metrics", service="router")
            if answer.status == 200:
                self.take(answer.body.decode(errors="replace"))

    def take(self, text: str) -> None:
        """Take one exposition of the router's metrics; `Unavailable` when it is none."""
        epoch, bounds, counts = parse(text)
        if not epoch:
            return
        for tagged in [one for one in self._last if epoch != self._epoch or one not in counts]:
            self._base[tagged[0]] = _added(self._base.get(tagged[0]), self._last.pop(tagged))
        self._epoch = epoch
        for tagged, now in counts.items():
            self._last[tagged] = _highest(self._last.get(tagged), now)
        self._append(bounds)

    def _append(self, bounds: list[float]) -> None:
        """Write the cohorts in which something changed, both arms at the same moment."""
        at = self._clock.now()
        totals = dict(self._base)
        for (key, _), counts in self._last.items():
            totals[key] = _added(totals.get(key), counts)
        changed = {key[:3] for key, counts in totals.items() if self._written.get(key) != counts}
        lines: defaultdict[Path, list[dict[str, Any]]] = defaultdict(list)
        for key in sorted(totals):
            file = samples_file(self._home, key.environment, key.model, key.rollout)
            if key[:3] in changed and self._is_due(file, at):
                lines[file].append({"at": at.isoformat(), "cohort": key.cohort, "arm": key.arm, **totals[key]})
                self._written[key], self._changed_at[key] = totals[key], at
        for file, entries in lines.items():
            self._write(file, at, bounds, entries)
        if lines:
            self._forget(at)
            self._save()

    def _forget(self, at: datetime) -> None:
        """Drop cohorts of old rollouts that the router tells no more: their samples are complete."""
        told = {key[:3] for key, _ in self._last}
        for key in [key for key in self._base if key.rollout and key[:3] not in told]:
            if at - self._changed_at.get(key, at) > FORGET_AFTER:
                del self._base[key]
                self._written.pop(key, None)
                self._changed_at.pop(key, None)

    def _is_due(self, file: Path, at: datetime) -> bool:
        if file not in self._times and (first := _first_time(file)) is not None:
            self._times[file] = (first, first)
        if file not in self._times:
            return True
        first, last = self._times[file]
        return at == last or (at - last) >= (at - first) / SPACING

    def _write(self, file: Path, at: datetime, bounds: list[float], entries: list[dict[str, Any]]) -> None:
        first, _ = self._times.get(file, (at, at))
        file.parent.mkdir(parents=True, exist_ok=True)
        head = [] if file in self._times else [{"bounds": bounds}]
        data = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in [*head, *entries])
        with file.open("ab") as stream:
            if stream.tell() and not _ends_whole(file):
                data = b"\n" + data
            stream.write(data)
        self._times[file] = (first, at)
        if file.stem == "0" and file.stat().st_size > NO_ROLLOUT_BYTES:
            kept = file.read_bytes().splitlines(keepends=True)
            head_line = json.dumps({"bounds": bounds}).encode() + b"\n"
            write_atomically(file, head_line + b"".join(kept[len(kept) // 2 :]))

    def _load(self) -> None:
        try:
            value = json.loads((self._home / STATE).read_bytes())
            self._epoch = value["epoch"]
            self._base = {Key(*key): counts for key, counts in value["base"]}
            self._last = {(Key(*key), release): counts for key, release, counts in value["last"]}
            self._changed_at = {Key(*key): datetime.fromisoformat(at) for key, at in value["changed_at"]}
        except (OSError, ValueError, KeyError, TypeError):
            self._epoch, self._base, self._last, self._changed_at = "", {}, {}, {}

    def _save(self) -> None:
        value = {
            "epoch": self._epoch,
            "base": list(self._base.items()),
            "last": [[*tagged, counts] for tagged, counts in self._last.items()],
            "changed_at": [[key, at.isoformat()] for key, at in self._changed_at.items()],
        }
        write_atomically(self._home / STATE, json.dumps(value, separators=(",", ":")).encode())


def parse(text: str) -> tuple[str, list[float], dict[Tagged, Counts]]:
    """Return epoch, latency bounds without the infinite one, and counts of an exposition of the router.

    Raises:
        Unavailable: It is no exposition, or holds what no router counts.
    """
    try:
        return _parsed(text)
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise Unavailable("router", f"its metrics cannot be read: {type(error).__name__}: {error!s:.200}") from error


def _parsed(text: str) -> tuple[str, list[float], dict[Tagged, Counts]]:
    epoch = ""
    scalars: defaultdict[tuple[Tagged, str], Counts] = defaultdict(lambda: dict.fromkeys(NUMBERS, 0))
    buckets: defaultdict[tuple[Tagged, str], defaultdict[float, int]] = defaultdict(lambda: defaultdict(int))
    for family in text_string_to_metric_families(text):
        for told, labels, value, *_ in family.samples:
            name = told.replace(OF_SLICES, "mlgitops_")
            of = labels["slice"] if told.startswith(OF_SLICES) else ""
            if name == "mlgitops_router_info":
                epoch = labels["epoch"]
            elif name in ("mlgitops_requests_total", "mlgitops_labelled_total"):
                _add_scalar(scalars[_key(labels), of], name, labels["outcome"], int(value))
            elif name == "mlgitops_request_seconds_bucket" and labels["le"] != "+Inf":
                buckets[_key(labels), of][float(labels["le"])] += int(value)
    bounds = sorted({bound for counts in buckets.values() for bound in counts})
    whole: dict[tuple[Tagged, str], Counts] = {
        key: {**counts, "latency": [buckets[key].get(bound, 0) for bound in bounds]} for key, counts in scalars.items()
    }
    found = {key: counts for (key, of), counts in whole.items() if not of}
    for (key, of), counts in whole.items():
        if of:
            found[key].setdefault("slices", {})[of] = counts
    return epoch, bounds, found


def _key(labels: Mapping[str, str]) -> Tagged:
    return Key(labels["environment"], labels["model"], labels["cohort"], labels["arm"]), labels["release"]


def _add_scalar(counts: Counts, name: str, outcome: str, value: int) -> None:
    if name == "mlgitops_requests_total":
        counts["total"] += value
        counts["failed"] += value if outcome == "failed" else 0
    else:
        counts["labelled"] += value
        counts["incorrect"] += value if outcome == "incorrect" else 0


def _added(one: Counts | None, other: Counts | None) -> Counts:
    return _combined(one, other, lambda first, second: first + second)


def _highest(one: Counts | None, other: Counts) -> Counts:
    return _combined(one, other, max)


def _combined(one: Counts | None, other: Counts | None, by: Callable[[int, int], int]) -> Counts:
    if one is None or other is None:
        return dict(one or other or {})
    latency = [by(first, second) for first, second in zip(one["latency"], other["latency"], strict=False)]
    ours, theirs = one.get("slices", {}), other.get("slices", {})
    slices = {name: _combined(ours.get(name), theirs.get(name), by) for name in sorted({*ours, *theirs})}
    combined = {**{name: by(one[name], other[name]) for name in NUMBERS}, "latency": latency}
    return combined | ({"slices": slices} if slices else {})


def _first_time(file: Path) -> datetime | None:
    """Return the time of a file's first sample; None when there is none."""
    try:
        with file.open("rb") as stream:
            for line in stream:
                value = json.loads(line)
                if "at" in value:
                    return datetime.fromisoformat(value["at"])
    except (OSError, ValueError):
        pass
    return None


def _ends_whole(file: Path) -> bool:
    """Say whether the last line is whole: a killed engine may have left part of one."""
    with file.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
