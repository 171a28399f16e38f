"""Samples never fall, whatever the router's counters do."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlgitops.adapters.metrics.embedded import EmbeddedMetrics, samples_file
from mlgitops.adapters.metrics.scraper import Scraper
from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Sample
from mlgitops.ports.serving import Arm


class Time:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


class Bench:
    """A scraper that is given expositions, and the port that reads what it kept."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, Time()
        self.metrics = EmbeddedMetrics(home)
        self.open()

    def open(self) -> None:
        self.scraper = Scraper(self.home, lambda: None, self.clock)

    def take(self, epoch: str, seconds: float = 1.0, **series: tuple[int, int, int, int]) -> None:
        """Give counts as `cohort_arm_release=(total, failed, labelled, incorrect)`; `_` in a cohort stands for `-`."""
        self.clock.at += timedelta(seconds=seconds)
        lines = [f'mlgitops_router_info{{epoch="{epoch}"}} 1']
        for name, (total, failed, labelled, incorrect) in series.items():
            number, step, arm, release = name[1:].split("_")
            labels = f'environment="production",model="digits",cohort="{number}-{step}",arm="{arm}",release="{release}"'
            lines += [
                f'mlgitops_requests_total{{{labels},outcome="ok"}} {total - failed}',
                f'mlgitops_requests_total{{{labels},outcome="failed"}} {failed}',
                f'mlgitops_labelled_total{{{labels},outcome="correct"}} {labelled - incorrect}',
                f'mlgitops_labelled_total{{{labels},outcome="incorrect"}} {incorrect}',
                f'mlgitops_request_seconds_bucket{{{labels},le="0.1"}} {total // 2}',
                f'mlgitops_request_seconds_bucket{{{labels},le="1.0"}} {total}',
                f'mlgitops_request_seconds_bucket{{{labels},le="+Inf"}} {total}',
            ]
        self.scraper.take("\n".join(lines) + "\n")

    def samples(self, rollout: int = 4) -> list[Sample]:
        return list(self.metrics.samples("production", "digits", rollout))

    def last(self, rollout: int = 4) -> dict[Arm, tuple[int, int, int, int]]:
        return {one.arm: (one.total, one.failed, one.labelled, one.incorrect) for one in self.samples(rollout)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "metrics")


def test_counts_become_samples_of_both_arms_at_the_same_moment(bench: Bench) -> None:
    """A change in one arm gives a sample of each, with cumulative latency and the time of the scrape."""
    bench.take("e", _4_1_canary_r=(10, 1, 4, 2), _4_1_baseline_q=(90, 0, 30, 1))
    bench.take("e", _4_1_canary_r=(12, 1, 4, 2), _4_1_baseline_q=(90, 0, 30, 1))
    samples = bench.samples()
    assert [one.arm for one in samples] == [Arm.BASELINE, Arm.CANARY] * 2
    assert samples[0].at == samples[1].at < samples[2].at == samples[3].at == bench.clock.at
    assert samples[3] == Sample(
        at=bench.clock.at,
        cohort="4-1",
        arm=Arm.CANARY,
        total=12,
        failed=1,
        latency=((0.1, 6), (1.0, 12)),
        labelled=4,
        incorrect=2,
    )


def test_nothing_is_written_while_nothing_changes(bench: Bench) -> None:
    """An idle router makes the files no longer."""
    for _ in range(3):
        bench.take("e", _4_1_canary_r=(10, 1, 0, 0))
    assert len(bench.samples()) == 1


def test_a_router_that_starts_again_from_nothing_is_added_up(bench: Bench) -> None:
    """A new epoch's counts come on top of what was counted before, also before any of them is told."""
    bench.take("one", _4_1_canary_r=(10, 1, 4, 2))
    bench.take("two")
    bench.take("two", _4_1_canary_r=(3, 0, 1, 1))
    bench.take("two", _4_1_canary_r=(30, 2, 1, 1))
    assert [one.total for one in bench.samples()] == [10, 13, 40]
    assert bench.last()[Arm.CANARY] == (40, 3, 5, 3)


def test_a_router_that_lost_its_last_lines_is_not_counted_twice(bench: Bench) -> None:
    """In the same epoch a lower count is the one before."""
    bench.take("e", _4_1_canary_r=(10, 1, 0, 0))
    bench.take("e", _4_1_canary_r=(9, 1, 0, 0))
    bench.take("e", _4_1_canary_r=(12, 1, 0, 0))
    assert [one.total for one in bench.samples()] == [10, 12]


def test_a_series_that_is_told_no_more_stays_counted(bench: Bench) -> None:
    """When a release's series goes, the arm's sum keeps it."""
    bench.take("e", _0_0_baseline_old=(100, 0, 0, 0), _0_0_baseline_new=(5, 0, 0, 0))
    bench.take("e", _0_0_baseline_new=(6, 0, 0, 0))
    assert bench.last(0)[Arm.BASELINE] == (106, 0, 0, 0)


def test_an_engine_that_starts_again_goes_on(bench: Bench) -> None:
    """A new scraper continues the sums of the one before."""
    bench.take("one", _4_1_canary_r=(10, 1, 0, 0))
    bench.open()
    bench.take("one", _4_1_canary_r=(11, 1, 0, 0))
    bench.open()
    bench.take("two", _4_1_canary_r=(1, 0, 0, 0))
    assert [one.total for one in bench.samples()] == [10, 11, 12]


def test_rollouts_have_files_of_their_own(bench: Bench) -> None:
    """A rollout's samples hold its own cohorts, all of them, and no other's."""
    bench.take("e", _4_1_canary_r=(1, 0, 0, 0), _4_2_canary_r=(2, 0, 0, 0), _5_1_canary_r=(3, 0, 0, 0))
    assert [one.cohort for one in bench.samples(4)] == ["4-1", "4-2"]
    assert [one.cohort for one in bench.samples(5)] == ["5-1"]
    assert bench.samples(6) == []


def test_a_torn_line_is_passed_over(bench: Bench) -> None:
    """A line left in part by a killed engine costs that line alone."""
    bench.take("e", _4_1_canary_r=(1, 0, 0, 0))
    file = samples_file(bench.home, "production", "digits", 4)
    with file.open("ab") as stream:
        stream.write(b'{"at": "2026')
    assert len(bench.samples()) == 1
    bench.take("e", _4_1_canary_r=(2, 0, 0, 0))
    assert [one.total for one in bench.samples()] == [1, 2]


def test_a_long_rollout_is_sampled_less_often(bench: Bench) -> None:
    """Samples are at least a thousandth of the rollout's age apart, and the newest counts come in the end."""
    bench.take("e", _4_1_canary_r=(1, 0, 0, 0))
    bench.take("e", 10_000, _4_1_canary_r=(2, 0, 0, 0))
    for total in range(3, 23):
        bench.take("e", 1, _4_1_canary_r=(total, 0, 0, 0))
    assert len(bench.samples()) == 3
    bench.take("e", 10, _4_1_canary_r=(22, 0, 0, 0))
    assert bench.samples()[-1].total == 22


def test_requests_outside_a_rollout_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of cohort 0-0 loses its older half when it is too large."""
    monkeypatch.setattr("mlgitops.adapters.metrics.scraper.NO_ROLLOUT_BYTES", 2_000)
    for total in range(1, 100):
        bench.take("e", _0_0_baseline_r=(total, 0, 0, 0))
    assert samples_file(bench.home, "production", "digits", 0).stat().st_size < 3_000
    assert bench.last(0)[Arm.BASELINE] == (99, 0, 0, 0)
    assert bench.samples(0)[-1].latency


def test_metrics_of_an_engine_that_never_ran_are_unavailable(tmp_path: Path) -> None:
    """No engine is an error, not an empty answer."""
    with pytest.raises(Unavailable):
        EmbeddedMetrics(tmp_path / "none").samples("production", "digits", 1)


def test_a_file_that_grew_is_read_on_and_one_that_did_not_is_not_read(bench: Bench) -> None:
    """Asking again gives the samples that were there before as they were, and what came since."""
    bench.take("e", _4_1_canary_r=(10, 1, 4, 2), _4_1_baseline_q=(90, 0, 30, 1))
    first = bench.metrics.samples("production", "digits", 4)
    assert bench.metrics.samples("production", "digits", 4) is first
    bench.take("e", _4_1_canary_r=(12, 1, 4, 2), _4_1_baseline_q=(95, 0, 30, 1))
    second = bench.metrics.samples("production", "digits", 4)
    assert all(old is new for old, new in zip(first, second, strict=False))
    assert list(second) == list(EmbeddedMetrics(bench.home).samples("production", "digits", 4))
    assert len(second) == 4


def test_a_line_being_written_is_read_when_it_is_whole(bench: Bench) -> None:
    """Part of a line tells nothing, and is not lost once the rest has come."""
    bench.take("e", _4_1_canary_r=(10, 1, 4, 2), _4_1_baseline_q=(90, 0, 30, 1))
    file = samples_file(bench.home, "production", "digits", 4)
    line = file.read_bytes().splitlines(keepends=True)[-1]
    with file.open("ab") as stream:
        stream.write(line[:20])
        stream.flush()
        assert len(bench.samples()) == 2
        stream.write(line[20:])
    assert len(bench.samples()) == 3


def test_a_file_that_was_replaced_is_read_anew(bench: Bench) -> None:
    """Samples of a file that another one took the place of are told no more, even when that one is longer."""
    bench.take("e", _4_1_canary_r=(10, 1, 4, 2), _4_1_baseline_q=(90, 0, 30, 1))
    assert len(bench.samples()) == 2
    file = samples_file(bench.home, "production", "digits", 4)
    head, baseline, canary = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(head + canary + canary + baseline)
    assert [one.arm for one in bench.samples()] == [Arm.CANARY, Arm.CANARY, Arm.BASELINE]
