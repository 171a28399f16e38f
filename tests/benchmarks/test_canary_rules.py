"""The rules that mlgitops is compared with decide as their documentation says; small cases, worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.canary import rules
from benchmarks.canary.twin import NEVER

Series = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def row(*values: float) -> np.ndarray:
    return np.array([values], dtype=float)


def test_flagger_counts_failed_checks_that_do_not_follow_each_other() -> None:
    """Failed checks add up over the whole canary; one that passes in between takes none back."""
    requests, bad = row(100, 100, 100, 100, 100), row(2, 0, 2, 0, 2)
    assert rules.flagger(requests, bad, threshold=0.01, checks=3).tolist() == [4]
    assert rules.flagger(requests, bad, threshold=0.01, checks=4).tolist() == [NEVER]


def test_flagger_takes_no_data_for_a_failed_check() -> None:
    """A minute without requests halts the advancement, as does one above the threshold; at the threshold it passes."""
    assert rules.flagger(row(0, 100, 0), row(0, 1, 0), threshold=0.01, checks=2).tolist() == [2]


def test_argo_fails_with_more_failures_than_its_limit() -> None:
    """With failureLimit 0 the first failed measurement aborts; with 3 the fourth, wherever they are."""
    requests, bad = row(10, 10, 10, 10, 10, 10), row(1, 0, 1, 1, 0, 1)
    assert rules.argo(requests, bad, success=0.05).tolist() == [0]
    assert rules.argo(requests, bad, success=0.05, failure_limit=3).tolist() == [5]
    assert rules.argo(requests, bad, success=0.05, failure_limit=4).tolist() == [NEVER]


def test_argo_bears_four_errors_in_a_row() -> None:
    """A measurement without data is an error: five in a row end the run, and data in between begins the count anew."""
    assert rules.argo(row(0, 0, 0, 0, 9, 0, 0, 0, 0), np.zeros((1, 9)), success=0.05).tolist() == [NEVER]
    assert rules.argo(row(9, 0, 0, 0, 0, 0), np.zeros((1, 6)), success=0.05).tolist() == [5]


def test_argo_pauses_where_neither_condition_holds() -> None:
    """An inconclusive measurement pauses the rollout at once (inconclusiveLimit 0), so that nothing is rolled back."""
    requests, bad = row(100, 100), row(7, 50)
    assert rules.argo(requests, bad, success=0.05, failure=0.1).tolist() == [NEVER]
    assert rules.argo(requests, bad, success=0.05, failure=0.1, inconclusive_limit=1).tolist() == [1]


def lower_end(x: np.ndarray, y: np.ndarray) -> float:
    """Search the lower end of the Mann-Whitney interval as R does: the shift at which z falls to the quantile."""

    def z(shift: float) -> float:
        ranks = stats.rankdata(np.concatenate([x - shift, y]))
        m, n = len(x), len(y)
        deviation = ranks[:m].sum() - m * (m + 1) / 2 - m * n / 2
        _, counts = np.unique(ranks, return_counts=True)
        ties = (counts**3 - counts).sum() / ((m + n) * (m + n - 1))
        return float((deviation - np.sign(deviation) / 2) / np.sqrt(m * n / 12 * (m + n + 1 - ties)))

    quantile, low, high = stats.norm.ppf(0.99), x.min() - y.max(), x.max() - y.min()
    if z(low) <= quantile:
        return float(low)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if z(middle) <= quantile else (middle, high)
    return float(low)


def test_kayenta_compares_its_interval_with_a_quarter_of_the_shift() -> None:
    """High means: the lower end of the 98 % interval is above 0.25 × the Hodges–Lehmann estimate."""
    dice, said = np.random.default_rng(20261130), []
    for shift in (0.0, 0.02, 0.03, 0.04, 0.06) * 8:
        x, y = dice.normal(0.1 + shift, 0.04, 25), dice.normal(0.1, 0.04, 25)
        estimate = np.median(np.subtract.outer(x, y))
        said.append(bool(rules.is_high(x[None], y[None])[0]))
        assert said[-1] == (lower_end(x, y) > 0.25 * abs(estimate))
    assert 5 < sum(said) < 35, "the cases do not tell the two answers apart"


def test_kayenta_with_very_few_points_takes_the_least_difference() -> None:
    """Where no shift reaches the quantile, the interval ends at the least difference: two points each can be high."""
    assert rules.is_high(row(0.05, 0.06), row(0.01, 0.02)).tolist() == [True]  # least 0.03, a quarter of 0.04
    assert rules.is_high(row(0.05, 0.06), row(0.01, 0.049)).tolist() == [False]  # least 0.001


def test_kayenta_asked_each_minute_is_its_judge_asked_each_minute() -> None:
    """What is skipped as surely not high is not high: ties, minutes without data and zeros among it."""
    dice = np.random.default_rng(20261130)
    canary, baseline = dice.poisson(8, (200, 30)).astype(float), dice.poisson(60, (200, 30)).astype(float)
    canary_bad, baseline_bad = dice.binomial(canary.astype(int), 0.12), dice.binomial(baseline.astype(int), 0.04)
    canary[::7, 3:9] = canary_bad[::7, 3:9] = 0
    series = (canary, canary_bad.astype(float), baseline, baseline_bad.astype(float))
    with np.errstate(invalid="ignore"):
        x, y = canary_bad / canary, baseline_bad / baseline
    high = np.stack([rules.is_high(x[:, :look], y[:, :look]) for look in range(10, 31)], axis=1)
    expected = np.where(high.any(axis=1), high.argmax(axis=1) + 9, NEVER)
    found = rules.kayenta(series, looks=range(10, 31))
    assert (found == expected).all()
    assert 20 < (found != NEVER).sum() < 200


def test_the_z_test_pools_all_counts_so_far() -> None:
    """20 of 200 beside 10 of 200 is z = 1.898: significant at 5 %, not at 1 %, and not at a look that is not made."""
    series: Series = (row(100, 100), row(9, 11), row(100, 100), row(6, 4))
    assert rules.z_test(series, looks=range(1, 3)).tolist() == [NEVER]
    assert rules.z_test(series, looks=range(1, 3), level=0.05).tolist() == [1]
    assert rules.z_test(series, looks=range(1, 2), level=0.05).tolist() == [NEVER]


@pytest.mark.parametrize(("looks", "constant"), [(1, 1.960), (2, 2.178), (5, 2.413), (10, 2.555)])
def test_pocock_boundaries_are_the_published_ones(looks: int, constant: float) -> None:
    """Jennison & Turnbull 2000, table 2.1, two-sided 5 %: of which one side is 2.5 %."""
    assert rules.pocock(looks, 0.025) == pytest.approx(constant, abs=0.004)


def test_the_group_sequential_test_is_stratified_by_minute() -> None:
    """Two minutes whose rates differ tenfold, each with arms alike, are no evidence, though the pooled rates differ."""
    series: Series = (row(900, 100), row(90, 1), row(100, 900), row(10, 9))
    assert rules.group_sequential(series, level=0.25).tolist() == [NEVER]
    assert rules.z_test(series, looks=range(2, 3)).tolist() == [1]


def test_the_oracle_stops_at_the_likelihood_ratio() -> None:
    """With known rates 0.1 and 0.5 in equal arms, one bad canary request of each gains ln(0.5/0.3) + ln(0.9/0.7)."""
    odds_ratio = 9.0
    gain = rules.log_ratio((row(1), row(1), row(1), row(0)), rate=0.1, odds_ratio=odds_ratio)[0, 0]
    assert gain == pytest.approx(np.log(0.5 / 0.3) + np.log(0.9 / 0.7))
    minutes = int(np.ceil(np.log(100) / gain))
    ones, nothing = np.ones((1, minutes)), np.zeros((1, minutes))
    assert rules.sprt((ones, ones, ones, nothing), rate=0.1, odds_ratio=odds_ratio).tolist() == [minutes - 1]
