"""How many requests of a canary it takes to see that it is worse, beside the oracle, which knows both rates."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from benchmarks.canary.rules import log_ratio
from benchmarks.canary.traffic import Array, Effect
from benchmarks.canary.twin import ALPHA, Evidence
from mlgitops.core.analysis.evidence import DEFAULT_MIXTURE, Mixture, centred_on

WEIGHT: Final = 0.1
"""The canary's share of the requests."""
REQUESTS: Final = 100
"""Of both arms between two looks, on average: ten seconds at 10 requests a second."""
LONGEST: Final = 40_000
"""Looks after which a rollout that shows nothing is given up: it would spoil the mean, and has never been seen."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What one effect took, in requests of the canary, on average."""

    effect: Effect
    bound: float
    """ln(1/α) over the mean of the log likelihood ratio: no test of this level can do with fewer."""
    oracle: Array
    """Of each rollout."""
    named: Array
    """With the effect named in the plan."""
    misnamed: Array
    """With an effect named whose log is twice as large."""
    default: Array
    """With the mixture for when nobody named an effect."""

    @property
    def ratio(self) -> tuple[float, float]:
        """Return the mean with the effect named over the oracle's, and the half width of its 95 % interval."""
        return ratio(self.named, self.oracle)


def ratio(found: Array, oracle: Array) -> tuple[float, float]:
    """Return the quotient of two means over the same rollouts, and the half width of its 95 % interval."""
    quotient = found.mean() / oracle.mean()
    error = (found - quotient * oracle).std(ddof=1) / math.sqrt(len(found)) / oracle.mean()
    return float(quotient), float(1.96 * error)


def detection(effect: Effect, dice: Generator, runs: int) -> Detection:
    """Let rollouts of one worse canary be judged until everybody has seen it; all judge the same requests."""
    odds_ratio, several = effect.odds_ratio, {"bounds": len(effect.rates), "latency": effect.kind == "latency"}
    mixtures: dict[str, Mixture] = {
        "named": centred_on(odds_ratio),
        "misnamed": centred_on(odds_ratio**2),
        "default": DEFAULT_MIXTURE,
    }
    rules = {name: Evidence(runs, mixture=one, **several) for name, one in mixtures.items()}
    found = {name: np.zeros(runs) for name in ("oracle", *rules)}
    open_, seen, known = np.arange(runs), np.zeros(runs), np.zeros(runs)
    for _ in range(LONGEST):
        canary = _drawn(dice, WEIGHT * REQUESTS, effect.worse, len(open_))
        baseline = _drawn(dice, (1 - WEIGHT) * REQUESTS, effect.rates, len(open_))
        seen = seen + canary[0]
        one = effect.middle + 1
        known = known + log_ratio(
            (canary[0], canary[one], baseline[0], baseline[one]), rate=effect.rate, odds_ratio=odds_ratio
        )
        logs = {"oracle": known}
        for name, evidence in rules.items():
            evidence.learn(evidence.take(0, canary, baseline))
            logs[name] = evidence.log_evidence(np.ones(1))
        for name, log in logs.items():
            new = (log >= -math.log(ALPHA)) & (found[name][open_] == 0)
            found[name][open_[new]] = seen[new]
        still = np.any([found[name][open_] == 0 for name in found], axis=0)
        if not still.all():
            open_, seen, known = open_[still], seen[still], known[still]
            for evidence in rules.values():
                evidence.keep(still)
        if not len(open_):
            return Detection(effect=effect, bound=-math.log(ALPHA) / _per_request(effect), **found)
    raise RuntimeError(f"{effect.name}: {len(open_)} rollouts showed nothing in {LONGEST:,} looks")


def _drawn(dice: Generator, mean: float, rates: tuple[float, ...], runs: int) -> Array:
    """Return requests, then bad ones at each bound; (1 + bounds, rollouts)."""
    found, before = [dice.poisson(mean, runs)], 1.0
    for rate in rates:
        found.append(dice.binomial(found[-1], rate / before))
        before = rate
    return np.stack(found).astype(float)


def _per_request(effect: Effect) -> float:
    """Return the mean of the log likelihood ratio per request of the canary."""
    others = (1 - WEIGHT) / WEIGHT
    mean = (effect.worse_rate + others * effect.rate) / (1 + others)

    def divergence(rate: float) -> float:
        return rate * math.log(rate / mean) + (1 - rate) * math.log((1 - rate) / (1 - mean))

    return divergence(effect.worse_rate) + others * divergence(effect.rate)
