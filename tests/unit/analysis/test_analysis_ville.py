"""False alarms over thousands of rollouts, through the whole judge: samples, intervals, bets, metrics, thresholds."""

import itertools
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from mlgitops.core.analysis.counts import Arm, ArmCounts, Interval, Sample
from mlgitops.core.analysis.evidence import highest, path_of, with_before, within_bets
from mlgitops.core.analysis.noise import NoiseSource, noise_of
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import Outcome, judge_running
from mlgitops.core.configuration import MetricRule

START = datetime(2026, 3, 1, tzinfo=UTC)
SEED = 20261130
STEPS = ((0.10, 8), (0.50, 8), (0.95, 8))
BOUNDS = (0.1, 0.25, 0.5, 1.0)
SLOWER = (0.06, 0.02, 0.008, 0.002)
Rates = Callable[[np.random.Generator, int], np.ndarray]
"""Failure rates per minute of one arm."""

pytestmark = pytest.mark.long


def rollout(random: np.random.Generator, requests: float, rates: Sequence[np.ndarray]) -> list[Sample]:
    """Return a rollout in which both arms have the same latency and correctness; labels come a minute late."""
    samples, minute = [], 0
    for step, (weight, length) in enumerate(STEPS, start=1):
        for arm, share, failing in zip(Arm, (weight, 1 - weight), rates, strict=True):
            total = random.poisson(requests * share, length)
            failed = random.binomial(total, failing[minute : minute + length])
            slower = [random.binomial(total, SLOWER[0])]
            for coarse, fine in itertools.pairwise(SLOWER):
                slower.append(random.binomial(slower[-1], fine / coarse))
            wrong = random.binomial(total - failed, 0.08)
            labels = [np.concatenate([[0], np.cumsum(one)[:-1]]) for one in (total - failed, wrong)]
            series = np.stack([np.cumsum(total), np.cumsum(failed), *labels, *np.cumsum(slower, axis=1)]).T.tolist()
            samples += [
                Sample(
                    at=START + timedelta(minutes=minute + place),
                    cohort=f"7-{step}",
                    arm=arm,
                    total=n,
                    failed=bad,
                    labelled=known,
                    incorrect=incorrect,
                    latency=tuple((bound, n - slow) for bound, slow in zip(BOUNDS, beyond, strict=True)),
                )
                for place, (n, bad, known, incorrect, *beyond) in enumerate(series)
            ]
        minute += length
    return samples


def drifting(random: np.random.Generator, length: int) -> np.ndarray:
    level, phase = random.choice([0.002, 0.01, 0.05]), random.uniform(0, 2 * math.pi)
    return np.asarray(level * (1 + 0.8 * np.sin(phase + np.arange(length) / 5)))


def correlated(random: np.random.Generator, length: int) -> np.ndarray:
    """Noise of one group of pods: coefficient of variation 0.3, correlated from minute to minute by 0.7."""
    state, found = random.normal(), []
    for _ in range(length):
        state = 0.7 * state + math.sqrt(1 - 0.7**2) * random.normal()
        found.append(0.03 * math.exp(0.3 * state - 0.045))
    return np.array(found)


def failed_share(worlds: Sequence[list[Sample]], beginning: Running, alpha: float) -> float:
    failed = 0
    for samples in worlds:
        metrics = judge_running(beginning.after(samples), alpha=alpha, cohort="7-3")
        failed += any(one.outcome is Outcome.FAILED for one in metrics)
    return failed / len(worlds)


def test_metrics_together_keep_a_perfect_canary() -> None:
    """Two thousand perfect canaries, rates drifting, three metrics of unlike weights: at most α are ever failed."""
    random, runs, alpha = np.random.default_rng(SEED), 2_000, 0.05
    length = sum(minutes for _, minutes in STEPS)
    worlds = []
    for _ in range(runs):
        rates = drifting(random, length)
        worlds.append(rollout(random, random.choice([60, 600]), [rates, rates]))
    rules = [
        MetricRule(kind="errors", effect=3, weight=3),
        MetricRule(kind="latency", effect=2),
        MetricRule(kind="labels", effect=1.5),
    ]
    beginning = Running.begin(rules, [noise_of(1.0)] * 3)
    assert 0 < failed_share(worlds, beginning, alpha) <= alpha


def test_noise_from_history_keeps_a_perfect_canary() -> None:
    """With correlated bursts, the dispersion that two groups of one version showed keeps 99 % of perfect canaries."""
    random, runs = np.random.default_rng(SEED), 1_200
    length = sum(minutes for _, minutes in STEPS)
    minutes = []
    groups = [correlated(random, 1_440) for _ in range(2)]
    for place, rates in enumerate(zip(*groups, strict=True)):
        totals = random.poisson(600, 2)
        one, other = (
            ArmCounts(total=int(n), bad=int(random.binomial(n, rate))) for n, rate in zip(totals, rates, strict=True)
        )
        minutes.append(Interval(at=START + timedelta(minutes=place), cohort="", canary=one, baseline=other))
    noise = noise_of(None, minutes)
    assert (noise.source, noise.blocks) == (NoiseSource.HISTORY, 144)
    worlds = [rollout(random, 1_200, [correlated(random, length) for _ in Arm]) for _ in range(runs)]
    rules = [MetricRule(kind="errors", effect=2)]
    assert failed_share(worlds, Running.begin(rules, [noise]), 0.01) <= 0.01
    assert failed_share(worlds[:200], Running.begin(rules, [noise_of(1.0)]), 0.01) > 0.1, (
        "the noise is too weak to test"
    )


@pytest.mark.parametrize(("effect", "rate"), [(2.0, 0.02), (4.0, 0.005), (1.5, 0.1)])
def test_a_canary_as_bad_as_the_effect_seldom_passes_early(effect: float, rate: float) -> None:
    """Looked at every minute for an hour, a canary with the named effect is ever let through early in at most α."""
    random, runs, alpha, length = np.random.default_rng(SEED), 1_000, 0.05, 60
    worse, passed = effect * rate / (1 - rate + effect * rate), 0
    for _ in range(runs):
        weight = random.choice([0.1, 0.5])
        n_c, n_b = random.poisson(600 * weight, length).tolist(), random.poisson(600 * (1 - weight), length).tolist()
        x_c, x_b = random.binomial(n_c, worse).tolist(), random.binomial(n_b, rate).tolist()
        intervals = [
            Interval(
                at=START + timedelta(minutes=minute),
                cohort="7-1",
                canary=ArmCounts(total=n_c[minute], bad=x_c[minute]),
                baseline=ArmCounts(total=n_b[minute], bad=x_b[minute]),
            )
            for minute in range(length)
        ]
        path = path_of(with_before(intervals, ArmCounts()), within_bets(effect), dispersion=1)
        passed += highest(path) >= math.log(1 / alpha)
    assert passed / runs <= alpha
