"""What a plan would do with a model's traffic: measured where rollouts were judged, asked for where none was."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mlgitops.app.context import Context, View, environment_of, look
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.evidence import wilson
from mlgitops.core.analysis.foresight import DEFAULT_RATES, Need, needs
from mlgitops.core.analysis.measures import SLOW_SHARE
from mlgitops.core.analysis.simulation import Course, Fate, Harm, Traffic, simulate
from mlgitops.core.configuration import Environment, MetricKind, Plan
from mlgitops.core.errors import InvalidInput, NotFound

Values = dict[str, Any]
RUNS: Final = 240
"""Rollouts simulated in all where nobody says how many: a few seconds."""
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
    effects: Mapping[MetricKind, float] = field(default_factory=dict)
    """Odds ratios of the harms that are simulated, beside those that a plan names."""
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


def foresee(
    context: Context, model: str | None, environment: str | None, asked: Asked, others: Sequence[tuple[str, Plan]] = ()
) -> Values:
    """Return what the plan of an environment would do, and what others would.

    Args:
        context: The outside world; only the environment repository is read.
        model: The model; None where none was submitted yet, so that nothing is measured.
        environment: Where; None for the last one.
        asked: What is known better, and what is wanted.
        others: (file, plan) of plans to compare with.

    Returns:
        `model`, `environment`, `seed`, `runs`, `traffic` (with the source of each number), and `plans`, each with
        `name`, `file`, `needs` of its steps and `scenarios`; times in seconds, shares between 0 and 1.

    Raises:
        NotFound: There is no such model or environment.
        InvalidInput: Nothing says how much traffic there is, or what was asked cannot be.
    """
    view = look(context)
    unit = _unit(view, model, environment)
    measured = _measured(view, unit.name, model) if model else _Measured()
    told, traffic = _traffic(asked, measured, unit)
    plans = [(None, unit.plan), *others]
    harms = [_harms(plan, asked) for _, plan in plans]
    runs = asked.runs or max(FEWEST_RUNS, RUNS // sum(map(len, harms)))
    return {
        "model": model,
        "environment": unit.name,
        "seed": asked.seed,
        "runs": runs,
        "traffic": told,
        "plans": [
            _plan(file, plan, traffic, [(one, simulate(plan, traffic, one, runs=runs, seed=asked.seed)) for one in of])
            for (file, plan), of in zip(plans, harms, strict=True)
        ],
    }


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
        effects = {rule.effect} | ({asked.effects[rule.kind]} if rule.kind in asked.effects else set())
        found += [Harm(kind=rule.kind, effect=effect) for effect in sorted(effects)]
    return found


def _measured(view: View, environment: str, model: str) -> _Measured:
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
    )


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
            f"nothing says how much traffic there is: no rollout was judged in {unit.name} yet; say it with --traffic, "
            "in requests per second, or as expectedRequestsPerSecond of the environment"
        )
    rates: dict[MetricKind, float] = {}
    told: list[Values] = []
    for kind in KINDS:
        assumed = DEFAULT_RATES[kind]
        rate, origin = _first((asked.rates.get(kind), "flag"), (measured.rates.get(kind), "measured"))
        rates[kind] = assumed if rate is None else rate
        told.append({"kind": kind, "rate": rates[kind], "source": origin or "assumed"})
    share, of_share = _first((asked.labelled_share, "flag"), (measured.labelled_share, "measured"))
    traffic = Traffic(
        requests_per_second=speed,
        rates=rates,
        labelled_share=1.0 if share is None else share,
        label_delay_seconds=asked.label_delay_seconds,
        noise=asked.noise,
    )
    words = {
        "requestsPerSecond": speed,
        "source": source,
        "rates": told,
        "labelledShare": traffic.labelled_share,
        "labelledShareSource": of_share or "assumed",
        "labelDelaySeconds": asked.label_delay_seconds,
        "noise": asked.noise,
    }
    return words, traffic


def _first(*known: tuple[float | None, str]) -> tuple[float | None, str]:
    return next(((value, source) for value, source in known if value is not None), (None, ""))


def _plan(file: str | None, plan: Plan, traffic: Traffic, simulated: Sequence[tuple[Harm, Sequence[Course]]]) -> Values:
    found = needs(plan, traffic.requests_per_second, traffic.rates, traffic.labelled_share)
    return {
        "name": plan.name,
        "file": file,
        "seconds": math.fsum(step.seconds for step in plan.steps),
        "alpha": plan.alpha,
        "steps": [{"weightPercent": step.weight_percent, "seconds": step.seconds} for step in plan.steps],
        "needs": [_need(one) for one in found],
        "scenarios": [_scenario(harm, courses) for harm, courses in simulated],
    }


def _need(one: Need) -> Values:
    return {
        "step": one.step,
        "weightPercent": one.weight_percent,
        "kind": one.rule.kind,
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
        "effect": harm.effect,
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
