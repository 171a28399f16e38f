"""Shadows: which requests a candidate is tried on before any user meets it, and what is kept of its answers."""

from mlgitops.app.context import View, World, configuration_of
from mlgitops.app.judging import next_name
from mlgitops.app.moves import Record, now
from mlgitops.core.analysis.shadow import ShadowVerdict, judge_shadow
from mlgitops.core.configuration import Shadow, fingerprint
from mlgitops.core.driver import cohort
from mlgitops.core.events import moment, stamp
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.rollout import Rollout
from mlgitops.ports.serving import Replayed, ReplayRequest


def replayed(world: World, view: View, state: EnvironmentState, rollout: Rollout) -> Replayed | None:
    """Return how the replay to a rollout's canary went; None while it goes on.

    Raises:
        Unavailable: The engine cannot be asked.
    """
    return world.serving.replay(replay_request(view, state, rollout))


def replay_request(view: View, state: EnvironmentState, rollout: Rollout) -> ReplayRequest:
    """Return what is asked of the engine.

    Its key says what decides the answer, and that a person let the rollout go on after there was none.
    """
    assert state.live is not None
    release = view.ledger.release(state.model, rollout.release)
    champion = view.ledger.release(state.model, state.live.release)
    shadow, content = Shadow.from_mapping(rollout.proposal.plan["shadow"]), release.judged_by
    resumed = state.resumed_at if state.resumed_at and moment(state.resumed_at) > rollout.since else None
    parts = {
        "environment": state.environment,
        "model": state.model,
        "rollout": rollout.number,
        "candidate": release.artifact_digest,
        "champion": champion.artifact_digest,
        "shadow": shadow.to_mapping(),
        "data": content.evaluation_digest if shadow.requests == "evaluation" else None,
        "resumed": resumed,
    }
    return ReplayRequest(
        key=f"{release.name}-{fingerprint(parts)[:12]}",
        environment=state.environment,
        model=state.model,
        baseline_digest=champion.artifact_digest or "",
        canary_digest=release.artifact_digest or "",
        shadow=shadow,
        data_uri=content.evaluation_uri,
        specification=configuration_of(content).evaluation.specification,
    )


def judge(rollout: Rollout, found: Replayed) -> ShadowVerdict:
    """Judge a replay by the rollout's plan."""
    return judge_shadow(found, Shadow.from_mapping(rollout.proposal.plan["shadow"]))


def record(world: World, view: View, rollout: Rollout, found: Replayed, verdict: ShadowVerdict) -> Record:
    """Return the record of what was replayed and what followed; of the requests themselves it keeps a digest."""
    proposal, plan = rollout.proposal, rollout.proposal.plan
    at, name = now(world), next_name(view, rollout, str(verdict.outcome))
    told = {
        "outcome": str(verdict.outcome),
        "reason": str(verdict.reason),
        "words": verdict.words,
        "cohort": cohort(rollout, 0),
        "alpha": plan["alpha"],
        "dispersion": 1.0,
        "dispersionAssumed": False,
        "elapsedSeconds": max(0.0, (at - rollout.since).total_seconds()),
        "stepSeconds": 0,
        "metrics": [],
    }
    values = {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "DecisionRecord",
        "name": name,
        "at": stamp(at),
        "environment": proposal.environment,
        "model": proposal.model,
        "rollout": rollout.number,
        "release": rollout.release,
        "champion": proposal.champion,
        "weightPercent": 0,
        "verdict": told,
        "shadow": {
            "source": plan["shadow"]["requests"],
            **found.to_mapping(),
            "findings": [one.to_mapping() for one in verdict.findings],
        },
        "counts": [],
        "evidence": {},
    }
    return Record(name=name, values=values, words=_markdown(rollout, found, verdict))


def _markdown(rollout: Rollout, found: Replayed, verdict: ShadowVerdict) -> str:
    head = (
        f"# {verdict.outcome}: release {rollout.release} in {rollout.proposal.environment}, "
        f"rollout {rollout.number}, replayed requests\n"
    )
    lines = [head, verdict.words, "", *(f"- {one.kind}: {one.words}" for one in verdict.findings)]
    return "\n".join([*lines, "", f"Digest of the requests: {found.digest or 'none'}"]) + "\n"
