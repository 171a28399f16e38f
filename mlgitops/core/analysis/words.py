"""What the judge found, in English for the person on call."""

import math
from collections.abc import Sequence
from typing import Final

from mlgitops.core.analysis.counts import ArmCounts
from mlgitops.core.analysis.intervals import Estimate
from mlgitops.core.analysis.noise import BLOCK_MINUTES, Noise, NoiseSource
from mlgitops.core.analysis.outcome import Outcome, Reason
from mlgitops.core.configuration import MetricKind, MetricRule

NAMES: Final[dict[MetricKind, str]] = {
    "errors": "errors",
    "latency": "latency",
    "labels": "labelled correctness",
}
_HEADLINES: Final = {
    Reason.WORSE: "Failed: the canary is worse",
    Reason.EFFECT_RULED_OUT: "Passed",
    Reason.PLANNED_SAMPLES_SEEN: "Passed",
    Reason.INSUFFICIENT_DATA: "Undecided: too little data",
    Reason.METRIC_UNAVAILABLE: "Undecided: a metric cannot be read",
    Reason.STEP_TIME_NOT_OVER: "Undecided: the step's time is not over",
}


def name_of(rule: MetricRule) -> str:
    """Return what people call a metric: `errors`, or `errors of slice mobile`."""
    return NAMES[rule.kind] if rule.slice is None else f"{NAMES[rule.kind]} of slice {rule.slice}"


def of_counts(rule: MetricRule, canary: ArmCounts, baseline: ArmCounts, bound_seconds: float | None = None) -> str:
    """Say what both arms met, like `Of 412 labelled canary requests 61 were wrong (14.8 %), against 3.1 % of 3,720`."""
    kind, within = rule.kind, "" if rule.slice is None else f" in slice {rule.slice}"
    labelled = "labelled " if kind == "labels" else ""
    if canary.rate is None or baseline.rate is None:
        silent = "canary" if canary.rate is None else "baseline"
        return f"No {labelled}request of the {silent}{within} yet."
    took = "took longer" if bound_seconds is None else f"took longer than {seconds(bound_seconds)}"
    went = {"errors": "failed", "latency": took, "labels": "was wrong" if canary.bad == 1 else "were wrong"}[kind]
    return (
        f"Of {canary.total:,} {labelled}canary requests{within} {canary.bad:,} {went} ({percent(canary.rate)}), "
        f"against {percent(baseline.rate)} of {baseline.total:,} on the baseline."
    )


def of_estimate(found: Estimate) -> str:
    """Say how much worse, with the interval; empty without data."""
    if found.difference is None or found.lower is None or found.upper is None:
        return ""
    middle, low, high = (points(value) for value in (found.difference, found.lower, found.upper))
    return f"Difference, step by step: {middle} points (95 % interval {low} to {high})."


def of_evidence(highest: float, threshold: float, margin: float) -> str:
    """Say how strong the evidence against the canary has been, and how strong it would have to be."""
    claim = "no worse" if margin == 1 else f"at most {margin:g} times the odds"
    reached = f"reached {odds(highest)}" if highest > 0 else "never grew"
    return f"Evidence against “{claim}” {reached}, threshold {odds(threshold)}."


def of_conclusion(
    reason: Reason,
    rule: MetricRule,
    *,
    rate: float,
    seen: int,
    needed: int | None,
    within: float,
    missing: str = "",
) -> str:
    """Say what follows.

    Args:
        reason: Why the metric came out as it did.
        rule: Its rule.
        rate: Baseline rate that planning started from.
        seen: Canary requests with a known outcome in this step.
        needed: Of them needed; None while unknown.
        within: ln E against "worse by the named effect".
        missing: Why the metric cannot be read.
    """
    worse = rule.effect * rate / (1 - rate + rule.effect * rate)
    effect = f"a rise from {percent(rate)} to {percent(worse)}"
    labelled = "labelled " if rule.kind == "labels" else ""
    match reason:
        case Reason.WORSE:
            return "The canary is worse."
        case Reason.EFFECT_RULED_OUT:
            return f"Odds {rule.effect:g} times as high are ruled out ({odds(within)})."
        case Reason.PLANNED_SAMPLES_SEEN:
            return (
                f"This step saw {seen:,} {labelled}canary requests of {needed:,} planned: "
                f"{effect} would have shown with about 90 % chance."
            )
        case Reason.METRIC_UNAVAILABLE:
            return f"It cannot be read: {missing}."
        case _ if needed is None:
            return f"This step has no {labelled}request of both sides yet."
        case _:
            return f"This step saw {seen:,} of about {needed:,} {labelled}canary requests needed to see {effect}."


def of_verdict(
    reason: Reason,
    metrics: Sequence[tuple[MetricRule, Outcome, str]],
    *,
    cohort: str,
    remaining_seconds: float,
    noises: Sequence[tuple[MetricRule, Noise]],
) -> str:
    """Say it all: the headline, the metrics with the worst first, and what was assumed.

    Args:
        reason: Why the verdict came out as it did.
        metrics: Rule, outcome and words of each metric.
        cohort: The step that was judged.
        remaining_seconds: Time of the step that is left; negative once it is over.
        noises: Rule of each metric, and the noise it was judged by.
    """
    headline = f"{_HEADLINES[reason]} (step {cohort})"
    if reason is Reason.EFFECT_RULED_OUT and remaining_seconds > 0:
        headline += f", {seconds(remaining_seconds)} early: what the plan watches for is ruled out"
    if reason is Reason.STEP_TIME_NOT_OVER:
        headline += f", {seconds(max(0.0, remaining_seconds))} to go"
    if reason is Reason.WORSE:
        metrics = [metric for metric in metrics if metric[1] is Outcome.FAILED]
    parts = [headline + "."]
    parts += [f"{name_of(rule).capitalize()}: {text}" for rule, _, text in metrics]
    return " ".join([*parts, *_of_noises(noises)])


def _of_noises(noises: Sequence[tuple[MetricRule, Noise]]) -> list[str]:
    """Say where the dispersions come from; nothing of those that the plan says."""
    told = []
    for rule, noise in noises:
        if noise.source is NoiseSource.HISTORY:
            hours = seconds(60.0 * BLOCK_MINUTES * (noise.blocks or 0))
            of = "two groups of one version" if noise.rollout is None else f"the twins of rollout {noise.rollout}"
            what = f"{hours} of {of} show a dispersion of {noise.dispersion:.3g}"
            told.append(f"Noise of {name_of(rule)}: {what}.")
    assumed = [(rule, noise) for rule, noise in noises if noise.source is NoiseSource.DEFAULT]
    if assumed:
        of = "" if len(assumed) == len(noises) else f" of {' and '.join(name_of(rule) for rule, _ in assumed)}"
        told.append(
            f"Noise{of}: no history says how much, so a dispersion of {assumed[0][1].dispersion:g} was assumed."
        )
    return told


def percent(rate: float) -> str:
    """Return a rate as percent with as many digits as tell something: `14.8 %`, `0.031 %`, `0 %`."""
    value = rate * 100
    if value == 0 or value >= 99.95:
        return f"{value:.0f} %" if value in (0, 100) else f"{value:.2f} %"
    digits = 1 if value >= 1 else 1 - math.floor(math.log10(value))
    return f"{value:.{digits}f} %"


def points(rate: float) -> str:
    """Return a difference of rates in percentage points, signed: `+11.7`, `-0.35`, `0`."""
    text = f"{rate * 100:+.{1 if abs(rate) >= 0.01 else 2}f}"
    return "0" if float(text) == 0 else text


def odds(log: float) -> str:
    """Return an e-value as odds: `23,000 to 1`, `more than 10^12 to 1`, `less than 1 to 100`."""
    power = log / math.log(10)
    if power >= 9:
        return f"more than 10^{math.floor(power)} to 1"
    if power <= -2:
        return "less than 1 to 100"
    value = math.exp(log)
    if value >= 10:
        rounded = round(value, 1 - math.floor(math.log10(value)))
        return f"{rounded:,.0f} to 1"
    return f"{value:.2g} to 1"


def seconds(value: float) -> str:
    """Return a time: `250 ms`, `2.5 s`, `10 min`, `3 h`."""
    if value < 1:
        return f"{value * 1000:g} ms"
    if value < 120:
        return f"{value:.3g} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h"
