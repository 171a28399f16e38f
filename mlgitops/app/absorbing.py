"""What people did on `main`: promotions, reverts, and changes of fields that the tool owns."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from mlgitops.app.context import Context, View, by
from mlgitops.app.moves import Move, now, rolled_back
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import Environment
from mlgitops.core.errors import Conflict, Denied
from mlgitops.core.events import stamp
from mlgitops.core.ledger import EnvironmentState, Foreign, Hold
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.names import Digest
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import Proposal, Rollout, RolloutPhase
from mlgitops.ports.repository import Commit

FORCE_TRAILER = "Mlgitops-Force"


def absorb(
    context: Context, view: View, environment: Environment, folder: Folder, state: EnvironmentState
) -> Move | None:
    """Return the move that answers what `main` says and the ledger does not know; None when both agree.

    Raises:
        Denied: `main` is ahead of the ledger, so the ledger was rewound: nothing may change.
    """
    check_ahead(view, folder, state)
    asked = folders.rollout(view.main.read, folder)
    broken = folders.unreadable(view.main.read, folder)
    if broken:
        return _foreign(context, view, folder, state, broken)
    if pending(view, folder, state) is not None and asked is not None:
        return None if view.problem else take_up(context, view, environment, state, asked)
    if is_reverted(view, folder, state):
        return answer_revert(context, view, folder, state)
    return _foreign(context, view, folder, state, _differences(view, folder, state, asked))


def unanswered(view: View, folder: Folder, state: EnvironmentState) -> bool:
    """Say whether people did something on `main` that the ledger does not know: to be answered, not written over.

    What is rolled back is written over: whatever else was changed, what harms goes first.
    """
    if pending(view, folder, state) is not None or _reverted(view, folder, state) is not None:
        return True
    going_back = state.open is not None and state.open.phase is RolloutPhase.ROLLING_BACK
    if going_back or is_reverted(view, folder, state):
        return False
    asked = folders.rollout(view.main.read, folder)
    return bool(_differences(view, folder, state, asked) or folders.unreadable(view.main.read, folder))


def is_reverted(view: View, folder: Folder, state: EnvironmentState) -> bool:
    """Say whether `main` asks for an earlier rollout than the ledger last had it say at the generation it shows."""
    asked = folders.rollout(view.main.read, folder)
    known = state.projections.get(folders.generation(view.main.read, folder))
    expected = known.rollout if known else None
    if expected is None or folders.unreadable(view.main.read, folder):
        return False
    number = asked.number if asked else 0
    return number < expected.number and (asked is not None or _is_first(state, expected))


def _is_first(state: EnvironmentState, expected: RolloutFields) -> bool:
    """Say whether a promotion made `rollout.yaml`, so that its revert takes the file away."""
    rollout = state.rollouts.get(expected.number)
    return rollout is not None and rollout.proposal.champion is None


def check_ahead(view: View, folder: Folder, state: EnvironmentState) -> None:
    """Make sure that the ledger knows everything that `main` shows.

    Raises:
        Denied: `main` is ahead of the ledger, so the ledger was rewound: nothing may change.
    """
    shown = folders.generation(view.main.read, folder)
    asked = folders.rollout(view.main.read, folder)
    number = asked.number if asked else 0
    if shown > state.generation or number > state.last_number + 1:
        raise Denied(
            "changing",
            f"{folder.model} in {folder.environment}",
            f"main shows generation {shown} and rollout {number}, the ledger only knows generation "
            f"{state.generation} and rollout {state.last_number}: it was rewound or replaced; restore it first",
        )


def _differences(view: View, folder: Folder, state: EnvironmentState, asked: RolloutFields | None) -> Sequence[str]:
    shown = folders.generation(view.main.read, folder)
    known = state.projections.get(shown)
    if known is None:
        return () if shown == 0 and not state.projections else (f"generation {shown} was never written by mlgitops",)
    found = list(folders.differences(view.main.read, folder, known))
    if asked != known.rollout:
        found.append(f"{folder.path(names.ROLLOUT_FILE)}: another release or plan under the same number")
    if shown >= state.generation:
        return found
    if found and not _touched(view, folder, state):
        return ()  # who decided saw it: what is not on main yet is written over it
    if not found and _was_shown(view, folder, state):
        found.append(f"generation {state.generation} was on main and was taken back to {shown}")
    return found


def _touched(view: View, folder: Folder, state: EnvironmentState) -> bool:
    """Say whether the folder was changed on `main` since the ledger's generation was decided."""
    if view.main.revision is None or view.main.revision == state.decided_on:
        return False
    path = folder.path("").rstrip("/")
    return any(True for _ in view.repository.history(view.main.revision, until=state.decided_on, path=path))


def _was_shown(view: View, folder: Folder, state: EnvironmentState) -> bool:
    """Say whether the ledger's generation was on `main` already since it was decided, or history was rewritten."""
    if view.main.revision is None or view.main.revision == state.decided_on:
        return False
    path = folder.path(names.GENERATION_FILE)
    for commit in view.repository.history(view.main.revision, until=state.decided_on):
        at = view.repository.at(commit.revision)
        data = at.read(path)
        if data is not None and data.strip().isdigit() and int(data) >= state.generation:
            return True
        if not commit.parents:
            return True  # the decision's revision is no ancestor any more
    return False


def _last_commit(context: Context, view: View, path: str) -> Commit:
    """Return the commit that last touched a path; the newest of all where history was rewritten to before it."""
    assert view.main.revision is not None
    found = next(iter(context.repository.history(view.main.revision, path=path)), None)
    return found or next(iter(context.repository.history(view.main.revision)))


def _foreign(
    context: Context, view: View, folder: Folder, state: EnvironmentState, found: Sequence[str]
) -> Move | None:
    if not found:
        if state.foreign is None:
            return None
        _unmoved(context, view)
        message = f"rollout({state.model}): the change by hand in {state.environment} is undone"
        return Move(state=replace(state, foreign=None), message=message)
    open_ = state.open
    if state.foreign is not None or (open_ is not None and open_.phase is RolloutPhase.ROLLING_BACK):
        return None
    _unmoved(context, view)
    commit = _last_commit(context, view, folder.path("").rstrip("/"))
    author, at = by(commit.author), now(context)
    reason = f"fields that mlgitops owns were changed by hand in {commit.revision[:12]}: " + "; ".join(found)
    message = f"hold({state.model}): {state.environment} was changed by hand\n\n{reason}\n"
    if open_ is not None and open_.phase is not RolloutPhase.PROPOSED:
        return Move(state=rolled_back(state, open_, author, reason, at), message=message)
    changed = replace(
        state,
        hold=Hold(by=author, reason=reason, at=stamp(at)),
        foreign=Foreign(revision=commit.revision, by=author, differences=tuple(found), at=stamp(at)),
    )
    return Move(state=changed, message=message)


def _reverted(view: View, folder: Folder, state: EnvironmentState) -> Rollout | None:
    """Return the rollout that a lower number on `main` takes back, and that is not on its way back yet.

    It is about what has a higher number than `main` asks for. What has a lower one is what `main` asks for, and stays:
    the revert was answered before, and `main` only does not show it yet.
    """
    if not is_reverted(view, folder, state):
        return None
    asked = folders.rollout(view.main.read, folder)
    number = asked.number if asked else 0
    later = [one for one in (state.live, state.open) if one is not None and one.number > number]
    return next((one for one in later if one.phase is not RolloutPhase.ROLLING_BACK), None)


def answer_revert(context: Context, view: View, folder: Folder, state: EnvironmentState) -> Move | None:
    """Answer a lower number without a decision in the ledger: a rollback by that commit's author."""
    rollout = _reverted(view, folder, state)
    if rollout is None:
        return None
    _unmoved(context, view)
    commit = _last_commit(context, view, folder.path(names.ROLLOUT_FILE))
    author, at = by(commit.author), now(context)
    reason = f"{commit.message.splitlines()[0]} ({commit.revision[:12]})"
    if rollout.phase is RolloutPhase.PROPOSED:
        moved = machine.advance(rollout, machine.Withdrawn(at=at, by=author, reason=reason))
        return Move.of(state.with_rollout(moved), moved)
    asked = folders.rollout(view.main.read, folder)
    changed = rolled_back(state, rollout, author, reason, at, wanted=asked.number if asked else 0)
    return Move.of(changed, changed.rollouts[rollout.number])


def pending(view: View, folder: Folder, state: EnvironmentState) -> RolloutFields | None:
    """Return the promotion on `main` that the ledger does not know yet."""
    asked = folders.rollout(view.main.read, folder)
    return asked if asked is not None and asked.number > state.last_number else None


def take_up(
    context: Context,
    view: View,
    environment: Environment,
    state: EnvironmentState,
    asked: RolloutFields,
    *,
    refusal: str = "",
) -> Move:
    """Return the move that records a promotion on `main`; refused at once with `refusal`, or where it must be."""
    _unmoved(context, view)
    folder = f"environments/{environment.name}/{state.model}"
    commit = _last_commit(context, view, f"{folder}/{names.ROLLOUT_FILE}")
    forced = _forced(context, commit, f"{folder}/{names.ROLLOUT_FILE}")
    at = now(context)
    rollout = Rollout(
        proposal=proposal_of(
            environment, state, asked, by=by(commit.author), revision=commit.revision, at=at, forced=forced
        )
    )
    refusal = refusal or refused(view, environment, state, asked, forced=rollout.proposal.forced)
    if refusal:
        rollout = machine.advance(rollout, machine.Refused(at=now(context), reason=refusal))
    return Move.of(state.with_rollout(rollout), rollout, asked=asked)


def proposal_of(
    environment: Environment,
    state: EnvironmentState,
    asked: RolloutFields,
    *,
    by: str,
    revision: str,
    at: datetime,
    forced: str,
) -> Proposal:
    """Return what is asked for, with the environment's plan as it is now."""
    return Proposal(
        number=asked.number,
        environment=environment.name,
        model=state.model,
        release=asked.release,
        plan=environment.plan.to_mapping(),
        plan_digest=asked.plan_digest,
        champion=state.live.number if state.live else None,
        by=by,
        revision=revision,
        proposed_at=at,
        forced=forced,
    )


def _forced(context: Context, commit: Commit, path: str) -> str:
    """Return the reason for a promotion in spite of an earlier rollback; of a merge, what the merged commit gives."""
    found = commit.trailers.get(FORCE_TRAILER, "")
    if found or len(commit.parents) < 2:
        return found
    merged = next(iter(context.repository.history(commit.parents[1], path=path)), None)
    return "" if merged is None else merged.trailers.get(FORCE_TRAILER, "")


def _unmoved(context: Context, view: View) -> None:
    """Make sure that `main` is what it was when the ledger was read, before what a person did on it is concluded.

    `main` is read first, so the ledger may know a promotion that this reading of `main` does not show yet; without
    this, it would be taken for a revert.

    Raises:
        Conflict: `main` moved; both are to be read again.
    """
    found = context.repository.snapshot(names.MAIN).revision
    if found != view.main.revision:
        raise Conflict(names.MAIN, view.main.revision, found)


def refused(view: View, environment: Environment, state: EnvironmentState, asked: RolloutFields, *, forced: str) -> str:
    """Say why a promotion cannot be taken up at all; empty when it can."""
    if state.open is not None:
        return f"rollout {state.open.number} is under way, and there is one at a time"
    unfit = _unfit(view, state.model, asked.release)
    if unfit:
        return unfit
    if (asked.plan, asked.plan_digest) != (environment.plan.name, str(environment.plan.digest)):
        return f"plan {asked.plan} was changed since this promotion was written; promote again"
    if any(one.rollback for one in state.tried(asked.release)) and not forced:
        return (
            f"release {asked.release} was rolled back here before; "
            "`mlgitops promote --force --reason …` brings it back all the same"
        )
    return ""


def _unfit(view: View, model: str, name: str) -> str:
    release = view.ledger.find_release(model, name)
    if release is None:
        return f"there is no release {name} of {model}"
    if release.phase is not ReleasePhase.CANDIDATE:
        return f"release {name} is {release.phase}, and only a CANDIDATE can be rolled out"
    return f"the model of release {name} was deleted by `mlgitops gc`" if release.collected else ""


def address(person: str) -> str:
    """Return who somebody is, however the name is written: the address of `Name <address>`, else all of it."""
    return person.rpartition("<")[2].rstrip(">").strip().casefold() or person


def manifests_digest(view: View, state: EnvironmentState) -> str:
    """Return the digest over what an approval is about beside the rollout: the model's manifests on `main`.

    They do not change by themselves while a rollout is proposed; the tool's own record of it is left out.
    """
    folder = f"environments/{state.environment}/{state.model}"
    own = {f"{folder}/{name}" for name in (names.ROLLOUT_FILE, names.GENERATION_FILE)}
    found = {path: view.main.read(path) or b"" for path in view.main.paths(folder) if path not in own}
    return str(Digest.of_files({path: Digest.of(data) for path, data in found.items()}))


def waiting_for(view: View, environment: Environment, state: EnvironmentState, rollout: Rollout, at: datetime) -> str:
    """Say what keeps a proposed rollout from starting for now; empty when nothing does."""
    if state.hold is not None:
        return f"on hold by {state.hold.by}: {state.hold.reason}"
    frozen = next((window.name for window in environment.freeze_windows if window.covers(at)), None)
    if frozen is not None:
        return f"frozen by {frozen}"
    if not environment.approvals:
        return ""
    content = (rollout.number, rollout.release, rollout.proposal.plan_digest)
    given = [one for one in state.approvals if (one.rollout, one.release, one.plan_digest) == content]
    manifests = manifests_digest(view, state)
    people = {address(one.by) for one in given if one.manifests == manifests}
    void = ", ".join(sorted({one.by for one in given if address(one.by) not in people}))
    missing = environment.approvals - len(people)
    words = f"{missing} approval{'s' if missing > 1 else ''} missing" if missing > 0 else ""
    return f"{words}; the manifests were changed since {void} approved" if words and void else words
