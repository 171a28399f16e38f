"""The evidence of thousands of rollouts at once: a twin, in arrays, of `mlgitops.core.analysis.measures`.

The judge replays one rollout in a millisecond; the benchmark needs half a million. The constants, mixtures and
thresholds are the judge's own, and `agrees` lets the judge itself judge some of the rollouts of every scenario: what it
says and what the twin says must be the same, or the benchmark ends there.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from benchmarks.canary.traffic import Array, Counts, Effect, Scenario
from mlgitops.core.analysis.counts import Arm, ArmCounts, Interval, Sample
from mlgitops.core.analysis.evidence import Mixture, centred_on
from mlgitops.core.analysis.measures import FROM_THE_START
from mlgitops.core.analysis.noise import DEFAULT_DISPERSION, noise_in, noise_of
from mlgitops.core.analysis.verdict import MetricVerdict, Outcome, begin, judge_running
from mlgitops.core.configuration import MetricRule

ALPHA: Final = 0.01
NEVER: Final = np.iinfo(np.int64).max
"""The minute in which a rollout that is not rolled back is rolled back."""
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Evidence:
    """ln E of many rollouts, minute by minute."""

    def __init__(
        self,
        runs: int,
        *,
        mixture: Mixture,
        steps: int = 1,
        bounds: int = 1,
        latency: bool = False,
    ) -> None:
        """Begin.

        Args:
            runs: How many rollouts.
            mixture: Alternatives and their weights.
            steps: Steps of the plan.
            bounds: E-processes that are averaged.
            latency: The first interval only teaches, as no bound can be chosen before it.
        """
        ratios = np.array(mixture.odds_ratios)
        self.above_one, self.logs = ratios - 1, np.log(ratios)
        self.starts = np.log(np.array(mixture.weights))
        self.latency = latency
        self.sums = np.zeros((bounds, steps, runs, len(ratios)))
        self.begun = np.zeros((bounds, steps, runs), dtype=bool)
        self.known = np.zeros((1 + bounds, runs))
        self.waiting = np.zeros((2, steps, 1 + bounds, runs))
        """Of the canary and the baseline: counts since the last interval of each step ended."""

    def take(self, step: int, canary: Array, baseline: Array) -> Array:
        """Take what one minute brought to one step; returns the baseline's counts of the intervals that ended.

        Args:
            step: From 0.
            canary: Requests, then bad ones at each bound; (1 + bounds, rollouts).
            baseline: The same of the baseline.
        """
        self.waiting[0, step] += canary
        self.waiting[1, step] += baseline
        ended = (self.waiting[0, step, 0] > 0) & (self.waiting[1, step, 0] > 0)
        (n_c, *bad_c), (n_b, *bad_b) = np.where(ended, self.waiting[:, step], 0.0)
        for bound, (x_c, x_b) in enumerate(zip(bad_c, bad_b, strict=True)):
            gains = self._gains(n_c, x_c, n_b, x_b, self.known[1 + bound])
            gains[~ended | (self.latency & (self.known[0] == 0))] = 0.0
            self.sums[bound, step] += gains
            self.begun[bound, step] |= gains.any(axis=-1)
        grown = np.where(ended, self.waiting[1, step], 0.0)
        self.waiting[:, step, :, ended] = 0.0
        return grown

    def learn(self, grown: Array) -> None:
        """Let what came in this minute inform the bets of the next."""
        self.known += grown

    def log_evidence(self, dispersion: Array) -> Array:
        """Return ln E of each rollout, tempered by a dispersion for each or for all."""
        processes = np.stack([self._of_process(bound, dispersion[:, None]) for bound in range(len(self.sums))], axis=-1)
        return _log_sum_exp(processes) - math.log(processes.shape[-1])

    def keep(self, which: Array) -> None:
        """Go on with some of the rollouts."""
        self.known = self.known[:, which]
        self.sums, self.begun = self.sums[:, :, which], self.begun[:, :, which]
        self.waiting = self.waiting[..., which]

    def _of_process(self, bound: int, dispersion: Array) -> Array:
        """Return ln of a mixture of bets, of which most begin with the first step and some anew with each later one."""
        begun = self.begun[bound]
        later, parts, left = np.zeros(self.sums.shape[2:]), [], np.ones(begun.shape[1])
        for step in reversed(range(len(begun))):
            later = later + self.sums[bound, step]
            share = FROM_THE_START if step == 0 else math.ldexp(1 - FROM_THE_START, -step)
            counts = begun.any(axis=0) if step == 0 else begun[step]
            if not counts.any():
                continue
            left = left - np.where(counts, share, 0.0)
            mixed = _log_sum_exp(self.starts + later / dispersion)
            parts.append(np.where(counts, math.log(share) + mixed, -math.inf))
        with np.errstate(divide="ignore"):
            parts.append(np.log(left))
        return _log_sum_exp(np.stack(parts, axis=-1))

    def _gains(self, n_c: Array, x_c: Array, n_b: Array, x_b: Array, known_bad: Array) -> Array:
        """Return what an interval makes of each bet, in logs; (rollouts, bets)."""
        known = self.known[0]
        unknown = (known < n_b) | (n_c == 0) | (n_b == 0)
        n_c, x_c, bad, total = n_c[:, None], x_c[:, None], (x_c + x_b)[:, None], (n_c + n_b)[:, None]
        share = n_c / np.maximum(total, 1)
        conditional = x_c * self.logs - bad * np.log1p(share * self.above_one)
        if unknown.all():
            return conditional
        rate, odds = (
            ((known_bad + 0.5) / (known + 1))[:, None],
            ((known - known_bad + 0.5) / (known_bad + 0.5))[:, None],
        )
        d = rate * self.above_one
        v = share * d / (1 + d)
        block = x_c * self.logs - n_c * np.log1p(d) - (total - bad) * np.log1p(-v) - bad * np.log1p(v * odds)
        return np.asarray(np.where(unknown[:, None], conditional, block))


def _log_sum_exp(logs: Array) -> Array:
    """Return ln Σ exp over the last axis; scipy's costs three times as much."""
    highest = logs.max(axis=-1)
    return np.asarray(highest + np.log(np.exp(logs - highest[..., None]).sum(axis=-1)))


def courses(counts: Counts, effect: Effect, dispersions: Sequence[Array]) -> list[Array]:
    """Return ln E of each rollout after each minute, (rollouts, minutes), tempered by each of the dispersions."""
    runs, minutes, steps = counts.canary.shape
    evidence = Evidence(
        runs,
        mixture=centred_on(effect.odds_ratio),
        steps=steps,
        bounds=len(effect.rates),
        latency=effect.kind == "latency",
    )
    found = [np.zeros((runs, minutes)) for _ in dispersions]
    for minute in range(minutes):
        grown = np.zeros_like(evidence.known)
        for step in range(steps):
            canary, baseline = (
                np.concatenate([total[None, :, minute, step], bad[:, :, minute, step]])
                for total, bad in ((counts.canary, counts.canary_bad), (counts.baseline, counts.baseline_bad))
            )
            if canary[0].any() or baseline[0].any():
                grown += evidence.take(step, canary, baseline)
        evidence.learn(grown)
        for path, dispersion in zip(found, dispersions, strict=True):
            path[:, minute] = evidence.log_evidence(dispersion)
    return found


def first(crossed: Array) -> Array:
    """Return the first minute in which something is true of each rollout; `NEVER` where it is of none."""
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1), NEVER)


def rolled_back(path: Array) -> Array:
    """Return in which minute the evidence reached 1/α."""
    return first(path >= -math.log(ALPHA))


def measured(history: Counts) -> Array:
    """Return φ as the judge measures it on each history; of several bounds the noisiest counts."""
    found = []
    for run in range(history.canary.shape[0]):
        by_bound = []
        for bound in range(history.canary_bad.shape[0]):
            minutes = [
                Interval(
                    at=_START + timedelta(minutes=minute),
                    cohort="",
                    canary=ArmCounts(total=int(n_c), bad=int(x_c)),
                    baseline=ArmCounts(total=int(n_b), bad=int(x_b)),
                )
                for minute, (n_c, x_c, n_b, x_b) in enumerate(
                    zip(*(one[run] for one in history.series(bound)), strict=True)
                )
            ]
            noise = noise_in(minutes)
            by_bound.append(DEFAULT_DISPERSION if noise is None else noise.dispersion)
        found.append(max(by_bound))
    return np.array(found)


def judged(counts: Counts, effect: Effect, run: int, dispersion: float) -> MetricVerdict:
    """Let the judge itself judge one rollout."""
    samples = _samples(counts, effect, run)
    evidence = begin(
        [MetricRule(kind=effect.kind, effect=effect.odds_ratio)], dispersion=noise_of(dispersion).dispersion
    )
    return judge_running(evidence.after(samples), alpha=ALPHA, cohort=samples[-1].cohort)[0]


def agrees(counts: Counts, scenario: Scenario, dispersion: Array, path: Array, runs: Sequence[int]) -> None:
    """Hold the twin to the judge.

    Raises:
        AssertionError: They do not say the same of a rollout.
    """
    for run in runs:
        verdict = judged(counts, scenario.effect, run, float(dispersion[run]))
        highest = max(0.0, float(path[run].max()))
        same = math.isclose(verdict.highest_log_evidence, highest, rel_tol=1e-7, abs_tol=1e-7)
        same &= (verdict.outcome is Outcome.FAILED) == (rolled_back(path[run : run + 1])[0] != NEVER)
        if not same:
            said = f"{verdict.outcome} at ln E = {verdict.highest_log_evidence}"
            raise AssertionError(f"{scenario.name}, rollout {run}: the judge says {said}, its twin ln E = {highest}")


def _samples(counts: Counts, effect: Effect, run: int) -> list[Sample]:
    found, sums = [], {}
    for minute in range(counts.canary.shape[1]):
        for step in range(counts.canary.shape[2]):
            for arm, total, bad in (
                (Arm.CANARY, counts.canary, counts.canary_bad),
                (Arm.BASELINE, counts.baseline, counts.baseline_bad),
            ):
                new = np.array([total[run, minute, step], *bad[:, run, minute, step]])
                kept = sums[step, arm] = sums.get((step, arm), np.zeros(len(new))) + new
                if kept[0] or new[0]:
                    found.append(_sample(effect, minute, step, arm, [int(one) for one in kept]))
    return found


def _sample(effect: Effect, minute: int, step: int, arm: Arm, counts: Sequence[int]) -> Sample:
    total, *bad = counts
    at, cohort = _START + timedelta(minutes=minute), f"7-{step + 1}"
    if effect.kind == "labels":
        return Sample(at=at, cohort=cohort, arm=arm, total=total, failed=0, labelled=total, incorrect=bad[0])
    if effect.kind == "latency":
        bounds = tuple((0.1 * 2**place, total - slow) for place, slow in enumerate(bad))
        return Sample(at=at, cohort=cohort, arm=arm, total=total, failed=0, latency=bounds)
    return Sample(at=at, cohort=cohort, arm=arm, total=total, failed=bad[0])
