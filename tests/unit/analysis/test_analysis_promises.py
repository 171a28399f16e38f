"""The figures that the method has to reach, by seeded simulation."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from mlgitops.core.analysis.counts import ArmCounts, Interval
from mlgitops.core.analysis.evidence import (
    DEFAULT_MIXTURE,
    Mixture,
    centred_on,
    highest,
    path_of,
    with_before,
    worse_bets,
)
from mlgitops.core.analysis.noise import dispersion_from_history
from mlgitops.core.analysis.planning import planned_samples

START = datetime(2026, 3, 1, tzinfo=UTC)
SEED = 20261130
STEPS = ((0.10, 10), (0.25, 10), (0.50, 10), (0.95, 10))


def rounds(
    random: np.random.Generator,
    weights: Sequence[float],
    requests: int,
    canary: Sequence[float],
    baseline: Sequence[float],
) -> list[Interval]:
    """One interval a minute: Poisson traffic split by weight, outcomes at each arm's rate."""
    found = []
    for minute, (weight, of_canary, of_baseline) in enumerate(zip(weights, canary, baseline, strict=True)):
        n_c, n_b = int(random.poisson(requests * weight)), int(random.poisson(requests * (1 - weight)))
        found.append(
            Interval(
                at=START + timedelta(minutes=minute),
                cohort="7-0",
                canary=ArmCounts(total=n_c, bad=int(random.binomial(n_c, of_canary))),
                baseline=ArmCounts(total=n_b, bad=int(random.binomial(n_b, of_baseline))),
            )
        )
    return found


def peak(
    intervals: list[Interval], mixture: Mixture = DEFAULT_MIXTURE, *, margin: float = 1, dispersion: float = 1
) -> float:
    bets = worse_bets(mixture, margin=margin)
    return highest(path_of(with_before(intervals, ArmCounts()), bets, dispersion=dispersion))


@pytest.mark.parametrize("requests", [60, 1_200])
def test_perfect_canary_is_kept(requests: int) -> None:
    """Looked at every minute, rates drifting, a canary that is no worse fails at most as often as promised."""
    random = np.random.default_rng(SEED)
    alpha, runs, failed = 0.05, 300, 0
    weights = [weight for weight, length in STEPS for _ in range(length)]
    for _ in range(runs):
        phase, size = random.uniform(0, 2 * math.pi), random.choice([0.005, 0.03, 0.1])
        drift = [size * (1 + 0.9 * math.sin(phase + minute / 5)) for minute in range(len(weights))]
        failed += peak(rounds(random, weights, requests, drift, drift)) >= math.log(1 / alpha)
    assert failed / runs <= alpha


def test_noisy_service_keeps_its_perfect_canary() -> None:
    """With correlated noise of each arm, the dispersion of the service's own history keeps the promise."""
    random = np.random.default_rng(SEED)

    def noise(length: int) -> list[float]:
        state, found = random.normal(), []
        for _ in range(length):
            state = 0.7 * state + math.sqrt(1 - 0.7**2) * random.normal()
            found.append(0.03 * math.exp(0.3 * state - 0.045))
        return found

    alpha, runs, length = 0.05, 120, 40
    history = rounds(random, [0.5] * 2_000, 1_200, noise(2_000), noise(2_000))
    dispersion = dispersion_from_history(history)
    assert dispersion is not None
    weights = [weight for weight, minutes in STEPS for _ in range(minutes)]
    worlds = [rounds(random, weights, 1_200, noise(length), noise(length)) for _ in range(runs)]
    assert sum(peak(world, dispersion=dispersion) >= math.log(1 / alpha) for world in worlds) / runs <= alpha
    assert sum(peak(world) >= math.log(1 / alpha) for world in worlds) / runs > alpha, "the noise is too weak to test"


@pytest.mark.parametrize(
    ("baseline", "canary", "published"), [(0.001, 0.005, 2_059), (0.01, 0.03, 564), (0.08, 0.15, 244)]
)
def test_detection_takes_the_published_requests(baseline: float, canary: float, published: int) -> None:
    """A regression is seen after about the published mean number of canary requests at weight 10 % and α = 1 %."""
    random = np.random.default_rng(SEED)
    step, looks = max(4, published // 20), 100
    seen = []
    for _ in range(120):
        world = rounds(random, [0.1] * looks, step * 10, [canary] * looks, [baseline] * looks)
        path = path_of(with_before(world, ArmCounts()), worse_bets(DEFAULT_MIXTURE), dispersion=1)
        crossed = next(place for place, (_, value) in enumerate(path) if value >= math.log(100))
        seen.append(sum(one.canary.total for one in world[: crossed + 1]))
    assert np.mean(seen) == pytest.approx(published, rel=0.17)


@pytest.mark.parametrize(
    ("effect", "rate", "share", "margin"),
    [(3, 0.02, 0.1, 1), (3, 0.02, 0.5, 1), (2, 0.1, 0.95, 1), (10, 0.01, 0.1, 1), (4, 0.02, 0.2, 1.5)],
)
def test_planned_requests_show_the_effect(effect: float, rate: float, share: float, margin: float) -> None:
    """After the planned number of canary requests the named effect was seen in about 90 % of rollouts."""
    random = np.random.default_rng(SEED)
    planned = planned_samples(effect, rate, canary_share=share, alpha=0.01, margin=margin)
    worse = effect * rate / (1 - rate + effect * rate)
    looks, runs = 20, 200
    seen = sum(
        peak(
            rounds(random, [share] * looks, round(planned / share / looks), [worse] * looks, [rate] * looks),
            centred_on(effect / margin),
            margin=margin,
        )
        >= math.log(100)
        for _ in range(runs)
    )
    assert 0.85 <= seen / runs <= 0.97
