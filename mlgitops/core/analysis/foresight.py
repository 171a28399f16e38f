"""What the steps of a plan need, and what traffic brings them: said before anything is rolled out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mlgitops.core.analysis.measures import BOUNDS
from mlgitops.core.analysis.noise import DEFAULT_DISPERSION
from mlgitops.core.analysis.planning import SMALLEST_RATE, planned_samples
from mlgitops.core.analysis.verdict import GROSS_EFFECT
from mlgitops.core.configuration import MetricKind, MetricRule, Plan, Step

DEFAULT_RATES: Final[Mapping[MetricKind, float]] = {"errors": SMALLEST_RATE, "latency": 0.01, "labels": 0.1}
"""Shares of bad outcomes of a baseline of which nothing is known; latency is judged around the p99, so 1 % is slow."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one metric needs in one step."""

    step: int
    """Number of the step, from 1."""
    weight_percent: int
    """The canary's share of the requests."""
    rule: MetricRule
    """The metric."""
    expected: float
    """Requests of the canary with a known outcome in the step's own time."""
    needed: int
    """Such requests without which the step cannot pass for their number, given what the steps before saw."""
    seconds: float
    """Time after which the step has them; the step's own where that is enough."""
    waits: bool
    """The step's own time is not enough."""
    held: bool
    """Nor is its extension: a person would be asked."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a model's traffic beside its speed."""

    rates: Mapping[MetricKind, float] = field(default_factory=dict)
    """The baseline's share of bad outcomes by metric; `DEFAULT_RATES` where there is none."""
    labelled: float = 1.0
    """Share of the requests whose label comes; delays are not counted."""
    slices: Mapping[str, float] = field(default_factory=dict)
    """By slice, its share of the requests; all of them where nobody says, so in truth it needs longer."""
    dispersions: Mapping[str, float] = field(default_factory=dict)
    """By the metrics' names, the noise they are judged by; else the plan's word, or the default."""

    def rate(self, kind: MetricKind) -> float:
        """Return the baseline's share of bad outcomes."""
        return {**DEFAULT_RATES, **self.rates}[kind]

    def share(self, rule: MetricRule) -> float:
        """Return the share of the requests that tell a metric something."""
        of_slice = self.slices.get(rule.slice, 1.0) if rule.slice else 1.0
        return of_slice * (self.labelled if rule.kind == "labels" else 1.0)


NOTHING: Final = Known()
"""Nothing is known."""


def needs(plan: Plan, requests_per_second: float, known: Known = NOTHING) -> list[Need]:
    """Return what each metric needs in each step, as far as the plan gets: nothing follows a step that is held.

    By the number of planned requests alone: a step whose evidence rules the effect out passes somewhat earlier.

    Args:
        plan: The plan.
        requests_per_second: Of both arms together.
        known: What else is known of the traffic.
    """
    seen = dict.fromkeys((rule.name for rule in plan.metrics), 0.0)
    found: list[Need] = []
    for number, step in enumerate(plan.judged_steps, start=1):
        per_second = requests_per_second * step.weight_percent / 100
        whole = {rule.name: _planned(plan, rule, step, known) for rule in plan.metrics}
        of_step = []
        for rule in plan.metrics:
            least = min(whole[rule.name], _planned(plan, rule, step, known, gross=True))
            needed = max(least, math.ceil(whole[rule.name] * (1 - seen[rule.name])))
            of_step.append(_need(plan, number, rule, per_second * known.share(rule), needed))
        found += of_step
        if any(one.held for one in of_step):
            break
        lasts = max(one.seconds for one in of_step)
        for rule in plan.metrics:
            seen[rule.name] += lasts * per_second * known.share(rule) / whole[rule.name]
    return found


def slowest(of_step: Sequence[Need]) -> Need:
    """Return the need that a step waits longest for."""
    return max(of_step, key=lambda one: one.seconds)


def _need(plan: Plan, number: int, rule: MetricRule, per_second: float, needed: int) -> Need:
    step = plan.judged_steps[number - 1]
    seconds = max(step.seconds, needed / per_second)
    longest = step.seconds + (plan.extend_seconds if plan.insufficient_data == "wait" else 0.0)
    return Need(
        step=number,
        weight_percent=step.weight_percent,
        rule=rule,
        expected=per_second * step.seconds,
        needed=needed,
        seconds=seconds,
        waits=seconds > step.seconds,
        held=seconds > longest,
    )


def _planned(plan: Plan, rule: MetricRule, step: Step, known: Known, *, gross: bool = False) -> int:
    """Return what one step alone would need for the named effect, or for a gross one; as the judge plans."""
    return planned_samples(
        GROSS_EFFECT if gross else rule.effect,
        min(max(known.rate(rule.kind), SMALLEST_RATE), 1 - SMALLEST_RATE),
        canary_share=step.weight_percent / 100,
        alpha=plan.alpha * rule.weight / math.fsum(one.weight for one in plan.metrics),
        dispersion=known.dispersions.get(rule.name) or plan.dispersion or DEFAULT_DISPERSION,
        margin=1.0 if gross else rule.margin,
        bets=BOUNDS if rule.kind == "latency" else 1,
    )
