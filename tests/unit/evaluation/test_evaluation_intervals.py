"""Intervals: they cover what they promise, agree with scipy, and depend on nothing but data and seed."""

import itertools

import numpy as np
import pytest
import scipy.stats

from mlgitops.core.evaluation import statistics
from mlgitops.core.evaluation.intervals import bias_corrected, paired_difference, proportion, resampled_sums, resamples
from mlgitops.core.evaluation.measure import SIMULTANEOUS, Settings, confidence_of, measure


def regression(seed, examples=120):
    generator = np.random.default_rng(seed)
    labels = generator.normal(size=examples)
    return labels, labels + generator.gamma(1.0, 0.5, size=examples)


@pytest.mark.parametrize("which", ["mae", "rmse", "r2"])
def test_bootstrap_agrees_with_scipy(which: str) -> None:
    """The interval from sums is the BCa interval that scipy computes from resampled examples."""
    labels, answers = regression(3)
    (one,) = [found for found in statistics.regression(labels, answers) if found.name == which]
    sums = resampled_sums(one.columns, 5)
    count = len(labels)
    own = bias_corrected(
        one.value(sums, count), one.estimate(), one.value(one.columns.sum(0) - one.columns, count - 1), 0.95
    )

    def statistic(index, axis):
        return one.value(one.columns[index].sum(axis=axis - 1), count)

    assert own is not None
    other = scipy.stats.bootstrap(
        (np.arange(count),), statistic, n_resamples=4000, batch=500, vectorized=True, rng=np.random.default_rng(1)
    ).confidence_interval
    width = other.high - other.low
    assert own.low == pytest.approx(other.low, abs=0.1 * width)
    assert own.high == pytest.approx(other.high, abs=0.1 * width)


def test_wilson_agrees_with_scipy() -> None:
    """Shares of examples get Wilson's interval."""
    expected = scipy.stats.binomtest(47, 50).proportion_ci(0.9, method="wilson")
    found = proportion(47, 50, 0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_paired_difference_covers_the_true_one() -> None:
    """Over 2,000 seeded experiments at most 7 % of the 95 % intervals miss the true difference."""
    generator = np.random.default_rng(7)
    missed = 0
    for _ in range(2000):
        shared, own = generator.random(200), generator.random(200)
        first, second = shared < 0.93, np.where(generator.random(200) < 0.7, shared, own) < 0.9
        both, neither = int((first & second).sum()), int((~first & ~second).sum())
        found = paired_difference(both, int((first & ~second).sum()), int((~first & second).sum()), neither, 0.95)
        missed += not found.low <= 0.03 <= found.high
    assert missed / 2000 <= 0.07


@pytest.mark.parametrize("counts", [(90, 5, 3, 2), (0, 0, 0, 0), (50, 0, 0, 0), (0, 9, 0, 0), (10, 0, 0, 5)])
def test_paired_difference_is_antisymmetric_and_contains_itself(counts) -> None:
    """Swapping the models turns the interval around; the difference lies in it, within −1 to 1."""
    both, first, second, neither = counts
    one = paired_difference(both, first, second, neither, 0.95)
    other = paired_difference(both, second, first, neither, 0.95)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    difference = (first - second) / max(1, sum(counts))
    assert -1 <= one.low <= difference <= one.high <= 1


def test_resampling_is_bounded_for_large_sets() -> None:
    """More examples mean fewer resamples, never fewer than 400."""
    assert resamples(500) == 2000
    assert resamples(10**7) == 400


def test_same_seed_gives_the_same_report() -> None:
    """A report can be computed again to the last digit."""
    labels, answers = regression(1)
    found = [measure(statistics.regression(labels, answers), None, {}, Settings(seed=4)) for _ in range(2)]
    assert found[0] == found[1]


def test_equal_models_differ_by_nothing() -> None:
    """A model compared with itself has differences of 0 with 0 in every interval."""
    labels, answers = regression(2)
    one = statistics.regression(labels, answers)
    for difference in measure(one, one, {}, Settings())["comparison"]["metrics"].values():
        assert difference["difference"] == 0
        assert difference["low"] <= 0 <= difference["high"]


def test_slices_are_measured_on_their_own_examples() -> None:
    """A slice's metric is that of its examples; an empty slice has none."""
    labels = np.array([0, 1, 0, 1])
    answers = statistics.read_scores(np.array([0, 1, 1, 0]))
    slices = {"first": np.array([True, True, False, False]), "none": np.zeros(4, dtype=bool)}
    found = measure(statistics.classification(labels, answers), None, slices, Settings())["candidate"]
    assert found["metrics"]["accuracy"]["value"] == 0.5
    assert found["slices"]["first"]["examples"] == 2
    assert found["slices"]["first"]["metrics"]["accuracy"]["value"] == 1
    assert found["slices"]["none"] == {"examples": 0, "metrics": {}}


def test_one_example_gives_values_without_bootstrap() -> None:
    """A single example has a value and no bootstrap interval, and raises nothing."""
    found = measure(statistics.regression(np.ones(1), np.zeros(1)), None, {}, Settings())["candidate"]["metrics"]
    assert found["mae"] == {"value": 1.0, "low": None, "high": None, "method": None, "better": "lower"}


def test_slices_have_intervals_that_hold_together() -> None:
    """In a slice the interval for k comparisons at once contains the one for fewer, and is Bonferroni's."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, 400)
    first, second = (
        statistics.classification(labels, statistics.read_scores(generator.normal(size=(400, 3)) + np.eye(3)[labels]))
        for _ in range(2)
    )
    found = measure(first, second, {"even": np.arange(400) % 2 == 0}, Settings())["comparison"]
    assert "simultaneous" not in found["metrics"]["accuracy"]
    for difference in found["slices"]["even"]["metrics"].values():
        ends = [[difference["low"], difference["high"]], *difference["simultaneous"].values()]
        assert list(difference["simultaneous"]) == [str(one) for one in SIMULTANEOUS]
        assert all(wide[0] <= narrow[0] <= narrow[1] <= wide[1] for narrow, wide in itertools.pairwise(ends))
    alone = measure(_half(first), _half(second), {}, Settings(confidence=confidence_of(0.95, 5)))["comparison"]
    of_five = found["slices"]["even"]["metrics"]["accuracy"]["simultaneous"]["5"]
    assert of_five == [alone["metrics"]["accuracy"]["low"], alone["metrics"]["accuracy"]["high"]]


def _half(model):
    return [one.take(np.arange(400) % 2 == 0) for one in model]
