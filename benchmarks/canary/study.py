"""Every scenario, judged by every rule."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.canary import rules, twin
from benchmarks.canary.traffic import CAREFUL, DAY, EFFECTS, HALVES, NOISE, Array, Counts, Effect, Scenario, traffic
from benchmarks.canary.twin import ALPHA, NEVER
from mlgitops.core.analysis.evidence import wilson
from mlgitops.core.analysis.noise import DEFAULT_DISPERSION

RATES: Final = (1.0, 10.0, 100.0, 1000.0)
"""Requests per second, of both arms."""
PLAIN: Final = EFFECTS[2]
"""The effect that other weights are tried with."""
LATE: Final = 10.0
"""Minutes that a label takes on average, where labels are late."""
HISTORIES: Final = 20
"""Days of two groups of one version that φ is measured on, each; the rollouts of a scenario are divided among them."""

OURS: Final = "mlgitops"
ASSUMED: Final = "mlgitops, φ = 2 assumed"
UNTEMPERED: Final = "mlgitops, φ = 1 whatever comes"
FLAGGER: Final = "Flagger, documented (99 %, 5 checks)"
FLAGGER_BEST: Final = "Flagger, ideal threshold, 5 checks"
ARGO: Final = "Argo Rollouts, documented (95 %, limit 0)"
ARGO_BEST: Final = "Argo Rollouts, ideal threshold, limit 3"
TUNED: Final = "fixed threshold, ideal, checks tuned"
KAYENTA: Final = "Kayenta, each minute from the tenth"
KAYENTA_BEST: Final = "Kayenta, once at the end"
PEEKED: Final = "z test at 1 %, each minute"
ONCE: Final = "z test at 1 %, once at the end"
SEQUENTIAL: Final = "group-sequential (Pocock, CMH) at 1 %"
ORACLE: Final = "oracle SPRT"
RULES: Final = (
    OURS,
    ASSUMED,
    UNTEMPERED,
    FLAGGER,
    FLAGGER_BEST,
    ARGO,
    ARGO_BEST,
    TUNED,
    KAYENTA,
    KAYENTA_BEST,
    PEEKED,
    ONCE,
    SEQUENTIAL,
    ORACLE,
)


@dataclass(frozen=True, kw_only=True)
class Share:
    """Of how many rollouts something was true."""

    count: int
    runs: int

    @property
    def value(self) -> float:
        return self.count / self.runs

    @property
    def limits(self) -> tuple[float, float]:
        """95 % limits, by Wilson, for what chance the simulation leaves open."""
        return wilson(self.count, self.runs, z=1.96)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one rule did in one scenario."""

    false_rollbacks: Share
    """Of canaries that equal their baseline."""
    detected: Share
    """Of worse ones."""
    median_minutes: float | None
    """After which half of the worse ones were rolled back; None where fewer were."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One scenario."""

    scenario: Scenario
    dispersion: float
    """φ that `OURS` was tempered by, on average."""
    outcomes: Mapping[str, Outcome]
    """By rule; a rule that has no documented setting for the metric is absent."""


def scenarios(effects: Sequence[Effect] = EFFECTS, rates: Sequence[float] = RATES) -> Iterator[Scenario]:
    """Yield every effect at every rate without and with bursts; then other weights, and late labels."""
    for noise, effect, rate in itertools.product((0.0, NOISE), effects, rates):
        yield Scenario(effect=effect, requests_per_second=rate, noise=noise)
    some = rates[1::2] or rates
    for noise, plan, rate in itertools.product((0.0, NOISE), (CAREFUL, HALVES), some):
        if PLAIN in effects:
            yield Scenario(effect=PLAIN, requests_per_second=rate, plan=plan, noise=noise)
    labels = [one for one in effects if one.kind == "labels"]
    for noise, effect, rate in itertools.product((0.0, NOISE), labels, some):
        yield Scenario(effect=effect, requests_per_second=rate, noise=noise, label_delay_minutes=LATE)


def study(scenario: Scenario, *, runs: int, seed: Sequence[int], checked: int = 3) -> Result:
    """Judge a scenario by every rule.

    Args:
        scenario: The traffic.
        runs: Rollouts of a canary that equals its baseline, and as many of a worse one.
        seed: The same seed gives the same result.
        checked: Rollouts of either kind that the judge itself judges as well; one is that with the most evidence.

    Raises:
        AssertionError: The judge says otherwise than its twin.
    """
    streams = [np.random.default_rng([*seed, place]) for place in range(4)]
    equal = traffic(scenario, streams[0], runs, worse=False)
    worse = traffic(scenario, streams[1], runs, worse=True)
    checks = _tuned(traffic(scenario, streams[2], runs, worse=False), scenario.effect)
    dispersion = np.ones(runs)
    if scenario.noise:
        histories = traffic(replace(scenario, plan=DAY), streams[3], min(HISTORIES, max(1, runs // 25)), worse=False)
        dispersion = np.resize(twin.measured(histories), runs)
    found = []
    for counts in (equal, worse):
        tempers = [dispersion, np.full(1, DEFAULT_DISPERSION), np.ones(1)]
        paths = dict(zip((OURS, ASSUMED, UNTEMPERED), twin.courses(counts, scenario.effect, tempers), strict=True))
        few = [int(paths[OURS].max(axis=1).argmax()), *range(checked - 1)]
        twin.agrees(counts, scenario, dispersion, paths[OURS], few)
        ours = {rule: twin.rolled_back(path) for rule, path in paths.items()}
        found.append(ours | _others(counts, scenario, checks))
    outcomes = {rule: _outcome(found[0][rule], found[1][rule]) for rule in RULES if rule in found[0]}
    return Result(scenario=scenario, dispersion=float(dispersion.mean()), outcomes=outcomes)


def _others(counts: Counts, scenario: Scenario, checks: int) -> dict[str, Array]:
    """Return in which minute each rule of others rolls back."""
    effect = scenario.effect
    series, length, half = counts.series(effect.middle), scenario.plan.length, _half_way(effect)
    canary = series[:2]
    every, end = range(1, length + 1), range(length, length + 1)
    found: dict[str, Callable[[], Array]] = {
        FLAGGER_BEST: lambda: rules.flagger(*canary, threshold=half, checks=5),
        ARGO_BEST: lambda: rules.argo(*canary, success=half, failure_limit=3),
        TUNED: lambda: rules.flagger(*canary, threshold=half, checks=checks),
        KAYENTA: lambda: rules.kayenta(series, looks=range(rules.FIRST_LOOK, length + 1)),
        KAYENTA_BEST: lambda: rules.kayenta(series, looks=end),
        PEEKED: lambda: rules.z_test(series, looks=every),
        ONCE: lambda: rules.z_test(series, looks=end),
        SEQUENTIAL: lambda: rules.group_sequential(series),
        ORACLE: lambda: rules.sprt(series, rate=effect.rate, odds_ratio=effect.odds_ratio),
    }
    if effect.kind == "errors":
        found[FLAGGER] = lambda: rules.flagger(*canary, threshold=0.01, checks=5)
        found[ARGO] = lambda: rules.argo(*canary, success=0.05)
    return {rule: one() for rule, one in found.items()}


def _half_way(effect: Effect) -> float:
    """Return the threshold between the two true rates, which nobody knows."""
    return (effect.rate + effect.worse_rate) / 2


def _tuned(counts: Counts, effect: Effect) -> int:
    """Return the fewest failed checks at which no more than α of these perfect canaries were rolled back."""
    requests, bad, _, _ = counts.series(effect.middle)
    runs, minutes = requests.shape
    return next(
        checks
        for checks in range(1, minutes + 2)
        if (rules.flagger(requests, bad, threshold=_half_way(effect), checks=checks) != NEVER).sum() <= ALPHA * runs
    )


def _outcome(equal: Array, worse: Array) -> Outcome:
    runs, detected = len(worse), int((worse != NEVER).sum())
    median = float(np.sort(worse)[(runs - 1) // 2]) + 1 if 2 * detected >= runs else None
    return Outcome(
        false_rollbacks=Share(count=int((equal != NEVER).sum()), runs=len(equal)),
        detected=Share(count=detected, runs=runs),
        median_minutes=median,
    )
