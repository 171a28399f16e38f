"""What a plan would do with a model's traffic: measured where rollouts were judged, asked for where none was."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mlgitops.app.context import Context, View, environment_of, look
from mlgitops.app.judging import settled_noise
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.evidence import wilson
from mlgitops.core.analysis.foresight import DEFAULT_RATES, Known, Need, needs
from mlgitops.core.analysis.measures import SLOW_SHARE
from mlgitops.core.analysis.noise import Noise, noise_of
from mlgitops.core.analysis.simulation import LARGEST_EFFECT, Course, Fate, Harm, Traffic, simulate
from mlgitops.core.configuration import Environment, MetricKind, Plan
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.rollout import Rollout

Values = dict[str, Any]
GOOD_RUNS: Final = 240
"""Rollouts of good releases over all plans, where nobody says how many: a false rollback is rare, so it takes many."""
FEWEST_GOOD_RUNS: Final = 80
HARM_RUNS: Final = 120
"""Rollouts over all plans and harms, where nobody says how many."""
FEWEST_RUNS: Final = 20
RECORDS: Final = 30
"""Newest decision records that traffic is measured from."""
KINDS: Final[tuple[MetricKind, ...]] = ("errors", "latency", "labels")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person says instead of what was measured, and what they want to know."""

    requests_per_second: float | None = None
    """Of both arms together; None for what was measured, or is expected."""
    rates: Mapping[MetricKind, float] = field(default_factory=dict)
    """The baseline's shares of bad outcomes that are not as measured."""
    effects: Sequence[tuple[str, float]] = ()
    """(metric as `MetricRule.name`, odds ratio) of harms that are simulated beside those that a plan names."""
    slices: Mapping[str, float] = field(default_factory=dict)
    """By slice, its share of the requests where it is not as measured."""
    labelled_share: float | None = None
    """Share of the requests whose label comes; None for what was measured."""
    label_delay_seconds: float = 0.0
    """Mean time that a label takes."""
    noise: float = 0.0
    """Coefficient of variation of each arm's rates."""
    runs: int | None = None
    """Rollouts of each harm; None for as many as take a few seconds."""
    seed: int = 1
    """The same seed, the same answer."""


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What decision records tell of a model's traffic."""

    requests_per_second: float | None = None
    rates: Mapping[MetricKind, float] = field(default_factory=dict)
    labelled_share: float | None = None
    slices: Mapping[str, float] = field(default_factory=dict)
    evaluated: float | None = None
    """The champion's share of wrong predictions when it was evaluated."""


@dataclass(frozen=True, kw_only=True)
class _Foreseen:
    """What all plans are simulated with."""

    unit: Environment
    champion: Rollout | None
    asked: Asked
    traffic: Traffic
    plans: int

    def noises(self, plan: Plan) -> dict[str, Noise]:
        """Return the noise that a rollout of a plan would be judged by, settled as reconcile settles it."""
        if self.champion is None:
            return {rule.name: noise_of(plan.dispersion) for rule in plan.metrics}
        settled = settled_noise(plan.to_mapping(), self.champion)
        return {name: Noise.from_mapping(values) for name, values in settled.items()}


def foresee(
    context: Context,
    model: str | None,
    environment: str | None,
    asked: Asked,
    others: Sequence[tuple[str | None, Plan]] = (),
) -> Values:
    """Return what the plan of an environment would do, and what others would.

    Args:
        context: The outside world; only the environment repository is read.
        model: The model; None where none was submitted yet, so that nothing is measured.
        environment: Where; None for the last one.
        asked: What is known better, and what is wanted.
        others: (file, plan) of plans to compare with; no file where `environments.yaml` has it.

    Returns:
        `model`, `environment`, `seed`, `traffic` (with the source of each number), and `plans`, each with
        `name`, `file`, `needs` of its steps and `scenarios`; times in seconds, shares between 0 and 1.

    Raises:
        NotFound: There is no such model or environment.
        InvalidInput: Nothing says how much traffic there is, or what was asked cannot be.
    """
    view = look(context)
    unit = _unit(view, model, environment)
    state = view.ledger.state(unit.name, model) if model else None
    plans = [(None, unit.plan), *others]
    _check_effects(asked, [plan for _, plan in plans])
    told, traffic = _traffic(asked, _measured(view, unit.name, model, state) if state and model else _Measured(), unit)
    _check_slices(traffic, [plan for _, plan in plans], unit.name)
    shared = _Foreseen(
        unit=unit, champion=state.live if state else None, asked=asked, traffic=traffic, plans=len(plans)
    )
    harms = sum(len(_harms(plan, asked)) - 1 for _, plan in plans)
    return {
        "model": model,
        "environment": unit.name,
        "seed": asked.seed,
        "traffic": told,
        "plans": [_plan(file, plan, shared, harms) for file, plan in plans],
    }


def _check_effects(asked: Asked, plans: Sequence[Plan]) -> None:
    known = {rule.name for plan in plans for rule in plan.metrics}
    problems = [
        f"no plan here judges {name}, so nothing would find it; known: {', '.join(sorted(known))}"
        for name, _ in asked.effects
        if name not in known
    ]
    problems += [
        f"{effect:g} for {name} is not an odds ratio of more than 1 and at most {LARGEST_EFFECT:g}"
        for name, effect in asked.effects
        if not 1 < effect <= LARGEST_EFFECT
    ]
    if problems:
        raise InvalidInput([Problem(message=message, pointer="effect") for message in problems])


def _check_slices(traffic: Traffic, plans: Sequence[Plan], environment: str) -> None:
    judged = {rule.slice for plan in plans for rule in plan.metrics if rule.slice is not None}
    problems = [
        Problem(
            message=f"nothing says what share of the requests belongs to {name}: no rollout in {environment} saw it",
            pointer="slice",
            mend=f"say it, like --slice {name}=0.2",
        )
        for name in sorted(judged - traffic.slices.keys())
    ]
    if problems:
        raise InvalidInput(problems)


def _unit(view: View, model: str | None, environment: str | None) -> Environment:
    if model is not None:
        return environment_of(view, environment, model)
    known = view.configuration.environments
    found = known[-1] if environment is None else view.configuration.environment(environment)
    if found is None:
        raise NotFound("environment", environment or "", [one.name for one in known])
    return found


def _harms(plan: Plan, asked: Asked) -> list[Harm]:
    """Return a canary that is no worse, then each metric's named effect and the one that was asked for."""
    found = [Harm()]
    for rule in plan.metrics:
        effects = {rule.effect} | {effect for name, effect in asked.effects if name == rule.name}
        found += [Harm(kind=rule.kind, slice=rule.slice, effect=effect) for effect in sorted(effects)]
    return found


def _measured(view: View, environment: str, model: str, state: EnvironmentState) -> _Measured:
    """Return what the newest decision records say: requests over the time of their steps, and the baseline's rates."""
    answered = seconds = 0.0
    newest: dict[int, Sequence[Mapping[str, Any]]] = {}
    for name in view.ledger.decision_names(environment, model)[-RECORDS:]:
        record = view.ledger.decision(environment, model, name)
        if record is None or not record["counts"]:
            continue
        verdict, newest[record["rollout"]] = record["verdict"], record["counts"]
        if verdict["elapsedSeconds"] > 0:
            seconds += verdict["elapsedSeconds"]
            answered += sum(one["total"] for one in record["counts"] if one["cohort"] == verdict["cohort"])
    baseline = [Sample.from_mapping(one) for counts in newest.values() for one in counts if one["arm"] == Arm.BASELINE]
    total, labelled = sum(one.total for one in baseline), sum(one.labelled for one in baseline)
    rates: dict[MetricKind, float] = {}
    if total:
        rates["errors"] = _rate(sum(one.failed for one in baseline), total)
        rates |= _slow(baseline, total)
    if labelled:
        rates["labels"] = _rate(sum(one.incorrect for one in baseline), labelled)
    return _Measured(
        requests_per_second=answered / seconds if answered and seconds else None,
        rates=rates,
        labelled_share=labelled / total if labelled else None,
        slices=_shares(baseline, total) if total else {},
        evaluated=_evaluated(view, model, state),
    )


def _shares(baseline: Sequence[Sample], total: int) -> dict[str, float]:
    """Return what share of the requests belongs to each slice that was told."""
    found: dict[str, int] = {}
    for sample in baseline:
        for one in sample.slices:
            found[one.name] = found.get(one.name, 0) + one.total
    return {name: count / total for name, count in found.items() if count}


def _evaluated(view: View, model: str, state: EnvironmentState) -> float | None:
    """Return the champion's share of wrong predictions on its evaluation set; None where no report tells it."""
    release = view.ledger.find_release(model, state.champion) if state.champion else None
    report = view.ledger.report(model, release.report) if release and release.report else None
    metrics = ((report or {}).get("candidate") or {}).get("metrics") or {}
    right = (metrics.get("accuracy") or {}).get("value")
    return 1 - right if isinstance(right, float) and 0 < right < 1 else None


def _rate(bad: float, total: float) -> float:
    """Return a rate that is neither 0 nor 1, after Jeffreys."""
    return (bad + 0.5) / (total + 1)


def _slow(baseline: Iterable[Sample], total: int) -> dict[MetricKind, float]:
    """Return the share that the bucket bound of the p99 leaves out; nothing where there are no common buckets."""
    within: dict[float, int] = {}
    for place, sample in enumerate(one for one in baseline if one.total):
        known = dict(sample.latency)
        within = {bound: within.get(bound, 0) + count for bound, count in known.items() if not place or bound in within}
    slower = (total - count for _, count in sorted(within.items()))
    found = next((count for count in slower if count <= SLOW_SHARE * total), None)
    return {} if found is None else {"latency": _rate(found, total)}


def _traffic(asked: Asked, measured: _Measured, unit: Environment) -> tuple[Values, Traffic]:
    """Return the traffic, told with its sources, and as it is simulated."""
    speed, source = _first(
        (asked.requests_per_second, "flag"),
        (measured.requests_per_second, "measured"),
        (unit.expected_requests_per_second, "expected"),
    )
    if speed is None:
        raise InvalidInput(
            f"nothing says how much traffic there is: no rollout was judged in {unit.name} yet; say it with "
            "--requests-per-second, or as expectedRequestsPerSecond of the environment"
        )
    rates: dict[MetricKind, float] = {}
    told: list[Values] = []
    for kind in KINDS:
        assumed = DEFAULT_RATES[kind]
        evaluated = measured.evaluated if kind == "labels" else None
        rate, origin = _first(
            (asked.rates.get(kind), "flag"), (measured.rates.get(kind), "measured"), (evaluated, "evaluated")
        )
        rates[kind] = assumed if rate is None else rate
        told.append({"kind": kind, "rate": rates[kind], "source": origin or "assumed"})
    share, of_share = _first((asked.labelled_share, "flag"), (measured.labelled_share, "measured"))
    traffic = Traffic(
        requests_per_second=speed,
        rates=rates,
        labelled_share=1.0 if share is None else share,
        label_delay_seconds=asked.label_delay_seconds,
        slices={**measured.slices, **asked.slices},
        noise=asked.noise,
    )
    words = {
        "requestsPerSecond": speed,
        "source": source,
        "rates": told,
        "labelledShare": traffic.labelled_share,
        "labelledShareSource": of_share or "assumed",
        "labelDelaySeconds": asked.label_delay_seconds,
        "slices": [
            {"slice": name, "share": share, "source": "flag" if name in asked.slices else "measured"}
            for name, share in sorted(traffic.slices.items())
        ],
        "noise": asked.noise,
    }
    return words, traffic


def _first(*known: tuple[float | None, str]) -> tuple[float | None, str]:
    return next(((value, source) for value, source in known if value is not None), (None, ""))


def _plan(file: str | None, plan: Plan, shared: _Foreseen, harms: int) -> Values:
    traffic, noises = shared.traffic, shared.noises(plan)
    known = Known(
        rates=traffic.rates,
        labelled=traffic.labelled_share,
        slices=traffic.slices,
        dispersions={name: noise.dispersion for name, noise in noises.items()},
    )
    return {
        "name": plan.name,
        "file": file,
        "seconds": math.fsum(step.seconds for step in plan.judged_steps),
        "alpha": plan.alpha,
        "noises": [
            {"metric": name, "dispersion": noise.dispersion, "source": str(noise.source)}
            for name, noise in noises.items()
        ],
        "steps": [{"weightPercent": step.weight_percent, "seconds": step.seconds} for step in plan.judged_steps],
        "needs": [_need(one) for one in needs(plan, traffic.requests_per_second, known)],
        "scenarios": [_simulated(plan, one, shared, noises, harms) for one in _harms(plan, shared.asked)],
    }


def _simulated(plan: Plan, harm: Harm, shared: _Foreseen, noises: Mapping[str, Noise], harms: int) -> Values:
    usual = (
        max(FEWEST_GOOD_RUNS, GOOD_RUNS // shared.plans)
        if harm.kind is None
        else max(FEWEST_RUNS, HARM_RUNS // max(1, harms))
    )
    courses = simulate(
        plan,
        shared.traffic,
        harm,
        runs=shared.asked.runs or usual,
        seed=shared.asked.seed,
        noises=noises,
        probation_seconds=shared.unit.probation_seconds,
    )
    return _scenario(harm, courses)


def _need(one: Need) -> Values:
    return {
        "step": one.step,
        "weightPercent": one.weight_percent,
        "kind": one.rule.kind,
        "slice": one.rule.slice,
        "effect": one.rule.effect,
        "expected": round(one.expected),
        "needed": one.needed,
        "seconds": one.seconds,
        "outcome": "held" if one.held else "waits" if one.waits else "inTime",
    }


def _scenario(harm: Harm, courses: Sequence[Course]) -> Values:
    back = [one for one in courses if one.fate is Fate.ROLLED_BACK]
    done = [one for one in courses if one.fate is Fate.PROMOTED]
    return {
        "kind": harm.kind,
        "slice": harm.slice,
        "effect": harm.effect,
        "runs": len(courses),
        "fates": {str(fate): _share(sum(one.fate is fate for one in courses), len(courses)) for fate in Fate},
        "secondsToRollBack": _spread([one.seconds for one in back]),
        "canaryRequests": _spread([one.canary_requests for one in back]),
        "extraBad": _spread([one.extra_bad for one in back]),
        "secondsToPromote": _spread([one.seconds for one in done]),
        "course": [[one, place / len(courses)] for place, one in enumerate(sorted(one.seconds for one in back), 1)],
    }


def _share(count: int, runs: int) -> Values:
    low, high = wilson(count, runs, z=1.959963984540054)
    return {"share": count / runs, "lower": low, "upper": high}


def _spread(values: Sequence[float]) -> Values | None:
    """Return median and 90 % quantile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return {"median": ordered[(len(ordered) - 1) // 2], "most": ordered[math.ceil(0.9 * len(ordered)) - 1]}
