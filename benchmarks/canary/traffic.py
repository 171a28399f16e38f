"""Traffic of a rollout: who answered how many requests in each minute, and how many of the answers were bad."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from mlgitops.core.configuration import MetricKind

Array = NDArray[np.float64]

CORRELATION: Final = 0.7
"""Of the noise of an arm, from one minute to the next."""
NOISE: Final = 0.3
"""Coefficient of variation of an arm's rate per minute, where it is noisy."""
LATENCY_SPREAD: Final = 0.5
"""Standard deviation of the logarithm of the latency, which is normal."""
SLOW: Final = (0.02, 0.01, 0.005)
"""Shares of the baseline's requests that the three bucket bounds leave out: its p98, p99 and p99.5."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a worse canary does."""

    name: str
    kind: MetricKind
    rates: tuple[float, ...]
    """The baseline's share of bad outcomes, at each bound."""
    worse: tuple[float, ...]
    """The canary's."""

    @property
    def middle(self) -> int:
        """Which of the rates is shown, and known to rules that judge one series."""
        return len(self.rates) // 2

    @property
    def rate(self) -> float:
        return self.rates[self.middle]

    @property
    def worse_rate(self) -> float:
        return self.worse[self.middle]

    @property
    def odds_ratio(self) -> float:
        """What a plan names as `effect`."""
        return self.worse_rate * (1 - self.rate) / (self.rate * (1 - self.worse_rate))


def _slower(factor: float) -> tuple[float, ...]:
    """Return what shares exceed the baseline's bounds when every request takes `factor` times as long."""
    return tuple(float(ndtr(ndtri(share) + math.log(factor) / LATENCY_SPREAD)) for share in SLOW)


EFFECTS: Final = (
    Effect(name="errors 0.1 → 0.5 %", kind="errors", rates=(0.001,), worse=(0.005,)),
    Effect(name="errors 1 → 1.5 %", kind="errors", rates=(0.01,), worse=(0.015,)),
    Effect(name="errors 1 → 3 %", kind="errors", rates=(0.01,), worse=(0.03,)),
    Effect(name="accuracy .92 → .90", kind="labels", rates=(0.08,), worse=(0.10,)),
    Effect(name="accuracy .92 → .85", kind="labels", rates=(0.08,), worse=(0.15,)),
    Effect(name="p99 latency +20 %", kind="latency", rates=SLOW, worse=_slower(1.2)),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The weights of a rollout."""

    name: str
    steps: tuple[tuple[float, int], ...]
    """(share of the canary, minutes) of each step."""

    def minutes(self) -> Iterator[tuple[int, float]]:
        """Yield step, from 0, and the canary's share, of each minute."""
        for step, (share, length) in enumerate(self.steps):
            yield from [(step, share)] * length

    @property
    def length(self) -> int:
        return sum(length for _, length in self.steps)


USUAL: Final = Plan(name="10/25/50/95 %", steps=((0.1, 10), (0.25, 10), (0.5, 10), (0.95, 10)))
"""Four steps of ten minutes; the last keeps a baseline of 5 %."""
CAREFUL: Final = Plan(name="1/5/20/50 %", steps=((0.01, 10), (0.05, 10), (0.2, 10), (0.5, 10)))
HALVES: Final = Plan(name="50 %", steps=((0.5, 40),))
DAY: Final = Plan(name="two groups of one version, a day", steps=((0.5, 1_440),))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of traffic."""

    effect: Effect
    requests_per_second: float
    plan: Plan = USUAL
    noise: float = 0.0
    """Coefficient of variation of each arm's rate per minute."""
    label_delay_minutes: float = 0.0
    """Mean time until a label is there, exponential."""

    @property
    def name(self) -> str:
        parts = [self.effect.name, f"{self.requests_per_second:g} req/s", self.plan.name]
        parts += ["bursts"] if self.noise else []
        parts += [f"labels after {self.label_delay_minutes:g} min"] if self.label_delay_minutes else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became known in each minute, of the requests of each step: arrays of whole numbers, as floats."""

    canary: Array
    """Requests with a known outcome; (rollouts, minutes, steps)."""
    baseline: Array
    canary_bad: Array
    """Of these, bad at each bound; (bounds, rollouts, minutes, steps)."""
    baseline_bad: Array

    def series(self, bound: int) -> tuple[Array, Array, Array, Array]:
        """Return the canary's requests and how many were bad, then the baseline's; by minute, over all steps."""
        both = self.canary, self.canary_bad[bound], self.baseline, self.baseline_bad[bound]
        canary, canary_bad, baseline, baseline_bad = (one.sum(axis=-1) for one in both)
        return canary, canary_bad, baseline, baseline_bad


def traffic(scenario: Scenario, dice: Generator, runs: int, *, worse: bool) -> Counts:
    """Draw so many rollouts; the canary equals its baseline unless it is `worse`."""
    plan, effect = scenario.plan, scenario.effect
    canary = _arm(scenario, dice, effect.worse if worse else effect.rates, [share for _, share in plan.minutes()], runs)
    baseline = _arm(scenario, dice, effect.rates, [1 - share for _, share in plan.minutes()], runs)
    return Counts(canary=canary[0], canary_bad=canary[1], baseline=baseline[0], baseline_bad=baseline[1])


def _arm(
    scenario: Scenario, dice: Generator, rates: tuple[float, ...], shares: list[float], runs: int
) -> tuple[Array, Array]:
    """Return what becomes known of one arm in each minute: outcomes, and bad ones at each bound."""
    plan = scenario.plan
    shape = (runs, plan.length, len(plan.steps))
    total, bad = np.zeros(shape), np.zeros((len(rates), *shape))
    noise = _noise(dice, runs, plan.length, scenario.noise)
    late = (
        _Late(scenario.label_delay_minutes, (len(plan.steps), 2, runs), dice) if scenario.label_delay_minutes else None
    )
    for minute, ((step, _), share) in enumerate(zip(plan.minutes(), shares, strict=True)):
        requests = dice.poisson(60 * scenario.requests_per_second * share, runs)
        found = _bad(dice, requests, rates, noise[:, minute])
        if late is None:
            total[:, minute, step], bad[:, :, minute, step] = requests, found
        else:
            come = late.minute(step, np.stack([requests - found[0], found[0]]))
            total[:, minute], bad[0, :, minute] = come.sum(axis=1).T, come[:, 1].T
    return total, bad


def _noise(dice: Generator, runs: int, length: int, spread: float) -> Array:
    """Return factors of an arm's rate with mean 1, correlated from minute to minute."""
    if not spread:
        return np.ones((runs, length))
    sigma, state, found = math.sqrt(math.log1p(spread * spread)), dice.normal(size=runs), []
    for _ in range(length):
        state = CORRELATION * state + math.sqrt(1 - CORRELATION**2) * dice.normal(size=runs)
        found.append(np.exp(sigma * state - sigma * sigma / 2))
    return np.stack(found, axis=1)


def _bad(dice: Generator, requests: NDArray[np.int64], rates: tuple[float, ...], noise: Array) -> NDArray[np.int64]:
    """Return how many of the requests were bad at each bound, of which each leaves out fewer than the one before."""
    left, before, found = requests, np.ones(len(requests)), []
    for rate in rates:
        share = np.minimum(before, np.minimum(0.95, rate * noise))
        left = dice.binomial(left, share / before)
        found.append(left)
        before = share
    return np.stack(found)


class _Late:
    """Labels that are waited for; as their delay is exponential, how long they have been waited for says nothing."""

    def __init__(self, delay: float, shape: tuple[int, int, int], dice: Generator) -> None:
        """Begin; the shape is (steps, right and wrong, rollouts)."""
        self.delay, self.dice = delay, dice
        self.waiting = np.zeros(shape, dtype=np.int64)

    def minute(self, step: int, made: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what labels come in a minute, by step; `made` are the requests of the minute, made in its middle."""
        come = self.dice.binomial(self.waiting, self._share(1.0))
        at_once = self.dice.binomial(made, self._share(0.5))
        self.waiting -= come
        self.waiting[step] += made - at_once
        come[step] += at_once
        return np.asarray(come)

    def _share(self, minutes: float) -> float:
        return -math.expm1(-minutes / self.delay)
