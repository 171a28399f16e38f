"""Evaluations: which one is needed, how it went, and what the gates say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlgitops.app.context import View, World, configuration_of
from mlgitops.core.configuration import Environment, Gate, fingerprint
from mlgitops.core.evaluation.costs import training_costs
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.release import Release
from mlgitops.core.rollout import RolloutPhase
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An evaluation that has ended, and what the gates make of it."""

    key: str
    """Key of the report in the ledger; empty without one."""
    report: Mapping[str, Any] | None
    refusals: tuple[str, ...]
    """Why the answer is no, in words; empty for yes."""
    error: str
    """Why there is no answer; empty when there is one."""


def judged(  # noqa: PLR0917 - who is judged, by what, and how often nobody answered
    world: World, view: View, release: Release, champion: Release | None, gates: Sequence[Gate], unanswered: int = 0
) -> Judged | None:
    """Evaluate a release, against the champion where there is one, and judge it; None while it runs.

    What was answered once is answered for ever. What gave no answer is asked for again once somebody asks for it:
    `unanswered` of its rollouts had none, beside the release's own evaluations.
    """
    requests = [evaluation_request(release, champion, one) for one in range(release.unanswered + unanswered + 1)]
    reports = ((one, view.ledger.report(release.submission.model, one.key)) for one in requests)
    request, known = next((one for one in reports if one[1] is not None), (requests[-1], None))
    outcome = world.evaluator.evaluate(request) if known is None else EvaluationOutcome(report=known)
    if outcome is None:
        return None
    if outcome.report is None and not outcome.refused:
        return Judged(key="", report=None, refusals=(), error=outcome.error or "the evaluation gave no report")
    report = None if outcome.report is None else {"refused": [*outcome.refused], **outcome.report}
    if report is not None and known is None:
        report["training"] = {"candidate": _training(release), "champion": champion and _training(champion)}
    refusals = outcome.refused if report is None else tuple(report["refused"])
    failed = [] if report is None else [one for one in judge_gates(report, gates) if not one.passed]
    return Judged(
        key=request.key if report is not None else "",
        report=report,
        refusals=(*refusals, *(one.reason for one in failed)),
        error="",
    )


def judged_in(
    world: World, view: View, environment: Environment, state: EnvironmentState, release: Release
) -> Judged | None:
    """Judge a release by all its gates in an environment, against what serves there; None while it is evaluated."""
    live = state.live
    champion = view.ledger.release(state.model, live.release) if live else None
    # Rollouts that ended here because an evaluation gave no answer.
    unanswered = sum(one.phase is RolloutPhase.ERRORED for one in state.tried(release.name))
    return judged(world, view, release, champion, all_gates(release, environment.gates), unanswered)


def _training(release: Release) -> dict[str, float] | None:
    return training_costs(release, configuration_of(release.submission).training)


def own_gates(release: Release) -> tuple[Gate, ...]:
    """Return the limits that the model's own configuration sets, champion comparisons left out."""
    return tuple(
        gate for gate in _configuration_gates(release) if gate.maximum_loss is None and gate.maximum_ratio is None
    )


def all_gates(release: Release, environment: Sequence[Gate]) -> tuple[Gate, ...]:
    """Return an environment's gates and the model's own, which can only add to them."""
    return (*environment, *_configuration_gates(release))


def _configuration_gates(release: Release) -> tuple[Gate, ...]:
    return configuration_of(release.judged_by).evaluation.gates


def evaluation_request(release: Release, champion: Release | None, unanswered: int = 0) -> EvaluationRequest:
    """Return what the evaluator is asked of a release, and of the champion where there is one.

    Its key says what decides the answer, and how many times before it there was none.
    """
    content = release.judged_by
    specification = configuration_of(content).evaluation.specification
    parts = {
        "candidate": release.artifact_digest,
        "champion": champion.artifact_digest if champion else None,
        "data": content.evaluation_digest,
        "specification": dict(specification),
        **({"unanswered": unanswered} if unanswered else {}),
    }
    return EvaluationRequest(
        key=f"{release.name}-{fingerprint(parts)[:12]}",
        candidate_uri=release.submission.artifact_uri,
        candidate_digest=release.artifact_digest,
        champion_uri=champion.submission.artifact_uri if champion else None,
        champion_digest=champion.artifact_digest if champion else None,
        data_uri=content.evaluation_uri,
        specification=specification,
        source_uri=content.source_uri or None,
    )
