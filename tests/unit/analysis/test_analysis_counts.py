"""From cumulative samples to intervals."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.core.analysis.counts import (
    LARGEST_COUNT,
    Arm,
    ArmCounts,
    Sample,
    check_samples,
    errors_of,
    intervals_of,
    labels_of,
    slower_than,
    totals,
)
from mlgitops.core.errors import InvalidInput

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def sample(minute: float, arm: Arm, total: int, failed: int = 0, cohort: str = "7-0", **more: object) -> Sample:
    return Sample(at=START + timedelta(minutes=minute), cohort=cohort, arm=arm, total=total, failed=failed, **more)  # type: ignore[arg-type]


def canary(minute: float, total: int, failed: int = 0, **more: object) -> Sample:
    return sample(minute, Arm.CANARY, total, failed, **more)  # type: ignore[arg-type]


def baseline(minute: float, total: int, failed: int = 0, **more: object) -> Sample:
    return sample(minute, Arm.BASELINE, total, failed, **more)  # type: ignore[arg-type]


def test_intervals_are_increases() -> None:
    """An interval holds what both arms gained since the reading before; the first counts from zero."""
    found = intervals_of([canary(1, 10, 1), baseline(1, 90, 2), canary(2, 15, 4), baseline(2, 190, 2)], errors_of)
    assert [(one.canary, one.baseline) for one in found] == [
        (ArmCounts(total=10, bad=1), ArmCounts(total=90, bad=2)),
        (ArmCounts(total=5, bad=3), ArmCounts(total=100, bad=0)),
    ]


def test_missing_scrape_merges() -> None:
    """A reading that one arm missed makes one longer interval of both arms, never a lopsided one."""
    found = intervals_of(
        [canary(1, 10), canary(2, 20, 1), baseline(2, 180), canary(3, 30, 1), baseline(3, 270)], errors_of
    )
    assert [(one.at.minute, one.canary.total, one.baseline.total) for one in found] == [(2, 20, 180), (3, 10, 90)]


def test_silent_arm_waits() -> None:
    """While one arm has no new request nothing is compared; its silence lengthens the interval."""
    found = intervals_of(
        [canary(1, 0), baseline(1, 9), canary(2, 1), baseline(2, 18), canary(3, 1), baseline(3, 30)], errors_of
    )
    assert [(one.at.minute, one.canary.total, one.baseline.total) for one in found] == [(2, 1, 18)]


def test_arms_read_at_slightly_different_times() -> None:
    """Arms that are scraped seconds apart still make an interval per round."""
    found = intervals_of([canary(1, 10), baseline(1.1, 90), canary(2, 20), baseline(2.1, 180)], errors_of)
    assert [(one.canary.total, one.baseline.total) for one in found] == [(10, 90), (10, 90)]


def test_late_labels_stay_in_their_cohort() -> None:
    """Labels that arrive during a later step are compared within the step of their requests."""
    samples = [
        canary(1, 10, labelled=0), baseline(1, 90, labelled=0),
        canary(5, 10, labelled=8, incorrect=4), baseline(5, 90, labelled=70, incorrect=2),
        canary(5, 50, cohort="7-1", labelled=5), baseline(5, 50, cohort="7-1", labelled=6, incorrect=1),
    ]  # fmt: skip
    found = intervals_of(samples, labels_of)
    assert [(one.cohort, one.canary, one.baseline) for one in found] == [
        ("7-0", ArmCounts(total=8, bad=4), ArmCounts(total=70, bad=2)),
        ("7-1", ArmCounts(total=5, bad=0), ArmCounts(total=6, bad=1)),
    ]


def test_slow_requests_are_those_beyond_the_bound() -> None:
    """Latency counts every request that was not answered within the bound, whatever the finer buckets say."""
    one = canary(1, 100, latency=((0.1, 60), (0.5, 97)))
    assert slower_than(0.1)(one) == ArmCounts(total=100, bad=40)
    assert slower_than(0.5)(one) == ArmCounts(total=100, bad=3)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 400), st.integers(0, 400)), max_size=15)
)
def test_no_request_is_lost_or_counted_twice(rounds: list[tuple[int, int, int, int]]) -> None:
    """Intervals add up to the newest samples as long as the last round brought requests to both arms."""
    samples, bad_c, good_c, bad_b, good_b = [], 0, 0, 0, 0
    for minute, (more_bad_c, more_bad_b, more_good_c, more_good_b) in enumerate([*rounds, (1, 1, 1, 1)]):
        bad_c, bad_b, good_c, good_b = (
            bad_c + more_bad_c,
            bad_b + more_bad_b,
            good_c + more_good_c,
            good_b + more_good_b,
        )
        samples += [canary(minute, bad_c + good_c, bad_c), baseline(minute, bad_b + good_b, bad_b)]
    check_samples(samples)
    random.Random(1).shuffle(samples)
    found = intervals_of(samples, errors_of)
    assert sum((one.canary for one in found), ArmCounts()) == totals(samples, errors_of, Arm.CANARY)
    assert sum((one.baseline for one in found), ArmCounts()) == totals(samples, errors_of, Arm.BASELINE)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([canary(1, -1)], "total is -1"),
        ([canary(1, 2.0)], "total is 2.0"),  # type: ignore[arg-type]
        ([canary(1, float("nan"))], "total is nan"),  # type: ignore[arg-type]
        ([canary(1, True)], "total is True"),
        ([canary(1, LARGEST_COUNT + 1)], "not a whole number from 0 to 2^53"),
        ([canary(1, 5, 6)], "failed is 6, more than total 5"),
        ([canary(1, 5, labelled=6)], "labelled is 6, more than total 5"),
        ([canary(1, 5, labelled=2, incorrect=3)], "incorrect is 3, more than labelled 2"),
        ([canary(1, 5, latency=((0.5, 1), (0.1, 2)))], "do not ascend"),
        ([canary(1, 5, latency=((0.1, 4), (0.5, 3)))], "not cumulative"),
        ([canary(1, 5, latency=((0.1, 6),))], "not cumulative"),
        ([canary(1, 5), canary(2, 4)], "total fell from 5 to 4"),
        ([canary(1, 5, 2), canary(2, 6, 1)], "failed fell from 2 to 1"),
        ([canary(1, 5, 2), canary(2, 6, 4)], "total without failed fell from 3 to 2"),
        ([canary(1, 5, latency=((0.1, 4),)), canary(2, 6, latency=((0.1, 3),))], "latency[0.1] fell from 4 to 3"),
        ([Sample(at=START.replace(tzinfo=None), cohort="7-0", arm=Arm.CANARY, total=1, failed=0)], "not in UTC"),
    ],
)
def test_impossible_counts_are_refused(samples: list[Sample], message: str) -> None:
    """Counts that no real system can have are told by name, never judged."""
    with pytest.raises(InvalidInput) as caught:
        check_samples(samples)
    assert message in str(caught.value)
    assert caught.value.problems[0].pointer == "samples.7-0.canary"


def test_every_impossible_count_is_told_at_once() -> None:
    """All problems of all samples come together."""
    with pytest.raises(InvalidInput) as caught:
        check_samples([canary(1, 5, 6), baseline(1, -1)])
    assert len(caught.value.problems) == 2


def test_nothing_is_added_to_what_was_settled() -> None:
    """A sample of a moment that was settled is refused by name, and so is one that contradicts what was settled."""
    settled = {("7-0", Arm.CANARY): canary(2, 10, 1), ("7-0", Arm.BASELINE): baseline(2, 90)}
    check_samples([canary(3, 10, 1), baseline(3, 95)], settled)
    for late in (canary(1, 5), canary(2, 10, 1), canary(1, 5, cohort="7-1")):
        with pytest.raises(InvalidInput, match="came after that of"):
            check_samples([late], settled)
    with pytest.raises(InvalidInput, match="total fell from 10 to 9"):
        check_samples([canary(3, 9)], settled)
