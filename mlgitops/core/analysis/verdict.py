"""The judge: from counts and a plan to Passed, Failed or Inconclusive, with the reason in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from mlgitops.core.analysis import words
from mlgitops.core.analysis.counts import Arm, ArmCounts, Newest, Sample, check_samples
from mlgitops.core.analysis.intervals import Estimate, estimate
from mlgitops.core.analysis.measures import Reading
from mlgitops.core.analysis.noise import Noise, NoiseSource, noise_of
from mlgitops.core.analysis.outcome import GRAVEST_FIRST, Outcome, Reason, worst
from mlgitops.core.analysis.planning import SMALLEST_RATE, planned_samples
from mlgitops.core.analysis.running import Look, Running
from mlgitops.core.configuration import MetricKind, MetricRule
from mlgitops.core.errors import InvalidInput, Problem

__all__ = [
    "CohortDetail",
    "MetricVerdict",
    "Outcome",
    "Reason",
    "Verdict",
    "begin",
    "conclude",
    "judge",
    "judge_metrics",
    "judge_running",
    "worst",
]

GROSS_EFFECT: Final = 20.0
"""Odds ratio that every step must be able to show by itself, however much was learnt in the steps before.

From a baseline of 1 % it is a rise to 17 %: what a new weight can break is broken grossly (a canary out of memory).
"""


_OUTCOMES: Final = {
    Reason.WORSE: Outcome.FAILED,
    Reason.EFFECT_RULED_OUT: Outcome.PASSED,
    Reason.PLANNED_SAMPLES_SEEN: Outcome.PASSED,
    Reason.INSUFFICIENT_DATA: Outcome.INCONCLUSIVE,
    Reason.METRIC_UNAVAILABLE: Outcome.INCONCLUSIVE,
}


@dataclass(frozen=True, kw_only=True)
class _Context:
    """What all metrics of one judgement share."""

    cohort: str
    noise: Noise
    alpha: float
    share: float
    """The metric's share of α; those of all metrics together are 1."""
    look: Look

    @property
    def threshold(self) -> float:
        """Log evidence at which the metric fails: its share of α."""
        return -math.log(self.alpha * self.share)

    @property
    def threshold_within(self) -> float:
        """Log evidence at which a metric's named effect is ruled out; all must pass, so none needs a share."""
        return math.log(1 / self.alpha)


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """Canary requests that one metric needs in one step, and how far the plan is."""

    planned: int
    least: int
    share: float


@dataclass(frozen=True, kw_only=True)
class CohortDetail:
    """One metric in one step cohort."""

    cohort: str
    """`<rollout number>-<step>`."""
    canary: ArmCounts
    """Requests of the step with a known outcome."""
    baseline: ArmCounts
    """The same of the concurrent baseline."""
    estimate: Estimate
    """How much worse the canary is in this step alone."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record."""
        return {
            "cohort": self.cohort,
            "canary": _plain(self.canary),
            "baseline": _plain(self.baseline),
            "estimate": self.estimate.to_mapping(),
        }


@dataclass(frozen=True, kw_only=True)
class MetricVerdict:
    """What one metric says."""

    rule: MetricRule
    """Which metric, what must be seen, and what is tolerated."""
    outcome: Outcome
    """Its own outcome, as if the step's time were over."""
    reason: Reason
    """Why."""
    words: str
    """The same for people: counts, difference, evidence, conclusion."""
    canary: ArmCounts
    """Over the whole rollout; for latency at the middle bound."""
    baseline: ArmCounts
    """The same of the concurrent baseline."""
    noise: Noise
    """What the log evidence was divided by, and who says so."""
    estimate: Estimate
    """How much worse the canary is, step by step, combined."""
    log_evidence: float
    """ln E against "no worse than the margin", now."""
    highest_log_evidence: float
    """The highest it ever was in this rollout, at least 0; this decides."""
    threshold: float
    """ln E at which the rollout fails: ln(1/α) for one metric, more for one that has a share of α."""
    log_evidence_within: float
    """ln E against "worse by the named effect or more", now."""
    threshold_within: float
    """ln E at which the named effect is ruled out: ln(1/α)."""
    log_evidence_within_step: float
    """ln E against "worse by the named effect or more" from the requests of this step alone."""
    planned_samples: int | None
    """Canary requests this step needs, with what the other steps saw, to show the named effect; None before any."""
    least_samples: int | None
    """Canary requests this step needs at least, the named effect being ruled out before."""
    step_samples: int
    """Canary requests with a known outcome in this step."""
    plan_share: float
    """Share of the requests planned for the named effect that all steps saw; 1 is enough, 0 before any."""
    cohorts: tuple[CohortDetail, ...]
    """The same counts by step."""
    bounds: tuple[float, ...] = ()
    """For latency: bucket bounds in seconds that it is judged at."""
    course: tuple[tuple[datetime, float], ...] = ()
    """(moment, ln E against "no worse than the margin") over the rollout, for a plot; not part of the mapping."""

    @property
    def kind(self) -> MetricKind:
        """What is counted."""
        return self.rule.kind

    @property
    def name(self) -> str:
        """What tells it from the other metrics."""
        return self.rule.name

    @property
    def can_pass_early(self) -> bool:
        """The step's own requests rule the named effect out, and are enough to show a gross one."""
        ruled_out = self.log_evidence_within_step >= self.threshold_within
        return ruled_out and self.outcome is Outcome.PASSED

    @property
    def anytime_p_value(self) -> float:
        """1/max E, at most 1: a p-value that holds however often and whenever one looks."""
        return math.exp(-self.highest_log_evidence)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record; no NaN, no infinity."""
        return {
            "kind": self.rule.kind,
            "slice": self.rule.slice,
            "outcome": str(self.outcome),
            "reason": str(self.reason),
            "words": self.words,
            "canary": _plain(self.canary),
            "baseline": _plain(self.baseline),
            "effect": self.rule.effect,
            "margin": self.rule.margin,
            "dispersion": self.noise.dispersion,
            "dispersionSource": str(self.noise.source),
            "dispersionBlocks": self.noise.blocks,
            "dispersionRollout": self.noise.rollout,
            "estimate": self.estimate.to_mapping(),
            "logEvidence": self.log_evidence,
            "highestLogEvidence": self.highest_log_evidence,
            "threshold": self.threshold,
            "anytimePValue": self.anytime_p_value,
            "logEvidenceWithin": self.log_evidence_within,
            "thresholdWithin": self.threshold_within,
            "logEvidenceWithinStep": self.log_evidence_within_step,
            "plannedSamples": self.planned_samples,
            "leastSamples": self.least_samples,
            "stepSamples": self.step_samples,
            "planShare": self.plan_share,
            "cohorts": [detail.to_mapping() for detail in self.cohorts],
            "bounds": list(self.bounds),
        }


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What all metrics of a plan say about one step of a rollout."""

    outcome: Outcome
    """The worst of the metrics'; Inconclusive before the step's time is over, unless one failed or it passes early."""
    reason: Reason
    """Why."""
    words: str
    """The same for the person on call."""
    cohort: str
    """The step that was judged."""
    alpha: float
    """Chance of ever failing a release that is no worse, over the whole rollout and all metrics."""
    dispersion: float
    """Noise that the evidence was tempered by; the highest of the metrics'."""
    dispersion_assumed: bool
    """For some metric the documented default was used because nothing says better."""
    elapsed_seconds: float
    """Time that the step has had its weight."""
    step_seconds: float
    """Its shortest time, unless it passes early."""
    metrics: tuple[MetricVerdict, ...]
    """One for each rule of the plan, in its order."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record; no NaN, no infinity."""
        return {
            "outcome": str(self.outcome),
            "reason": str(self.reason),
            "words": self.words,
            "cohort": self.cohort,
            "alpha": self.alpha,
            "dispersion": self.dispersion,
            "dispersionAssumed": self.dispersion_assumed,
            "elapsedSeconds": self.elapsed_seconds,
            "stepSeconds": self.step_seconds,
            "metrics": [metric.to_mapping() for metric in self.metrics],
        }


def judge(
    samples: Sequence[Sample],
    rules: Sequence[MetricRule],
    *,
    alpha: float,
    dispersion: float | None,
    cohort: str,
    elapsed_seconds: float,
    step_seconds: float,
    early: bool = False,
    history: Sequence[Sample] = (),
) -> Verdict:
    """Judge a step of a rollout on everything known of the rollout.

    Failed as soon as the evidence of one metric, over all cohorts, *ever* reached its threshold: the metrics share α by
    their weights, so a failed metric is to blame by itself. A metric passes when the rollout has seen the samples
    planned for the named effect, or its evidence rules that effect out; and the step itself has seen enough to show a
    gross one (`GROSS_EFFECT`). Missing data is Inconclusive, never Passed and never Failed.

    Args:
        samples: Every sample of this rollout, all cohorts, any order; late labels belong to the cohort of the request.
        rules: The plan's metrics, at least one.
        alpha: Chance of ever failing a release that is no worse, over the whole rollout.
        dispersion: Long-run variance over binomial variance, ≥ 1; None for `DEFAULT_DISPERSION`.
        cohort: The step being judged.
        elapsed_seconds: Time since traffic was seen to be split as the step says.
        step_seconds: Shortest time of the step.
        early: Whether the step passes before that time once its own requests rule every metric's effect out.
        history: Samples from before this rollout; their baseline arm shapes the bets and is never compared with.

    Raises:
        InvalidInput: Samples contradict themselves or the arguments are out of range; all problems at once.
    """
    _check(rules, alpha, dispersion, {"elapsed_seconds": elapsed_seconds, "step_seconds": step_seconds})
    metrics = judge_metrics(samples, rules, alpha=alpha, dispersion=dispersion, cohort=cohort, history=history)
    return conclude(
        metrics,
        alpha=alpha,
        cohort=cohort,
        elapsed_seconds=elapsed_seconds,
        step_seconds=step_seconds,
        early=early,
    )


def judge_metrics(
    samples: Sequence[Sample],
    rules: Sequence[MetricRule],
    *,
    alpha: float,
    dispersion: float | None,
    cohort: str,
    history: Sequence[Sample] = (),
) -> tuple[MetricVerdict, ...]:
    """Say what each metric says, whatever the time; the costly part of `judge`, which changes with the samples only.

    Args and errors are those of `judge`.
    """
    _check(rules, alpha, dispersion, {})
    running = begin(rules, dispersion=dispersion, history=history).after(samples)
    return judge_running(running, alpha=alpha, cohort=cohort)


def begin(
    rules: Sequence[MetricRule],
    *,
    dispersion: float | None,
    history: Sequence[Sample] = (),
    noises: Mapping[str, Noise] = MappingProxyType({}),
) -> Running:
    """Return the evidence of a rollout before anything came.

    Args:
        rules: See `judge`.
        dispersion: See `judge`; for the metrics that `noises` does not name.
        history: See `judge`.
        noises: By the metrics' names, the noise that was settled before the rollout began.
    """
    check_samples(history)
    return Running.begin(rules, [noises.get(rule.name) or noise_of(dispersion) for rule in rules], history)


def judge_running(running: Running, *, alpha: float, cohort: str) -> tuple[MetricVerdict, ...]:
    """Say what each metric says of the evidence so far, whatever the time.

    Args:
        running: Evidence with every sample of the rollout.
        alpha: See `judge`.
        cohort: See `judge`.
    """
    look, weights = running.look(), math.fsum(rule.weight for rule in running.rules)
    found = []
    for reading, rule, noise in zip(look.readings, running.rules, running.noises, strict=True):
        context = _Context(cohort=cohort, noise=noise, alpha=alpha, share=rule.weight / weights, look=look)
        found.append(_judge_metric(reading, rule, context))
    return tuple(found)


def conclude(
    metrics: Sequence[MetricVerdict],
    *,
    alpha: float,
    cohort: str,
    elapsed_seconds: float,
    step_seconds: float,
    early: bool = False,
    baseline: str = "",
) -> Verdict:
    """Combine what the metrics say with the time; the cheap part of `judge`.

    Args are those of `judge`, given to `judge_metrics` before; and `baseline`, words on what the canary was compared
    with where that is not the step's own baseline.

    Raises:
        InvalidInput: A time is negative or not finite.
    """
    _refuse(_wrong_times({"elapsed_seconds": elapsed_seconds, "step_seconds": step_seconds}))
    outcome, reason = _combined(metrics, time_over=elapsed_seconds >= step_seconds, early=early)
    said = words.of_verdict(
        reason,
        [(metric.rule, metric.outcome, metric.words) for metric in metrics],
        cohort=cohort,
        remaining_seconds=step_seconds - elapsed_seconds,
        noises=[(metric.rule, metric.noise) for metric in metrics],
    )
    return Verdict(
        outcome=outcome,
        reason=reason,
        words=f"{said} {baseline}" if baseline else said,
        cohort=cohort,
        alpha=alpha,
        dispersion=max(metric.noise.dispersion for metric in metrics),
        dispersion_assumed=any(metric.noise.source is NoiseSource.DEFAULT for metric in metrics),
        elapsed_seconds=elapsed_seconds,
        step_seconds=step_seconds,
        metrics=tuple(metrics),
    )


def _combined(metrics: Sequence[MetricVerdict], *, time_over: bool, early: bool) -> tuple[Outcome, Reason]:
    """Return the worst outcome with its gravest reason; a failure does not wait for the step's time."""
    outcome = worst(metric.outcome for metric in metrics)
    if not time_over and early and all(metric.can_pass_early for metric in metrics):
        return Outcome.PASSED, Reason.EFFECT_RULED_OUT
    if outcome is not Outcome.FAILED and not time_over:
        return Outcome.INCONCLUSIVE, Reason.STEP_TIME_NOT_OVER
    return outcome, min((one.reason for one in metrics if one.outcome is outcome), key=GRAVEST_FIRST.index)


def _judge_metric(reading: Reading, rule: MetricRule, context: _Context) -> MetricVerdict:
    of_step = reading.strata.get(context.cohort, (ArmCounts(), ArmCounts()))
    strata = list(reading.strata.values())
    canary, baseline = (sum(side, ArmCounts()) for side in zip(*strata, strict=True)) if strata else of_step
    needs = _needs(reading, rule, context)
    distorted = context.look.one_sided.get(rule.slice, "") if rule.kind == "labels" else ""
    missing = distorted or reading.missing or _silent_arm(context.look.newest, context.cohort)
    reason = Reason.METRIC_UNAVAILABLE if distorted else _reason(reading, of_step[0].total, needs, missing, context)
    found = estimate(strata, dispersion=context.noise.dispersion)
    sentences = (
        words.of_counts(rule, canary, baseline, reading.bound_seconds),
        words.of_estimate(found),
        words.of_evidence(reading.highest, context.threshold, rule.margin),
        words.of_conclusion(
            reason,
            rule,
            rate=_rate(reading),
            seen=of_step[0].total,
            needed=needs.planned if needs else None,
            within=reading.log_within,
            missing=missing,
        ),
    )
    return MetricVerdict(
        rule=rule,
        outcome=_OUTCOMES[reason],
        reason=reason,
        words=" ".join(sentence for sentence in sentences if sentence),
        canary=canary,
        baseline=baseline,
        noise=context.noise,
        estimate=found,
        log_evidence=reading.log_evidence,
        highest_log_evidence=reading.highest,
        threshold=context.threshold,
        log_evidence_within=reading.log_within,
        threshold_within=context.threshold_within,
        log_evidence_within_step=reading.within_by_cohort.get(context.cohort, 0.0),
        planned_samples=needs.planned if needs else None,
        least_samples=needs.least if needs else None,
        step_samples=of_step[0].total,
        plan_share=needs.share if needs else 0.0,
        cohorts=_details(reading, context.noise.dispersion),
        bounds=reading.bounds,
        course=tuple(reading.course),
    )


def _reason(reading: Reading, seen: int, needs: _Needs | None, missing: str, context: _Context) -> Reason:
    """Decide about one metric; the one place where evidence becomes a reason."""
    if reading.highest >= context.threshold:
        return Reason.WORSE
    if missing:
        return Reason.METRIC_UNAVAILABLE
    if needs is None:
        return Reason.INSUFFICIENT_DATA
    if reading.log_within >= context.threshold_within and seen >= needs.least:
        return Reason.EFFECT_RULED_OUT
    return Reason.PLANNED_SAMPLES_SEEN if seen >= needs.planned else Reason.INSUFFICIENT_DATA


def _needs(reading: Reading, rule: MetricRule, context: _Context) -> _Needs | None:
    """Return what the step needs, at the splits that the steps really had; None while an arm has nothing.

    Evidence adds up over the steps, and so does what was planned for it: each step brings the share that its requests
    are of the number planned at its split.
    """
    whole = {
        cohort: _planned(reading, rule.effect, rule.margin, split, context) for cohort, split in reading.strata.items()
    }
    of_step = whole.get(context.cohort)
    if of_step is None:
        return None
    # Without the margin: at high rates no number of requests could show a ratio of odds beyond a margin, and a canary
    # for which evidence rules the effect out would wait for ever.
    gross = _planned(reading, GROSS_EFFECT, 1.0, reading.strata[context.cohort], context)
    least = of_step if gross is None else min(of_step, gross)
    shares = {cohort: reading.strata[cohort][0].total / planned for cohort, planned in whole.items() if planned}
    others = math.fsum(share for cohort, share in shares.items() if cohort != context.cohort)
    return _Needs(planned=max(least, math.ceil(of_step * (1 - others))), least=least, share=math.fsum(shares.values()))


def _planned(
    reading: Reading, effect: float, margin: float, split: tuple[ArmCounts, ArmCounts], context: _Context
) -> int | None:
    canary, baseline = split
    if not canary.total or not baseline.total:
        return None
    return planned_samples(
        effect,
        _rate(reading),
        canary_share=canary.total / (canary.total + baseline.total),
        alpha=context.alpha * context.share,
        dispersion=context.noise.dispersion,
        margin=margin,
        bets=reading.processes,
    )


def _rate(reading: Reading) -> float:
    """Return the baseline rate that planning starts from, kept off both ends."""
    return min(max(reading.known.rate or 0.0, SMALLEST_RATE), 1 - SMALLEST_RATE)


def _silent_arm(newest: Newest, cohort: str) -> str:
    silent = [arm for arm in Arm if (cohort, arm) not in newest]
    return f"no sample of the {' or the '.join(silent)} in step {cohort}" if silent else ""


def _details(reading: Reading, dispersion: float) -> tuple[CohortDetail, ...]:
    return tuple(
        CohortDetail(
            cohort=cohort,
            canary=canary,
            baseline=baseline,
            estimate=estimate([(canary, baseline)], dispersion=dispersion),
        )
        for cohort, (canary, baseline) in reading.strata.items()
    )


def _plain(counts: ArmCounts) -> dict[str, int]:
    return {"total": counts.total, "bad": counts.bad}


def _check(rules: Sequence[MetricRule], alpha: float, dispersion: float | None, times: dict[str, float]) -> None:
    problems = []
    if not rules:
        problems.append(("metrics", "no metric judges the canary"))
    for place, rule in enumerate(rules):
        if not 1 <= rule.margin < rule.effect < math.inf:
            wrong = f"the effect {rule.effect} is not more than the margin {rule.margin}, or the margin is below 1"
            problems.append((f"metrics[{place}]", wrong))
        if not 0 < rule.weight < math.inf:
            problems.append((f"metrics[{place}]", f"the weight {rule.weight} is not more than 0"))
    if not 0 < alpha < 1:
        problems.append(("alpha", f"{alpha} is not between 0 and 1"))
    if dispersion is not None and not 1 <= dispersion < math.inf:
        problems.append(("dispersion", f"{dispersion} is not a finite number of at least 1"))
    _refuse(problems + _wrong_times(times))


def _wrong_times(times: dict[str, float]) -> list[tuple[str, str]]:
    return [(name, f"{value} is not a time") for name, value in times.items() if not 0 <= value < math.inf]


def _refuse(problems: list[tuple[str, str]]) -> None:
    if problems:
        raise InvalidInput([Problem(pointer=pointer, message=message) for pointer, message in problems])
