"""The observed split: what chance explains passes, what it does not is told with both numbers."""

import random
from datetime import UTC, datetime

import pytest
import scipy.stats

from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.split import LEVEL, distorted

AT = datetime(2026, 11, 30, tzinfo=UTC)


def samples(canary: int, baseline: int, cohort: str = "4-1") -> list[Sample]:
    arms = ((Arm.CANARY, canary), (Arm.BASELINE, baseline))
    return [Sample(at=AT, cohort=cohort, arm=arm, total=total, failed=0) for arm, total in arms]


def test_a_share_that_chance_does_not_explain_is_told() -> None:
    """Both numbers, the weight, and the usual cause are named."""
    told = distorted(samples(0, 5_000), "4-1", 10)
    assert "answered 0 of 5,000 requests of step 4-1, 0 %, where git says 10 %" in told
    assert "X-Request-Id" in told
    assert distorted(samples(900, 9_100), "4-1", 10) == ""
    assert "8.0 %" in distorted(samples(8_000, 92_000), "4-1", 10)


def test_few_requests_and_other_steps_say_nothing() -> None:
    """Below 200 requests nothing is said, and another step's requests do not count."""
    assert distorted(samples(0, 199), "4-1", 50) == ""
    assert distorted(samples(0, 5_000, "4-2"), "4-1", 50) == ""
    assert distorted([], "4-1", 50) == ""


@pytest.mark.parametrize("weight", [1, 10, 50, 95])
def test_whatever_is_told_has_less_than_its_chance(weight: int) -> None:
    """No share is called wrong whose exact tail is more than the level; a share far beyond it is."""
    total = 3_000
    exact = scipy.stats.binom(total, weight / 100)
    for own in range(0, total + 1, 7):
        tail = 2 * min(exact.cdf(own), exact.sf(own - 1))
        told = distorted(samples(own, total - own), "4-1", weight)
        if told:
            assert tail <= LEVEL
        elif tail < LEVEL**2:
            raise AssertionError(f"{own} of {total} at {weight} % passed")


def test_a_right_split_is_hardly_ever_called_wrong() -> None:
    """Over 3,000 honest steps none is called wrong."""
    draw = random.Random(20_261_130)
    for _ in range(3_000):
        own = sum(draw.random() < 0.1 for _ in range(250))
        assert distorted(samples(own, 250 - own), "4-1", 10) == ""
