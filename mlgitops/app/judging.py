"""The judge's verdict on a rollout under way, and the record that is kept of a decision."""

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from threading import Lock
from typing import Any, Final, get_args

from mlgitops.app.context import View, World
from mlgitops.app.moves import Record, now
from mlgitops.core.analysis import limits, twins, words
from mlgitops.core.analysis.counts import Sample, latest
from mlgitops.core.analysis.noise import DEFAULT_DISPERSION, Noise, NoiseSource, noise_of
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import MetricVerdict, Verdict, begin, conclude, judge_running
from mlgitops.core.configuration import Limits, MetricKind, MetricRule, judged_steps
from mlgitops.core.driver import alone, cohort, twins_cohort
from mlgitops.core.errors import InvalidInput
from mlgitops.core.events import stamp
from mlgitops.core.rollout import Rollout, RolloutPhase

PATH_POINTS = 120
"""Points of evidence and traffic kept in a decision record, for its plots."""


REMEMBERED: Final = 4_096
"""Judged steps whose metrics are kept in the process."""
REMEMBERED_SAMPLES: Final = 400_000
"""Samples that they rest on together, at most: the steps looked at longest ago go first."""


class BaselineKind(enum.StrEnum):
    """When the baseline answered; published, so a name never changes its meaning. Never in former times alone."""

    STEP = "step"
    """Beside the release, in the steps."""
    HOLD_BACK = "hold-back"
    """Beside the release, in the steps and as what is held back through its probation."""
    FORMER_STEPS = "former-steps"
    """Beside the release, in the steps that are over; only late labels of their requests still come."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a release was compared with: requests of the same steps, answered by the champion at the same time."""

    kind: BaselineKind
    rollout: int | None
    """The champion's rollout; None for a first release."""
    percent: int
    """Percent of the requests that it answers now."""

    @property
    def words(self) -> str:
        """The same for people, where it is not the step's own."""
        if self.kind is BaselineKind.HOLD_BACK:
            return (
                f"Probation: its baseline is rollout {self.rollout}, which {self.percent} % of the requests go on to."
            )
        if self.kind is BaselineKind.FORMER_STEPS:
            return (
                f"Its baseline is rollout {self.rollout} as it answered beside it in the steps: late labels of these."
            )
        return ""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record."""
        return {"kind": str(self.kind), "rollout": self.rollout, "percent": self.percent}


@dataclass(frozen=True, kw_only=True)
class Judgement(Verdict):
    """A verdict, with the very samples that it rests on."""

    samples: tuple[Sample, ...]
    """Every sample of the rollout when it was judged."""
    baseline: Baseline
    """What the release was compared with."""


def baseline_of(rollout: Rollout) -> Baseline:
    """Return what a rollout is compared with where it is now; never with former times, in which other requests came."""
    champion = rollout.proposal.champion
    if rollout.phase in (RolloutPhase.COMPLETING, RolloutPhase.LIVE):
        return Baseline(kind=BaselineKind.FORMER_STEPS, rollout=champion, percent=0)
    kind = BaselineKind.HOLD_BACK if rollout.on_probation else BaselineKind.STEP
    return Baseline(kind=kind, rollout=champion, percent=100 - rollout.proposal.weights[rollout.step])


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What was known of a rollout when it was judged last."""

    samples: tuple[Sample, ...]
    running: Running
    cohort: str
    metrics: tuple[MetricVerdict, ...]


class _Memory:
    """The evidence of rollouts, kept in the process: a pass asks several times, and a look costs what is new."""

    def __init__(self) -> None:
        self._judged: OrderedDict[tuple[object, ...], _Judged] = OrderedDict()
        self._samples = 0
        self._one_at_a_time = Lock()

    def metrics(
        self,
        key: tuple[object, ...],
        samples: tuple[Sample, ...],
        beginning: Callable[[], Running],
        *,
        of_step: str,
        alpha: float,
    ) -> tuple[MetricVerdict, ...]:
        """Return what the metrics say of these samples: at once of the same, of more by what came, else anew."""
        with self._one_at_a_time:
            known = self._judged.pop(key, None)
            self._samples += len(samples) - (len(known.samples) if known else 0)
            if known is None or known.cohort != of_step or known.samples != samples:
                running = _added(known, samples, beginning)
                metrics = judge_running(running, alpha=alpha, cohort=of_step)
                known = _Judged(samples=samples, running=running, cohort=of_step, metrics=metrics)
            self._judged[key] = known
            while len(self._judged) > 1 and (len(self._judged) > REMEMBERED or self._samples > REMEMBERED_SAMPLES):
                _, gone = self._judged.popitem(last=False)
                self._samples -= len(gone.samples)
            return known.metrics

    def clear(self) -> None:
        """Forget everything."""
        with self._one_at_a_time:
            self._judged.clear()
            self._samples = 0


def _added(known: _Judged | None, samples: tuple[Sample, ...], beginning: Callable[[], Running]) -> Running:
    """Return the evidence of samples, going on from what is known where they only grew."""
    # The samples themselves, not their number and time: another world in this process may have the same names.
    if known is not None and samples[: len(known.samples)] == known.samples:
        try:
            return known.running.after(samples[len(known.samples) :])
        except InvalidInput:
            pass  # one came late, or contradicts another; which it is, all of them together say
    return beginning().after(samples)


_remembered = _Memory()


def judge(world: World, rollout: Rollout) -> Judgement:
    """Judge the step a rollout is at, on everything its requests have shown so far.

    Costs next to nothing while no sample came: a pass asks several times, and most passes see nothing new.

    Raises:
        Unavailable: The metrics cannot be asked.
    """
    proposal, plan = rollout.proposal, rollout.proposal.plan
    analysing = rollout.phase is RolloutPhase.ANALYSING
    elapsed = (now(world) - rollout.since).total_seconds() if analysing else 0.0
    every = world.metrics.samples(proposal.environment, proposal.model, rollout.number)
    apart = (twins_cohort(rollout), alone(rollout))  # where it is compared with itself, and with nobody
    samples = tuple([one for one in every if one.cohort not in apart])
    baseline = baseline_of(rollout)
    verdict = conclude(
        _metrics(rollout, samples),
        alpha=plan["alpha"],
        cohort=cohort(rollout, rollout.step + 1),
        elapsed_seconds=max(0.0, elapsed),
        step_seconds=judged_steps(plan)[rollout.step]["seconds"],
        early=plan.get("early", False) and not rollout.on_probation,
        baseline=baseline.words,
    )
    values = {one.name: getattr(verdict, one.name) for one in fields(verdict)}
    return Judgement(**values, samples=samples, baseline=baseline)


def _metrics(rollout: Rollout, samples: tuple[Sample, ...]) -> tuple[MetricVerdict, ...]:
    proposal, plan = rollout.proposal, rollout.proposal.plan
    alpha, dispersion = plan["alpha"], plan.get("dispersion")
    noises = {name: Noise.from_mapping(values) for name, values in rollout.noise.items()}
    settled = tuple(sorted(noises.items()))
    key = (proposal.environment, proposal.model, rollout.number, rules(plan), alpha, dispersion, settled)
    return _remembered.metrics(
        key,
        samples,
        lambda: begin(rules(plan), dispersion=dispersion, noises=noises),
        of_step=cohort(rollout, rollout.step + 1),
        alpha=alpha,
    )


def beyond_limits(world: World, rollout: Rollout) -> str:
    """Say which absolute limit a release without a champion is beyond; empty when none."""
    proposal, plan = rollout.proposal, rollout.proposal.plan
    return limits.beyond_limits(
        world.metrics.samples(proposal.environment, proposal.model, rollout.number),
        Limits(**plan.get("limits", {})),
        alpha=plan["alpha"],
        dispersion=plan.get("dispersion") or DEFAULT_DISPERSION,
    )


def settled_noise(plan: Mapping[str, Any], champion: Rollout) -> dict[str, Any]:
    """Return the noise that a rollout is to be judged by, as its record keeps it: known before it begins.

    Args:
        plan: Its plan, whose word goes first.
        champion: The LIVE rollout, whose twins may have shown the noise of what serves.
    """
    measured, found = champion.measured_noise, {}
    for rule in rules(plan):
        noise = noise_of(plan.get("dispersion"))
        if noise.source is NoiseSource.DEFAULT and rule.name in measured:
            noise = replace(Noise.from_mapping(measured[rule.name]), rollout=champion.number)
        found[rule.name] = noise.to_mapping()
    return found


def twins_noise(world: World, rollout: Rollout) -> dict[str, Any]:
    """Return what the twins of a rollout's release showed, as its record keeps it; empty where it is too little.

    Every kind of metric is measured, as later plans may judge others.

    Raises:
        Unavailable: The metrics cannot be asked.
    """
    proposal = rollout.proposal
    every = world.metrics.samples(proposal.environment, proposal.model, rollout.number)
    samples = [one for one in every if one.cohort == twins_cohort(rollout)]
    wanted = {one.name: one for one in (*map(_rule_of, get_args(MetricKind)), *rules(proposal.plan))}
    return {name: noise.to_mapping() for name, noise in twins.noises(samples, tuple(wanted.values())).items()}


def _rule_of(kind: MetricKind) -> MetricRule:
    return MetricRule(kind=kind, effect=2)


def rules(plan: Any) -> tuple[MetricRule, ...]:
    """Return the metrics of a plan."""
    return tuple(map(MetricRule.from_mapping, plan["metrics"]))


def record(world: World, view: View, rollout: Rollout, verdict: Judgement) -> Record:
    """Return the record of a decision: what was seen, and why it was enough."""
    proposal, name = rollout.proposal, next_name(view, rollout, str(verdict.outcome))
    values = {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "DecisionRecord",
        "name": name,
        "at": stamp(now(world)),
        "environment": proposal.environment,
        "model": proposal.model,
        "rollout": rollout.number,
        "release": rollout.release,
        "champion": proposal.champion,
        "baseline": verdict.baseline.to_mapping(),
        "weightPercent": proposal.weights[rollout.step],
        "verdict": verdict.to_mapping(),
        "counts": [{**one.to_mapping(), "at": stamp(one.at)} for _, one in sorted(latest(verdict.samples).items())],
        "evidence": {
            one.name: [[stamp(at), round(log, 3)] for at, log in thinned(one.course) if math.isfinite(log)]
            for one in verdict.metrics
        },
    }
    return Record(name=name, values=values, words=_markdown(rollout, verdict))


def next_name(view: View, rollout: Rollout, outcome: str) -> str:
    """Return the name of a rollout's next decision record."""
    kept = view.ledger.decision_names(rollout.proposal.environment, rollout.proposal.model)
    count = sum(one.startswith(f"{rollout.number:05}-") for one in kept) + 1
    return f"{rollout.number:05}-{count:02}-{outcome}".lower()


def thinned(points: Sequence[tuple[datetime, float]]) -> list[tuple[datetime, float]]:
    """Return some of the points for a plot: the highest of each stretch, for that is what decides, and the last."""
    stride = -(-len(points) // PATH_POINTS) or 1
    stretches = (points[start : start + stride] for start in range(0, len(points), stride))
    highest = [max(stretch, key=lambda point: point[1]) for stretch in stretches]
    return highest if highest[-1:] == [*points[-1:]] else [*highest, points[-1]]


def _markdown(rollout: Rollout, verdict: Verdict) -> str:
    proposal = rollout.proposal
    head = (
        f"# {verdict.outcome}: release {rollout.release} in {proposal.environment}, "
        f"rollout {rollout.number}, step {rollout.step + 1} at {proposal.weights[rollout.step]} %\n"
    )
    titles = "metric", "canary", "baseline", "difference (95 %)", "evidence", "needed", "p at any time", "noise"
    lines = [head, verdict.words, "", _row(titles), _row(["---"] * len(titles))]
    return "\n".join([*lines, *map(_metric_row, verdict.metrics)]) + "\n"


def _metric_row(one: MetricVerdict) -> str:
    canary, baseline = (f"{side.bad} of {side.total}" for side in (one.canary, one.baseline))
    found = one.estimate
    difference = "unknown"
    if found.difference is not None and found.lower is not None and found.upper is not None:
        middle, low, high = map(words.points, (found.difference, found.lower, found.upper))
        difference = f"{middle} ({low} to {high}) points"
    evidence, needed = map(words.odds, (one.highest_log_evidence, one.threshold))
    noise = f"{one.noise.dispersion:.3g} ({one.noise.source})"
    return _row([one.name, canary, baseline, difference, evidence, needed, f"{one.anytime_p_value:.2g}", noise])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
