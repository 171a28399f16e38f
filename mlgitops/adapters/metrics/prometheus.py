"""The `Counts` port on a Prometheus server, or whatever answers its HTTP API.

It asks for raw samples (`query` of a range selector), never for `rate()` or `increase()`, which estimate between
scrapes: evidence is counted, not estimated. Everything that is doubtful ends in `Unavailable` or in no new sample, so
that nothing is decided on it.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from time import monotonic
from typing import Any, Final, NamedTuple

import requests

from mlgitops.core.analysis.counts import LARGEST_COUNT
from mlgitops.core.configuration import PrometheusSource
from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Arm, Sample, SliceCounts

SERVICE: Final = "Prometheus"
LARGEST_ANSWER_BYTES: Final = 128 * 1024 * 1024
SPACING: Final = 1_000
"""Samples are at least this part of a cohort's age apart: a day gives some thousands, a minute every scrape."""
WHOLE: Final = 1e-6
"""How far from a whole number a count may be: servers that keep counts as floats."""
COHORT: Final = re.compile(r"\d{1,9}-\d{1,4}")
KINDS: Final = ("requests", "latency", "labelled")
OF_SLICES: Final = tuple(f"slice_{kind}" for kind in KINDS)

Target = frozenset[tuple[str, str]]
"""What tells one scraped process from another: the labels that are not about what is counted."""
_ABOUT: Final = frozenset({"__name__", "environment", "model", "cohort", "arm", "release", "outcome", "le", "slice"})


class Point(NamedTuple):
    """One scraped value."""

    at: float
    """Seconds since 1970, by the clock of the server."""
    value: int


class Series(NamedTuple):
    """One counter of one process."""

    kind: str
    labels: Mapping[str, str]
    points: tuple[Point, ...]
    broken: frozenset[float] = frozenset()
    """When it held NaN or infinity."""


class PrometheusMetrics:
    """Asks a Prometheus server for the counts of a rollout."""

    def __init__(self, address: str, source: PrometheusSource, token: str | None = None) -> None:
        """Ask the server at an `http` or `https` address; `token` is sent there as a bearer token."""
        self._address, self._source = address.rstrip("/"), source
        self._session = requests.Session()
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first; see the port."""
        cohorts = f"{rollout}-.*"
        series = [one for kind in KINDS for one in self._series(kind, environment, model, cohorts)]
        asked = [kind for kind in OF_SLICES if series and getattr(self._source, kind)]
        series += [one for kind in asked for one in self._series(kind, environment, model, cohorts)]
        lines = self._lines() if series else {}
        return samples_of(whole_scrapes(without_doubles(series, lines, self._source.same_process)), lines)

    def problem(self, environment: str, model: str) -> str:
        """Say which query tells nothing about the version that serves; empty when all do."""
        for kind in ("requests", "latency"):
            if not any(self._series(kind, environment, model, ".*")):
                query = self._selector(kind, environment, model, ".*")
                return f"the query for {kind} yields nothing for what serves now: {query}"
        return ""

    def _selector(self, kind: str, environment: str, model: str, cohorts: str) -> str:
        written: str = getattr(self._source, kind)
        for name, value in {"$environment": environment, "$model": model, "$cohort": cohorts}.items():
            written = written.replace(name, value)
        return written

    def _series(self, kind: str, environment: str, model: str, cohorts: str) -> Iterator[Series]:
        for found in self._ask(self._selector(kind, environment, model, cohorts)):
            labels = found["metric"]
            needed = ["le" if kind.endswith("latency") else "outcome", *(["slice"] if kind in OF_SLICES else [])]
            missing = [name for name in needed if name not in labels]
            known = COHORT.fullmatch(labels.get("cohort", "")) and labels.get("arm") in set(Arm)
            if missing or not known:
                *names, last = ["cohort", "arm", *needed]
                told = ", ".join(f"{name}={value!r:.40}" for name, value in sorted(labels.items()))
                lacks = f"a series of the query for {kind} lacks {', '.join(names)} or {last}"
                raise Unavailable(SERVICE, f"{lacks}: {told}")
            points, broken = _points(found, kind)
            yield Series(kind, labels, points, broken)

    def _lines(self) -> Mapping[tuple[Target, float], str]:
        """Return which line of counts each scrape of each process was of: a process that starts anew begins another."""
        found = self._ask(self._source.lines) if self._source.lines else []
        return {
            (_target(one["metric"], ("epoch",)), float(at)): str(one["metric"].get("epoch", ""))
            for one in found
            for at, _ in one["values"]
        }

    def _ask(self, selector: str) -> Sequence[Mapping[str, Any]]:
        """Return the series of a range query, as the server told them."""
        query = {"query": f"{selector}[{self._source.lookback_seconds}s]"}
        seconds = self._source.timeout_seconds
        try:
            with self._session.post(
                f"{self._address}/api/v1/query", data=query, timeout=seconds, stream=True, allow_redirects=False
            ) as answer:
                return _series_of(selector, answer.status_code, _whole(answer, monotonic() + seconds))
        except (requests.RequestException, OSError) as error:
            raise Unavailable(SERVICE, f"{selector}: {type(error).__name__}", retry_after_seconds=5) from error


def _whole(answer: requests.Response, deadline: float) -> bytes:
    """Read an answer that is neither too long nor too late."""
    parts, size = [], 0
    for part in answer.iter_content(65_536):
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER_BYTES or monotonic() > deadline:
            raise Unavailable(SERVICE, f"the answer came too slowly, or is longer than {LARGEST_ANSWER_BYTES} bytes")
    return b"".join(parts)


def _series_of(selector: str, status: int, body: bytes) -> Sequence[Mapping[str, Any]]:
    """Return the series of an answer; refuse an error, and an answer that says it may be incomplete."""
    try:
        told = json.loads(body)
        if told["status"] != "success":
            raise Unavailable(SERVICE, f"{selector}: {told.get('errorType')}: {told.get('error')!s:.300}")
        if told.get("warnings"):
            raise Unavailable(SERVICE, f"{selector}: the answer may be partial: {told['warnings'][0]!s:.300}")
        if told["data"]["resultType"] != "matrix":
            raise Unavailable(SERVICE, f"{selector}: it selects no series: a {told['data']['resultType']} came")
        found: Sequence[Mapping[str, Any]] = told["data"]["result"]
        return [{"metric": dict(one["metric"]), "values": list(one["values"])} for one in found]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Unavailable(SERVICE, f"{selector}: status {status}, and no answer of its HTTP API") from error


def _points(found: Mapping[str, Any], kind: str) -> tuple[tuple[Point, ...], frozenset[float]]:
    """Return whole counts in the order of time, and when there was NaN or infinity; refuse what is no count."""
    points: dict[float, int] = {}
    broken = set()
    for at, text in found["values"]:
        value = float(text)
        if not math.isfinite(value):
            broken.add(float(at))
        elif 0 <= value <= LARGEST_COUNT and abs(value - round(value)) <= WHOLE:
            points.setdefault(float(at), round(value))
        else:
            name = found["metric"].get("__name__", kind)
            raise Unavailable(SERVICE, f"{name} holds {text!s:.40}, which is no count of requests")
    return tuple(Point(at, points[at]) for at in sorted(points)), frozenset(broken)


def _target(labels: Mapping[str, str], without: Iterable[str]) -> Target:
    return frozenset((name, value) for name, value in labels.items() if name not in _ABOUT and name not in {*without})


def without_doubles(
    series: Sequence[Series], lines: Mapping[tuple[Target, float], str], same_process: Sequence[str]
) -> list[Series]:
    """Leave one series where several tell of the same counter of the same process.

    Two scrapers of one process tell the same counts twice. They are known by the process' line of counts, or by
    differing in nothing but the labels `same_process`; the one with the most points stays.
    """
    epochs: dict[Target, set[str]] = defaultdict(set)
    for (target, _), epoch in lines.items():
        epochs[target].add(epoch)
    kept: dict[tuple[object, ...], Series] = {}
    for one in sorted(series, key=lambda each: (-len(each.points), sorted(each.labels.items()))):
        target = _target(one.labels, ())
        process: object = frozenset(epochs[target]) if target in epochs else _target(one.labels, same_process)
        about = frozenset((name, value) for name, value in one.labels.items() if name in _ABOUT)
        kept.setdefault((one.kind, about, process), one)
    return list(kept.values())


def whole_scrapes(series: Sequence[Series]) -> list[Series]:
    """Leave of each process the scrapes that every kind of counter was read of.

    A scrape may have come in between two queries: requests without their latencies would all look slow. And a scrape
    in which one counter held no number tells nothing about the others.
    """
    newest: defaultdict[Target, dict[str, float]] = defaultdict(dict)
    broken: defaultdict[Target, set[float]] = defaultdict(set)
    for one in series:
        target = _target(one.labels, ())
        broken[target] |= one.broken
        if one.points:
            newest[target][one.kind] = max(one.points[-1].at, newest[target].get(one.kind, 0.0))
    found = []
    for one in series:
        target = _target(one.labels, ())
        end = min(newest[target].values(), default=0.0)
        found.append(one._replace(points=tuple(p for p in one.points if p.at <= end and p.at not in broken[target])))
    return found


def restarts(series: Sequence[Series], lines: Mapping[tuple[Target, float], str]) -> Mapping[Target, tuple[float, ...]]:
    """Return when each process began to count anew: its line changed, or any of its counters fell.

    All counters of a process begin anew together, also those that had grown beyond their old value when they were
    scraped next.
    """
    found: defaultdict[Target, set[float]] = defaultdict(set)
    for one in series:
        target = _target(one.labels, ())
        for before, after in pairwise(one.points):
            line = lines.get((target, before.at)), lines.get((target, after.at))
            if after.value < before.value or (None not in line and line[0] != line[1]):
                found[target].add(after.at)
    return {target: tuple(sorted(times)) for target, times in found.items()}


def grown(series: Series, begun: Sequence[float]) -> Iterator[Point]:
    """Yield a counter's points as they add up over restarts: what a process counted before it began anew stays."""
    base, last, waiting = 0, 0, list(reversed(begun))
    for at, value in series.points:
        while waiting and waiting[-1] <= at:
            waiting.pop()
            base, last = base + last, 0
        last = value
        yield Point(at, base + value)


def samples_of(series: Sequence[Series], lines: Mapping[tuple[Target, float], str]) -> tuple[Sample, ...]:
    """Return samples from the counters of one rollout, in the order of time.

    Both arms of a cohort are told at the same moments: those at which either was scraped. A scrape that is missing
    makes the time to the next longer and loses nothing.
    """
    begun = restarts(series, lines)
    cohorts: defaultdict[str, list[Series]] = defaultdict(list)
    for one in series:
        cohorts[one.labels["cohort"]].append(one)
    found = [sample for cohort, own in cohorts.items() for sample in _of_cohort(cohort, own, begun)]
    return tuple(sorted(found, key=lambda one: (one.at, one.cohort, one.arm)))


def _of_cohort(cohort: str, series: Sequence[Series], begun: Mapping[Target, Sequence[float]]) -> Iterator[Sample]:
    moments: defaultdict[float, list[tuple[int, int]]] = defaultdict(list)
    for number, one in enumerate(series):
        for at, value in grown(one, begun.get(_target(one.labels, ()), ())):
            moments[at].append((number, value))
    counts, told, first, last = [0] * len(series), [-1] * len(series), min(moments, default=0.0), float("-inf")
    for at in sorted(moments):
        for number, value in moments[at]:
            counts[number] = value
        if counts == told or (at - last) < (at - first) / SPACING:
            continue
        told, last = list(counts), at
        for arm in Arm:
            yield _sample(cohort, arm, at, [*zip(series, counts, strict=True)])


def _sample(cohort: str, arm: Arm, at: float, counts: Sequence[tuple[Series, int]]) -> Sample:
    names = sorted({one.labels["slice"] for one, _ in counts if one.kind in OF_SLICES})
    slices = [SliceCounts(name=name, **_counts(counts, arm, name)) for name in names]
    moment = datetime.fromtimestamp(at, UTC)
    return Sample(at=moment, cohort=cohort, arm=arm, **_counts(counts, arm, None), slices=tuple(slices))


def _counts(counts: Sequence[tuple[Series, int]], arm: Arm, of: str | None) -> dict[str, Any]:
    """Return what one arm counted of one slice, None for all requests; with the bounds that either arm has."""
    sums: defaultdict[tuple[str, str], int] = defaultdict(int)
    bounds = set()
    for series, count in counts:
        if (series.labels["slice"] if series.kind in OF_SLICES else None) != of:
            continue
        if "le" in series.labels:
            bounds.add(float(series.labels["le"]))
        if series.labels["arm"] == arm:
            what = str(float(series.labels["le"])) if "le" in series.labels else series.labels["outcome"]
            sums[series.kind.removeprefix("slice_"), what] += count
    total = {kind: sum(count for (one, _), count in sums.items() if one == kind) for kind in ("requests", "labelled")}
    return {
        "total": total["requests"],
        "failed": sums["requests", "failed"],
        "latency": tuple((bound, sums["latency", str(bound)]) for bound in sorted(bounds - {math.inf})),
        "labelled": total["labelled"],
        "incorrect": sums["labelled", "incorrect"],
    }
