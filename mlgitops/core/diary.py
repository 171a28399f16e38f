"""Commit messages: `git log` of both branches reads like a deployment diary."""

from collections.abc import Sequence

from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import Rollout, RolloutPhase

_PARTS = (
    "give release {release} all traffic of {environment}",
    "put release {release} in the champion's place in {environment}",
    "let two services of release {release} share {environment}, to measure its noise",
    "let two services of release {release} share {environment}, to measure its noise",
    "move the traffic of {environment} to the champion's place",
    "take the canary away: release {release} is live in {environment}",
)


def projection(state: EnvironmentState) -> str:
    """Return the message of the commit on `main` that shows the newest decision."""
    rollout = state.open or (state.rollouts[state.last_number] if state.rollouts else None)
    if rollout is None:
        return f"rollout({state.model}): show the ledger's state in {state.environment}"
    subject = f"{_kind(rollout)}({state.model}): {_action(rollout)} (rollout {rollout.number})"
    return f"{subject}\n\n{rollout.reason}\n" if rollout.reason else subject


def _kind(rollout: Rollout) -> str:
    rolled = rollout.phase in (RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK)
    return "rollback" if rolled else "rollout"


def _action(rollout: Rollout) -> str:
    names = {"release": rollout.release, "environment": rollout.proposal.environment}
    words = {
        RolloutPhase.PROPOSED: "wait with release {release} for {environment}",
        RolloutPhase.STARTING: "start release {release} in {environment}",
        RolloutPhase.STEP: _step(rollout),
        RolloutPhase.COMPLETING: _completing(rollout),
        RolloutPhase.LIVE: "release {release} is live in {environment}",
        RolloutPhase.ROLLING_BACK: (
            "clear {environment} of release {release}" if rollout.part else "take {environment} off release {release}"
        ),
        RolloutPhase.ROLLED_BACK: "{environment} is as before release {release}",
        RolloutPhase.REFUSED: "refuse release {release} for {environment}",
        RolloutPhase.WITHDRAWN: "withdraw release {release} from {environment}",
        RolloutPhase.ERRORED: "give up on release {release} for {environment}",
    }
    return words.get(rollout.phase, f"{rollout.phase} release {{release}} in {{environment}}").format(**names)


def _step(rollout: Rollout) -> str:
    if rollout.on_probation:
        return f"put release {{release}} on probation in {{environment}}, with {rollout.holds_back} % held back"
    weights = rollout.proposal.weights
    share = f"{weights[rollout.step]} % of {{environment}}"
    return f"give release {{release}} {share}, step {rollout.step + 1} of {len(weights)}"


def _completing(rollout: Rollout) -> str:
    without = () if rollout.proposal.plan.get("noiseSeconds") else _PARTS[2:4]
    parts = [one for one in _PARTS if one not in without]
    return parts[min(rollout.part, len(parts) - 1)]


def decision(rollout: Rollout) -> str:
    """Return the message of the commit on the ledger that records a rollout's newest event."""
    event = type(rollout.history[-1]).__name__ if rollout.history else "Proposed"
    proposal = rollout.proposal
    subject = (
        f"rollout({proposal.model}): {event} → {rollout.phase} "
        f"(release {rollout.release}, {proposal.environment}, rollout {rollout.number})"
    )
    said = rollout.reason or getattr(rollout.history[-1] if rollout.history else None, "words", "")
    return f"{subject}\n\n{said}\n" if said else subject


def release(one: Release) -> str:
    """Return the message of the commit on the ledger that records a release's newest event."""
    event = type(one.history[-1]).__name__ if one.history else "Submitted"
    subject = f"release({one.submission.model}): {one.name} {event} → {one.phase}"
    return f"{subject}\n\n{one.reason}\n" if one.reason else subject


def recognised(one: Release, revision: str, *, new: bool, unheeded: Sequence[str] = ()) -> str:
    """Return the message of the commit on the ledger that says that a push is a release that is there already.

    Args:
        one: The release, after it.
        revision: The pushed commit.
        new: Whether the push changed the release.
        unheeded: What it changed that changes nothing about the release.
    """
    subject = f"release({one.submission.model}): {one.name} recognised in {revision[:12]}"
    lines = []
    if new:
        last = one.history[-1]
        changed = ", ".join(getattr(last, "changed", ())) or "an evaluation that gave no answer"
        lines.append(f"Evaluated anew: {changed}.")
    if unheeded:
        lines.append(f"Not taken up by this release: {', '.join(unheeded)}.")
    return "\n".join([subject, "", *lines, ""]) if lines else subject


def training(one: Release) -> str:
    """Return the message of the commit on `main` that lists or unlists a training."""
    model, cause = one.submission.model, ", ".join(one.submission.cause)
    if one.phase is ReleasePhase.TRAINING:
        lines = (
            f"train({model}): release {one.name}",
            "",
            f"Cause: {cause}. Source: {one.submission.revision[:12]} {one.submission.subject}",
        )
        return "\n".join([*lines, *_not_carried(one)])
    return f"train({model}): release {one.name} ended {one.phase}"


def _not_carried(one: Release) -> list[str]:
    if not one.not_carried:
        return []
    told = "The file was edited by people, so what mlgitops.yaml says otherwise was not carried over:"
    mend = "Write these lines there, or delete the file: then the next training writes it anew."
    return ["", told, *(f"- {text}" for text in one.not_carried), "", mend]
