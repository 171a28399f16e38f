"""Estimates, the dispersion of a history, and planned numbers of requests."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy.stats import chi2

from mlgitops.core.analysis.counts import ArmCounts, Interval
from mlgitops.core.analysis.intervals import estimate, newcombe
from mlgitops.core.analysis.noise import (
    DEFAULT_DISPERSION,
    LEAST_BLOCKS,
    NoiseSource,
    dispersion_from_history,
    noise_of,
)
from mlgitops.core.analysis.planning import planned_samples
from mlgitops.core.errors import InvalidInput

START = datetime(2026, 3, 1, tzinfo=UTC)


def counts(bad: int, total: int) -> ArmCounts:
    return ArmCounts(bad=bad, total=total)


def test_newcombe_published_example() -> None:
    """The interval of 56/70 against 48/80 is the one Newcombe (1998) published for his method 10."""
    assert newcombe(counts(56, 70), counts(48, 80)) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_one_stratum_is_newcombe() -> None:
    """A single step's estimate is the plain difference with Newcombe's limits and the plain odds ratio."""
    found = estimate([(counts(56, 70), counts(48, 80))])
    assert (found.difference, found.lower, found.upper) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert found.odds_ratio == pytest.approx((56 / 14) / (48 / 32))


def test_change_of_weight_is_no_difference() -> None:
    """Rates that change from step to step, equal in both arms, give no difference although pooled rates differ."""
    found = estimate([(counts(10, 100), counts(90, 900)), (counts(30, 900), counts(3, 90))])
    assert found.difference == pytest.approx(0, abs=1e-12)
    assert found.odds_ratio == pytest.approx(1)


def test_more_steps_more_certainty() -> None:
    """Three like steps give an interval narrower by the root of three, about."""
    one = (counts(20, 400), counts(40, 800))
    alone, together = estimate([one]), estimate([one] * 3)
    assert alone.upper is not None
    assert alone.difference is not None
    assert together.upper == pytest.approx(alone.difference + (alone.upper - alone.difference) / math.sqrt(3))


def test_dispersion_widens() -> None:
    """A dispersion of 4 makes the interval about twice as wide."""
    one = [(counts(200, 4_000), counts(400, 8_000))]
    calm, noisy = estimate(one), estimate(one, dispersion=4)
    assert calm.upper is not None
    assert calm.lower is not None
    assert noisy.upper is not None
    assert noisy.lower is not None
    assert (noisy.upper - noisy.lower) / (calm.upper - calm.lower) == pytest.approx(2, rel=0.02)


def test_no_data_no_estimate() -> None:
    """An arm without requests gives no number at all, and no infinity."""
    found = estimate([(counts(0, 0), counts(3, 10))])
    assert (found.difference, found.lower, found.upper, found.odds_ratio) == (None, None, None, None)
    assert estimate([(counts(3, 10), counts(0, 10))]).odds_ratio is None


def minutes(seed: int, count: int, *, clustered: bool) -> list[Interval]:
    """An A/A history of two pod groups; clustered: failures come three at a time in one group."""
    random = np.random.default_rng(seed)
    size, rate = (3, 0.01) if clustered else (1, 0.03)
    pairs = [[counts(size * int(random.binomial(n // size, rate)), n) for n in (300, 300)] for _ in range(count)]
    return [
        Interval(at=START + timedelta(minutes=minute), cohort="0-0", canary=first, baseline=second)
        for minute, (first, second) in enumerate(pairs)
    ]


def test_dispersion_of_independent_requests() -> None:
    """Independent requests have a dispersion near 1, never below it."""
    found = [dispersion_from_history(minutes(seed, 600, clustered=False)) for seed in range(8)]
    assert all(value is not None and 1 <= value < 1.6 for value in found)


def test_dispersion_of_clusters() -> None:
    """Failures that come three at a time have a dispersion near 3, told with a margin to the careful side."""
    found = [dispersion_from_history(minutes(seed, 1_200, clustered=True)) or 0 for seed in range(8)]
    assert 2.8 < float(np.mean(found)) < 4.2


def test_dispersion_formula() -> None:
    """Two minutes in one block give (ΣU)²/ΣV times K over the 20 % χ² quantile, worked out by hand."""
    history = [
        Interval(at=START, cohort="0-0", canary=counts(4, 10), baseline=counts(0, 10)),
        Interval(at=START + timedelta(minutes=1), cohort="0-0", canary=counts(2, 20), baseline=counts(1, 10)),
    ]
    deviation = (4 - 2) + (2 - 3 * 20 / 30)
    variance = 4 * 10 * 10 * 16 / (20**2 * 19) + 3 * 20 * 10 * 27 / (30**2 * 29)
    expected = deviation**2 / variance / chi2.ppf(0.2, 1)
    assert dispersion_from_history(history, block_length=2) == pytest.approx(expected)


def test_silent_history_tells_nothing() -> None:
    """A history without any bad outcome, or shorter than a block, gives None instead of a number."""
    quiet = [Interval(at=START, cohort="0-0", canary=counts(0, 10), baseline=counts(0, 10))] * 20
    assert dispersion_from_history(quiet) is None
    assert dispersion_from_history(minutes(1, 9, clustered=False)) is None
    with pytest.raises(InvalidInput):
        dispersion_from_history([], block_length=0)


def test_planning_is_reasonable() -> None:
    """Smaller effects, rarer outcomes, more noise, stricter levels and margins all take more requests."""
    usual = planned_samples(3, 0.02, canary_share=0.1, alpha=0.01)
    assert planned_samples(2, 0.02, canary_share=0.1, alpha=0.01) > usual
    assert planned_samples(3, 0.01, canary_share=0.1, alpha=0.01) > usual
    assert planned_samples(3, 0.02, canary_share=0.1, alpha=0.001) > usual
    assert planned_samples(3, 0.02, canary_share=0.1, alpha=0.01, margin=1.5) > usual
    assert planned_samples(3, 0.02, canary_share=0.1, alpha=0.01, bets=3) > usual
    assert planned_samples(3, 0.02, canary_share=0.1, alpha=0.01, dispersion=2) == pytest.approx(2 * usual, abs=2)


def test_planning_refuses_impossible_arguments() -> None:
    """All impossible arguments are told at once."""
    with pytest.raises(InvalidInput) as caught:
        planned_samples(1, 0, canary_share=1, alpha=0, dispersion=0)
    assert len(caught.value.problems) == 5


def test_short_history_is_not_believed() -> None:
    """A history of fewer than twelve blocks with a bad outcome leaves the default, and one of twelve replaces it."""
    quiet = [Interval(at=START, cohort="", canary=counts(0, 500), baseline=counts(0, 500))] * 2_000
    told = [
        Interval(at=START + timedelta(minutes=minute), cohort="", canary=counts(5, 500), baseline=counts(5, 500))
        for minute in range(10 * LEAST_BLOCKS)
    ]
    for history in ([], quiet, told[:-1], [*told[:-10], *quiet]):
        found = noise_of(None, history)
        assert (found.dispersion, found.source, found.blocks) == (DEFAULT_DISPERSION, NoiseSource.DEFAULT, None)
    found = noise_of(None, told)
    assert (found.dispersion, found.source, found.blocks) == (1.0, NoiseSource.HISTORY, LEAST_BLOCKS)
    assert noise_of(3.0, told).source is NoiseSource.PLAN
    for wrong in (0.5, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="dispersion"):
            noise_of(wrong)
