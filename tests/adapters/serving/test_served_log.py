"""The log of served requests: counts that survive, requests that are bounded."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.serving.exposition import ServedCollector
from mlgitops.adapters.serving.served import Limits, SeriesKey, ServedLog

KEY = SeriesKey("production", "digits", "4-1", "canary", "bbbbbbbbbbbb", "sha256:" + "0" * 64)
OTHER = KEY._replace(cohort="4-2")


class Time:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1_796_000_000.0

    def __call__(self) -> float:
        return self.now


def view(log: ServedLog) -> dict[SeriesKey, tuple[Any, ...]]:
    return {
        key: (
            tuple(one.outcomes),
            tuple(one.buckets),
            round(one.seconds, 6),
            one.labelled,
            one.incorrect,
            tuple(one.delays),
            round(one.delay_seconds, 3),
        )
        for key, one in log.series.items()
    }


def fill(log: ServedLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        outcome = "failed" if number % 7 == 0 else "ok"
        key = KEY if number % 2 else OTHER
        log.served(f"r{number}", key, outcome, 0.0004 * number, [number % 3] if outcome == "ok" else None)
        if number % 3 == 0:
            log.label("production", "digits", f"r{number}", [0], None)


def test_a_log_read_back_has_the_same_counts_and_requests(tmp_path: Path) -> None:
    """Closing and opening again, at any time and over several segments, changes no count."""
    limits = Limits(segment_lines=40, kept_segments=3)
    log = ServedLog(tmp_path, limits=limits)
    for start in range(0, 200, 20):
        fill(log, 20, start)
        epoch, before = log.epoch, view(log)
        log.close()
        log = ServedLog(tmp_path, limits=limits)
        assert (log.epoch, view(log)) == (epoch, before)
    assert log.find("production", "digits", "r199") is not None
    assert log.label("production", "digits", "r198", [0], None) == "repeated"
    assert len(list(tmp_path.iterdir())) <= 3


def test_a_torn_last_line_is_cut(tmp_path: Path) -> None:
    """What a killed process wrote in part is dropped, and what follows is read."""
    log = ServedLog(tmp_path)
    fill(log, 10)
    before = view(log)
    log.close()
    [file] = tmp_path.iterdir()
    with file.open("ab") as stream:
        stream.write(b'["s",179600')
    log = ServedLog(tmp_path)
    assert view(log) == before
    fill(log, 10, 10)
    after = view(log)
    log.close()
    assert view(ServedLog(tmp_path)) == after


def test_lost_files_start_a_new_epoch(tmp_path: Path) -> None:
    """Counts that start again from nothing say so by their epoch."""
    log = ServedLog(tmp_path)
    epoch = log.epoch
    log.close()
    for file in tmp_path.iterdir():
        file.unlink()
    assert ServedLog(tmp_path).epoch != epoch


def test_memory_is_bounded_and_forgotten_requests_take_no_label(tmp_path: Path) -> None:
    """At most so many requests are kept; the oldest are forgotten first."""
    log = ServedLog(tmp_path, limits=Limits(requests=10))
    fill(log, 25, 1)
    assert log.find("production", "digits", "r15") is None
    assert log.label("production", "digits", "r2", [0], None) == "unknown"
    assert log.find("production", "digits", "r16") is not None


def test_a_label_that_is_too_late_is_told(tmp_path: Path) -> None:
    """A label after the age limit counts nothing."""
    time = Time()
    log = ServedLog(tmp_path, limits=Limits(age_seconds=60), now=time)
    log.served("one", KEY, "ok", 0.01, [1])
    time.now += 61
    assert log.label("production", "digits", "one", [1], None) == "late"
    assert log.series[KEY].labelled == 0


def test_old_counts_are_dropped_only_when_their_step_is_over(tmp_path: Path) -> None:
    """Counts of a cohort in force stay however long nothing happens; others go when no label can come any more."""
    time = Time()
    log = ServedLog(tmp_path, limits=Limits(age_seconds=60), now=time)
    log.served("one", KEY, "ok", 0.01, [1])
    log.served("two", OTHER, "ok", 0.01, [1])
    log.in_force = frozenset({OTHER[:3]})
    time.now += 61
    assert [key for key, _ in log.current()] == [OTHER]


def test_a_full_disk_does_not_stop_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log cannot be written, requests are counted all the same and the errors are told."""
    log = ServedLog(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mlgitops.adapters.serving.served.os.write", full)
    log.served("one", KEY, "ok", 0.01, [1])
    assert log.series[KEY].outcomes == [1, 0, 0]
    assert log.write_errors > 0


def test_the_log_holds_no_request_bodies(tmp_path: Path) -> None:
    """Only ids, outcomes and predictions are written, one JSON line each, readable by the owner only."""
    log = ServedLog(tmp_path)
    log.served("one", KEY, "ok", 0.01, [1])
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line[0] for line in lines] == ["h", "k", "s"]


def test_the_histogram_counts_every_request_once(tmp_path: Path) -> None:
    """Buckets are cumulative and end at the number of requests of all outcomes."""
    log = ServedLog(tmp_path)
    for seconds in (0.0005, 0.001, 0.0011, 0.4, 99.0):
        log.served(str(seconds), KEY, "failed" if seconds > 10 else "ok", seconds, None)
    family = next(one for one in ServedCollector(log).collect() if one.name == "mlgitops_request_seconds")
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.0015"], buckets["0.4"], buckets["10.0"], buckets["+Inf"]) == (2, 3, 4, 4, 5)


def test_slices_outlive_the_process_and_their_requests(tmp_path: Path) -> None:
    """Counts of slices are read back as they were, and a label is counted once in each, whenever it comes."""
    limits = Limits(segment_lines=7, kept_segments=4)
    log = ServedLog(tmp_path, limits=limits)
    for number in range(40):
        slices = [("mobile", "eu"), ("mobile",), ()][number % 3]
        log.served(f"r{number}", KEY, "ok", 0.01, [1], slices=slices)
        if number >= 4:
            assert log.label("production", "digits", f"r{number - 4}", [number % 2], None) == "accepted"
        before = view(log)
        log.close()
        log = ServedLog(tmp_path, limits=limits)
        assert view(log) == before
    assert log.label("production", "digits", "r35", [1], None) == "repeated"
    every, mobile, eu = (log.series[KEY._replace(slice=name)] for name in ("", "mobile", "eu"))
    assert [sum(one.outcomes) for one in (every, mobile, eu)] == [40, 27, 14]
    assert [one.labelled for one in (every, mobile, eu)] == [36, 24, 12]


def test_slices_are_bounded(tmp_path: Path) -> None:
    """Whoever sends requests names their slices: there are so many of a step and no more, and all requests count."""
    log = ServedLog(tmp_path, limits=Limits(slices=3))
    for number in range(50):
        log.served(f"r{number}", KEY, "ok", 0.01, [1], slices=[f"s{number}", "s0"])
    log.served("other", OTHER, "ok", 0.01, [1], slices=["late"])
    log.close()
    again = ServedLog(tmp_path, limits=Limits(slices=3))
    again.served("more", KEY, "ok", 0.01, [1], slices=["s99", "s1"])
    assert {key.slice for key in again.series if key[:3] == KEY[:3]} == {"", "s0", "s1", "s2"}
    assert OTHER._replace(slice="late") in again.series
    assert sum(again.series[KEY].outcomes) == 51
    assert sum(again.series[KEY._replace(slice="s1")].outcomes) == 2


def test_how_late_labels_come_is_told(tmp_path: Path) -> None:
    """The time from answer to label is counted for each label that counts, also when the log is read back."""
    time = Time()
    log = ServedLog(tmp_path, now=time)
    for number, later in enumerate((0.5, 59.0, 7_200.0)):
        log.served(f"r{number}", KEY, "ok", 0.01, [1], slices=["eu"])
        time.now += later
        log.label("production", "digits", f"r{number}", [1], None)
        log.label("production", "digits", f"r{number}", [0], None)
    for one in (log, ServedLog(tmp_path, now=time)):
        family = next(found for found in ServedCollector(one).collect() if found.name == "mlgitops_label_delay_seconds")
        told = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
        assert (told["1.0"], told["60.0"], told["3600.0"], told["21600.0"], told["+Inf"]) == (1, 2, 2, 3, 3)
        [total] = [sample.value for sample in family.samples if sample.name.endswith("_sum")]
        assert total == pytest.approx(7_259.5)


def test_labels_of_an_older_log_are_read(tmp_path: Path) -> None:
    """A log that was written before delays and slices were kept goes on: its labels count, their delays are unknown."""
    log = ServedLog(tmp_path)
    fill(log, 20)
    expected = view(log)
    log.close()
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    old = [line[:5] if line[0] == "l" else line[:8] if line[0] == "k" else line for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in old))
    found = view(ServedLog(tmp_path))
    assert {key: one[:5] for key, one in found.items()} == {key: one[:5] for key, one in expected.items()}
    assert {sum(one[5]) for one in found.values()} == {0}
