"""Everything the ledger knows of one model in one environment, as plain values for a report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from mlgitops.app.absorbing import waiting_for
from mlgitops.app.context import Context, View, configuration_of, environment_of, look
from mlgitops.app.evaluating import all_gates, own_gates
from mlgitops.app.reading import aliases, release_row, rollout_row
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import Environment, Gate, ModelConfiguration, judged_steps
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.events import Event, stamp
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.loading import ENVIRONMENTS_FILE, load_environments
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import job_name
from mlgitops.core.release import Release
from mlgitops.core.rollout import Rollout, RolloutPhase

Values = dict[str, Any]


def collect(context: Context, model: str, environment: str | None) -> Values:
    """Return the report of a model in an environment: what serves, every rollout, every release with its chain.

    Args:
        context: The outside world; the environment repository and the clock are used.
        model: The model.
        environment: Where; None for production.

    Returns:
        Plain values (JSON can carry them): `serving`, `open`, `hold` and `foreign` as they are now, `rollouts` and
        `releases`, both newest first. What did not happen is None or empty, never absent.

    Raises:
        NotFound: There is no such model or environment, or no ledger.
    """
    return report_of(context, look(context), model, environment)


def report_of(context: Context, view: View, model: str, environment: str | None) -> Values:
    """Return what `collect` does, of what was looked at before."""
    unit = environment_of(view, environment, model)
    state = view.ledger.state(unit.name, model)
    at = context.clock.now()
    rollouts = [_rollout(context, view, unit, state, one) for _, one in sorted(state.rollouts.items(), reverse=True)]
    releases = [_release(view, state, one) for one in reversed(view.ledger.releases(model))]
    known = {one["release"] for one in releases}
    return {
        "model": model,
        "environment": unit.name,
        "madeAt": stamp(at),
        "revisions": {"main": view.main.revision, "ledger": view.ledger.revision},
        "serving": _serving(view, state),
        "open": _open(view, unit, state, at),
        "hold": {"by": state.hold.by, "reason": state.hold.reason, "since": state.hold.at} if state.hold else None,
        "foreign": _foreign(state),
        "rollouts": rollouts,
        "releases": releases,
        "strangers": sorted({one["release"] for one in rollouts} - known),
    }


def _serving(view: View, state: EnvironmentState) -> Values | None:
    live = state.live
    if live is None:
        return None
    found = view.ledger.find_release(state.model, live.release)
    return {
        "release": live.release,
        "rollout": live.number,
        "trusted": live.trusted,
        "since": stamp(_live_since(live)),
        "revision": found.submission.revision if found else None,
        "subject": found.submission.subject if found else "",
    }


def _live_since(rollout: Rollout) -> datetime:
    """Return when it came to serve last."""
    times = [one.at for one in rollout.history if isinstance(one, machine.ServingAll | machine.Restored)]
    return times[-1] if times else rollout.since


def _open(view: View, unit: Environment, state: EnvironmentState, at: datetime) -> Values | None:
    rollout = state.open
    if rollout is None:
        return None
    waits = waiting_for(view, unit, state, rollout, at) if rollout.phase is RolloutPhase.PROPOSED else ""
    return rollout_row(rollout) | {"waits": waits}


def _foreign(state: EnvironmentState) -> Values | None:
    found = state.foreign
    if found is None:
        return None
    return {"revision": found.revision, "by": found.by, "differences": list(found.differences), "since": found.at}


# Releases


def _release(view: View, state: EnvironmentState, release: Release) -> Values:
    submission = release.submission
    report = view.ledger.report(submission.model, release.report) if release.report else None
    configuration = _configuration(release)
    return release_row(release) | {
        "sequence": submission.sequence,
        "attempt": submission.attempt,
        "aliases": aliases(view, submission.model, release),
        "identity": str(release.identity),
        "codeDigest": submission.code_digest,
        "dataDigest": submission.data_digest,
        "specificationDigest": submission.specification_digest,
        "image": submission.image,
        "imageTag": submission.image_tag,
        "testCommand": " ".join(configuration.test_command) if configuration else "",
        "artifact": {"uri": submission.artifact_uri, "digest": release.artifact_digest},
        "training": _training(release, configuration),
        "evaluation": None if report is None else evaluation(report),
        "gates": [] if report is None or configuration is None else _gates(report, own_gates(release)),
        "events": [event.to_mapping() for event in release.history],
        "rollouts": [one.number for one in state.tried(release.name)],
    }


def _configuration(release: Release) -> ModelConfiguration | None:
    """Return the release's own configuration; None where this version cannot read it any more."""
    try:
        return configuration_of(release.submission)
    except InvalidInput:
        return None


def _training(release: Release, configuration: ModelConfiguration | None) -> Values | None:
    started = release.training_started
    if started is None:
        return None
    trained = release.trained
    roles = configuration.training.roles if configuration else {}
    return {
        "job": f"{TRAINING}/{job_name(release.submission.model, release.name)}",
        "replicas": {name: role.replicas for name, role in sorted(roles.items())},
        "listedAt": stamp(started.at),
        "startedAt": trained.started_at if trained else "",
        "finishedAt": trained.finished_at if trained else "",
        "endedAt": stamp(trained.at) if trained else None,
        "restarts": trained.restarts if trained else 0,
        "metrics": dict(trained.metrics) if trained else {},
        "history": [dict(one) for one in trained.history] if trained else [],
        "succeeded": trained is not None,
    }


# Evaluations


def evaluation(report: Mapping[str, Any]) -> Values:
    """Return what an evaluation report (schema `evaluation-report`) says, whatever shape its parts have."""
    candidate, champion = _mapping(report.get("candidate")), report.get("champion")
    other, comparison = _mapping(champion), _mapping(report.get("comparison"))
    slices = _mapping(candidate.get("slices"))
    reported = _mapping(report.get("selfReported"))
    data = _mapping(report.get("data"))
    return {
        "key": report.get("key", ""),
        "task": report.get("task", ""),
        "confidence": report.get("confidence"),
        "data": {"digest": data.get("digest", ""), "examples": data.get("examples")},
        "compared": bool(comparison),
        "championError": other.get("error", ""),
        "metrics": _metrics(candidate, other, comparison),
        "slices": [
            {
                "slice": name,
                "examples": _mapping(part).get("examples"),
                "metrics": _metrics(
                    _mapping(part),
                    _mapping(_mapping(other.get("slices")).get(name)),
                    _mapping(_mapping(comparison.get("slices")).get(name)),
                ),
            }
            for name, part in slices.items()
        ],
        "selfReported": {
            "metrics": dict(_mapping(reported.get("metrics"))),
            "error": reported.get("error") or "",
        },
        "probe": report.get("probe"),
    }


def _metrics(candidate: Mapping[str, Any], champion: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[Values]:
    """Return one row per metric: both values and the paired difference, each with its interval."""
    others, pairs = _mapping(champion.get("metrics")), _mapping(comparison.get("metrics"))
    return [
        {
            "metric": name,
            "better": _mapping(one).get("better") or _mapping(pairs.get(name)).get("better", ""),
            "method": _mapping(one).get("method"),
            "candidate": _numbers(one, "value"),
            "champion": _numbers(others.get(name), "value"),
            "difference": _numbers(pairs.get(name), "difference"),
        }
        for name, one in _mapping(candidate.get("metrics")).items()
    ]


def _numbers(found: Any, middle: str) -> Values | None:
    """Return a value with its interval as finite numbers; None where there is no value."""
    value = finite(_mapping(found).get(middle))
    if value is None:
        return None
    return {"value": value, "low": finite(found.get("low")), "high": finite(found.get("high"))}


def finite(value: Any) -> float | None:
    """Return `value` as a float when it is a finite number, None otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _gates(report: Mapping[str, Any], gates: Sequence[Gate]) -> list[Values]:
    return [one.to_mapping() for one in judge_gates(report, gates)]


# Rollouts


def _rollout(context: Context, view: View, unit: Environment, state: EnvironmentState, rollout: Rollout) -> Values:
    proposal, plan = rollout.proposal, rollout.proposal.plan
    release = view.ledger.find_release(state.model, rollout.release)
    champion = state.rollouts.get(proposal.champion) if proposal.champion is not None else None
    decisions = list(_decisions(view, state, rollout))
    key = _report_key(rollout)
    report = view.ledger.report(state.model, key) if key else None
    return rollout_row(rollout) | {
        "revision": proposal.revision,
        "forced": proposal.forced,
        "plan": {
            "name": plan["name"],
            "alpha": plan["alpha"],
            "steps": list(judged_steps(plan)),
            "holdBack": plan.get("holdBack"),
            "metrics": plan["metrics"],
        },
        "planDigest": proposal.plan_digest,
        "champion": None if champion is None else {"rollout": champion.number, "release": champion.release},
        "cause": list(release.submission.cause) if release else [],
        "subject": release.submission.subject if release else "",
        "author": release.submission.author if release else "",
        "ended": None if rollout.is_open or not rollout.history else stamp(_ended(rollout)),
        "traffic": [{"at": stamp(at), "weight": weight} for at, weight in traffic(rollout)],
        "served": [[stamp(start), None if end is None else stamp(end)] for start, end in served(rollout)],
        "events": [event.to_mapping() for event in rollout.history],
        "decisions": decisions,
        "evidence": _evidence(decisions),
        "approvals": [{"by": one.by, "at": one.at} for one in state.approvals if one.rollout == rollout.number],
        "evaluation": None if report is None else evaluation(report),
        "gates": [] if report is None or release is None else _rollout_gates(context, unit, rollout, release, report),
        "rollback": _rollback(rollout),
    }


def _ended(rollout: Rollout) -> datetime:
    """Return when it came to serve, or else when it ended."""
    first = next((one.at for one in rollout.history if isinstance(one, machine.ServingAll)), None)
    return rollout.since if first is None or rollout.phase is RolloutPhase.ROLLED_BACK else first


def _report_key(rollout: Rollout) -> str:
    keys = [one.report for one in rollout.history if isinstance(one, machine.Authorised | machine.Refused)]
    return keys[-1] if keys else ""


def _rollout_gates(
    context: Context, unit: Environment, rollout: Rollout, release: Release, report: Mapping[str, Any]
) -> list[Values]:
    gates = all_gates(release, _environment_then(context, unit, rollout).gates) if _configuration(release) else ()
    return _gates(report, gates)


def _environment_then(context: Context, unit: Environment, rollout: Rollout) -> Environment:
    """Return the environment as the promoting commit had it, so that later edits of its gates change no old answer."""
    try:
        data = context.repository.at(rollout.proposal.revision).read(ENVIRONMENTS_FILE)
        then = load_environments(data, ENVIRONMENTS_FILE).environment(unit.name) if data else None
    except (NotFound, InvalidInput):
        return unit
    return then or unit


def _steps(rollout: Rollout) -> Iterator[tuple[Rollout, Event]]:
    """Walk the history: the rollout before each event, and the event."""
    before = Rollout(proposal=rollout.proposal)
    for event in rollout.history:
        yield before, event
        before = machine.advance(before, event)


def traffic(rollout: Rollout) -> list[tuple[datetime, int]]:
    """Return when the rollout's share of the traffic was seen to become what, in percent; empty before it started."""
    points: list[tuple[datetime, int]] = []
    for before, event in _steps(rollout):
        weight = _weight_after(before, event)
        if weight is not None and (not points or points[-1][1] != weight):
            points.append((event.at, weight))
    return points


def _weight_after(before: Rollout, event: Event) -> int | None:
    """Return the share that an event shows; None where it shows none."""
    match event:
        case machine.Authorised():
            return 0
        case machine.SplitObserved():
            return before.proposal.weights[before.step]
        case machine.ServingAll() | machine.Restored():
            return 100
        case machine.PartReached() if before.phase is RolloutPhase.COMPLETING:
            return 100
        case machine.PartReached() | machine.RolledBack() | machine.Retired():
            return 0
        case _:
            return None


def served(rollout: Rollout) -> list[tuple[datetime, datetime | None]]:
    """Return the spans in which the rollout served alone; the last one is open while it does."""
    spans: list[tuple[datetime, datetime | None]] = []
    for event in rollout.history:
        if isinstance(event, machine.ServingAll | machine.Restored):
            spans.append((event.at, None))
        elif spans and spans[-1][1] is None and isinstance(event, machine.Retired | machine.RolledBack):
            spans[-1] = (spans[-1][0], event.at)
    return spans


def _decisions(view: View, state: EnvironmentState, rollout: Rollout) -> Iterator[Values]:
    for name in view.ledger.decision_names(state.environment, state.model):
        if not name.startswith(f"{rollout.number:05}-"):
            continue
        record = _mapping(view.ledger.decision(state.environment, state.model, name))
        verdict = _mapping(record.get("verdict"))
        yield {
            "name": name,
            "at": record.get("at", ""),
            "weightPercent": record.get("weightPercent"),
            "outcome": verdict.get("outcome", ""),
            "reason": verdict.get("reason", ""),
            "words": verdict.get("words", ""),
            "cohort": verdict.get("cohort", ""),
            "dispersion": verdict.get("dispersion"),
            "dispersionAssumed": bool(verdict.get("dispersionAssumed")),
            "metrics": [dict(one) for one in verdict.get("metrics", ())],
            "paths": dict(_mapping(record.get("evidence"))),
        }


def metric_name(found: Mapping[str, Any]) -> str:
    """Return what tells a metric of a decision record from the others: `labels`, or `labels/mobile` of a slice."""
    kind, of = str(found.get("kind", "")), found.get("slice")
    return f"{kind}/{of}" if of else kind


def _evidence(decisions: Sequence[Values]) -> Values | None:
    """Return the course of the evidence: the last record has all that the ones before it had."""
    found = next((one for one in reversed(decisions) if any(one["paths"].values())), None)
    if found is None:
        return None
    thresholds = {metric_name(one): finite(one.get("threshold")) for one in found["metrics"]}
    return {"paths": found["paths"], "thresholds": thresholds}


def _rollback(rollout: Rollout) -> Values | None:
    decision = rollout.rollback
    if decision is None:
        return None
    after = [at for at, weight in traffic(rollout) if weight == 0 and at >= decision.at]
    return {
        "by": decision.by,
        "reason": decision.reason,
        "target": decision.target,
        "at": stamp(decision.at),
        "decision": decision.decision,
        "clearedSeconds": (after[0] - decision.at).total_seconds() if after else None,
    }
