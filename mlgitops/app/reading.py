"""What people ask: status, history, models, and the way from one production answer back to where it came from."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mlgitops.app.context import Context, View, check_model, environment_of, find_release, look
from mlgitops.core import release as releases
from mlgitops.core import rollout as machine
from mlgitops.core.driver import cohort
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.events import stamp
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import Rollout, RolloutPhase

_UNREADABLE_STATUS: Final[Mapping[str, Any]] = {"notCarriedOver": [], "releases": [], "environments": []}


def status(context: Context, model: str | None = None) -> dict[str, Any]:
    """Return what serves, what is under way, what waits and why, for every model or one.

    Raises:
        NotFound: There is no such model, or no ledger.
        InvalidInput: `environments.yaml` cannot be read, or the ledger's files of the one model that was asked for.
    """
    view = look(context)
    if model is not None:
        check_model(view, model)
        return {"models": [_model_status(context, view, model)]}
    if view.ledger.models():
        _ = view.environment_names  # what is wrong with that file is wrong for every model
    return {"models": _every(view, lambda one: _model_status(context, view, one), _UNREADABLE_STATUS)}


def _every(view: View, told: Callable[[str], dict[str, Any]], otherwise: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is told of each model, and why not where its files cannot be read: the others are told."""
    found = []
    for model in view.ledger.models():
        try:
            found.append(told(model))
        except (InvalidInput, NotFound) as error:
            mends = [one.mend for one in error.problems if one.mend] if isinstance(error, InvalidInput) else []
            found.append({"model": model, **otherwise, "problem": "; ".join([str(error), *dict.fromkeys(mends)])})
    return found


def _model_status(context: Context, view: View, model: str) -> dict[str, Any]:
    names = view.environment_names
    left = [where for where, _ in view.left([model], names)]
    every = view.ledger.releases(model)
    newest = every[-1] if every else None
    written = next((one for one in reversed(every) if one.training_started is not None), None)
    return {
        "model": model,
        "notCarriedOver": list(written.not_carried) if written else [],
        "releases": [release_row(one) for one in every if one.phase in releases.OPEN or one is newest],
        "environments": [
            # Those taken out of the file in which something goes on come first.
            _environment_status(context, view, view.ledger.state(name, model))
            for name in (*left, *names)
        ],
        "problem": "",
    }


def _environment_status(context: Context, view: View, state: EnvironmentState) -> dict[str, Any]:
    champion = state.champion or _going_back_to(state)
    return {
        "environment": state.environment,
        "champion": champion,
        "trusted": state.live.trusted if state.live else False,
        "source": _source(view, state.model, champion) if champion else None,
        "promotion": _promotion(view, state),
        "rollout": rollout_row(state.open) if state.open else None,
        "waiting": _waiting(context, view, state),
        "alarms": _alarms(view, state),
        "hold": {"by": state.hold.by, "reason": state.hold.reason, "since": state.hold.at} if state.hold else None,
        "foreign": list(state.foreign.differences) if state.foreign else [],
        "last": rollout_row(state.rollouts[state.last_number]) if state.rollouts else None,
    }


def _alarms(view: View, state: EnvironmentState) -> list[dict[str, Any]]:
    """Return the newest alarm of each limit about what serves, since a person resumed; no training that came since."""
    newest: dict[str, machine.Alarmed] = {}
    for event in state.live.history if state.live else ():
        if isinstance(event, machine.Alarmed) and stamp(event.at) > state.resumed_at:
            newest[event.limit] = event
    last = view.ledger.last_submitted(state.model)
    return [
        {"limit": name, "at": stamp(one.at), "words": one.words}
        for name, one in newest.items()
        if not name.endswith("/retrain") or last is None or last.submission.submitted_at < one.at
    ]


def _promotion(view: View, state: EnvironmentState) -> dict[str, Any] | None:
    """Return the promotion that `main` shows and no reconcile has taken up yet."""
    asked = view.promotion(state.environment, state.model)
    if asked is None or asked[0] <= state.last_number:
        return None
    return {"rollout": asked[0], "release": asked[1]}


def _going_back_to(state: EnvironmentState) -> str | None:
    """Return what is about to serve, or does already, while what served alone is rolled back."""
    target = state.open.rollback.target if state.open and state.open.rollback else None
    return None if target is None else state.rollouts[target].release


def _waiting(context: Context, view: View, state: EnvironmentState) -> str:
    """Say what keeps a proposed rollout from starting for now; empty when nothing does, or nothing is proposed."""
    if state.open is None or state.open.phase is not RolloutPhase.PROPOSED:
        return ""
    from mlgitops.app.absorbing import waiting_for  # seldom needed, and it judges environments.yaml

    unit = environment_of(view, state.environment, state.model)
    return waiting_for(view, unit, state, state.open, context.clock.now())


def _source(view: View, model: str, release: str) -> str:
    submission = view.ledger.release(model, release).submission
    return f"{submission.revision[:12]} {submission.subject}"


def release_row(release: Release) -> dict[str, Any]:
    """Return one release as a row."""
    submission = release.submission
    return {
        "release": release.name,
        "phase": str(release.phase),
        "cause": list(submission.cause),
        "revision": submission.revision,
        "subject": submission.subject,
        "author": submission.author,
        "submitted": stamp(submission.submitted_at),
        "reason": release.reason,
    }


def rollout_row(rollout: Rollout) -> dict[str, Any]:
    """Return one rollout as a row."""
    weights = rollout.proposal.weights
    moving = rollout.phase in (RolloutPhase.STEP, RolloutPhase.ANALYSING)
    return {
        "rollout": rollout.number,
        "environment": rollout.proposal.environment,
        "release": rollout.release,
        "phase": str(rollout.phase),
        "weightPercent": weights[rollout.step] if moving else None,
        "step": rollout.step + 1 if moving else None,
        "steps": len(weights),
        "cohort": cohort(rollout, rollout.step + 1) if moving else None,
        "by": rollout.proposal.by,
        "proposed": stamp(rollout.proposal.proposed_at),
        "since": stamp(rollout.since),
        "trusted": rollout.trusted,
        "onProbation": rollout.on_probation,
        "reason": rollout.reason,
    }


def history(context: Context, model: str, environment: str | None) -> dict[str, Any]:
    """Return every release and rollout of a model, oldest first, with what happened to each."""
    view = look(context)
    unit = environment_of(view, environment, model)
    state = view.ledger.state(unit.name, model)
    return {
        "model": model,
        "environment": unit.name,
        "releases": [
            release_row(one) | {"events": [event.to_mapping() for event in one.history]}
            for one in view.ledger.releases(model)
        ],
        "rollouts": [
            rollout_row(one) | {"events": [event.to_mapping() for event in one.history]}
            for _, one in sorted(state.rollouts.items())
        ],
    }


def lineage(view: View, environment: str, model: str, release: str) -> dict[str, Any]:
    """Return where a release came from and what was decided about it in an environment."""
    found = view.ledger.release(model, release)
    submission = found.submission
    state = view.ledger.state(environment, model)
    names = view.ledger.decision_names(environment, model)
    numbers = tuple(f"{one.number:05}-" for one in state.tried(release))
    decisions = [view.ledger.decision(environment, model, name) for name in names if name.startswith(numbers)]
    return {
        **release_row(found),
        "identity": str(found.identity),
        "codeDigest": submission.code_digest,
        "dataDigest": submission.data_digest,
        "evaluationDigest": found.judged_by.evaluation_digest,
        "specificationDigest": submission.specification_digest,
        "dataUris": {name: uri for name, uri in submission.variables.items() if name.endswith("_URI")},
        "image": submission.image,
        "artifact": {"uri": submission.artifact_uri, "digest": found.artifact_digest},
        "metrics": metrics_of(view, found),
        "training": dict(found.trained.metrics) if found.trained else {},
        "rollouts": [rollout_row(one) for one in state.tried(release)],
        "decisions": [
            {"name": one["name"], "outcome": one["verdict"]["outcome"], "words": one["verdict"]["words"]}
            for one in decisions
            if one is not None
        ],
    }


def metrics_of(view: View, release: Release) -> dict[str, float]:
    """Return the metrics of a release's own evaluation by name; empty before it."""
    report = view.ledger.report(release.submission.model, release.report) if release.report else None
    if report is None:
        return {}
    return {name: one["value"] for name, one in report["candidate"]["metrics"].items()}


def trace(context: Context, model: str, environment: str | None, served: Mapping[str, Any]) -> dict[str, Any]:
    """Follow one production answer back to commit, data, image, metrics and decisions.

    Args:
        context: The outside world.
        model: The model that answered.
        environment: Where; None for production.
        served: What the router kept of the answer: `release` at least.
    """
    view = look(context)
    unit = environment_of(view, environment, model)
    release = find_release(view, model, str(served["release"]))
    return {"answer": dict(served), "release": lineage(view, unit.name, model, release.name)}


def models(context: Context) -> dict[str, Any]:
    """Return every model with its releases and the aliases derived from where they serve."""
    view = look(context)
    if view.ledger.models():
        _ = view.configuration  # what is wrong with that file is wrong for every model
    return {"models": _every(view, lambda one: _model_rows(view, one), {"releases": []})}


def _model_rows(view: View, model: str) -> dict[str, Any]:
    rows = [
        release_row(one) | {"aliases": aliases(view, model, one), "metrics": metrics_of(view, one)}
        for one in view.ledger.releases(model)
    ]
    return {"model": model, "releases": rows, "problem": ""}


def aliases(view: View, model: str, release: Release) -> list[str]:
    """Return what a release is called now: champion or candidate of an environment, last-good, latest."""
    found = []
    for environment in view.configuration.environments:
        state = view.ledger.state(environment.name, model)
        if state.champion == release.name:
            found.append(f"champion@{environment.name}")
        if state.open is not None and state.open.release == release.name:
            found.append(f"candidate@{environment.name}")
        good = state.last_good(state.live.number) if state.live else None
        if good is not None and good.release == release.name:
            found.append(f"last-good@{environment.name}")
    every = [one for one in view.ledger.releases(model) if one.phase is ReleasePhase.CANDIDATE]
    if every and every[-1].name == release.name:
        found.append("latest")
    return found
