"""What people decide by one command: promote, rollback, hold, resume, reject, abort, approve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlgitops.app import proposing
from mlgitops.app.absorbing import address, check_ahead, manifests_digest, pending
from mlgitops.app.context import Context, View, by, environment_of, find_release, look
from mlgitops.app.moves import Move, now, put
from mlgitops.app.promoting import promotion
from mlgitops.app.rolling import folder_of, projected
from mlgitops.app.writing import write
from mlgitops.core import diary
from mlgitops.core import release as release_machine
from mlgitops.core.configuration import Environment
from mlgitops.core.errors import Denied, InvalidInput
from mlgitops.core.events import stamp
from mlgitops.core.ledger import Approval, EnvironmentState, Hold
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import RolloutPhase
from mlgitops.ports.repository import Change


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command did, for people and programs."""

    words: str
    changed: bool
    values: dict[str, object]


def _write_state(
    context: Context, name: str, model: str, change: Callable[[View, EnvironmentState], Move | None]
) -> bool:
    """Change one state in the ledger, and show it on `main` where that needs something."""

    def decide(view: View) -> str | None:
        state = view.ledger.state(name, model)
        check_ahead(view, folder_of(view, environment_of(view, name, model), model), state)
        move = change(view, state)
        return None if move is None else put(view, move)

    return write(context, decide, lambda view: show_state(view, name, model))


def show_state(view: View, environment: str, model: str) -> Sequence[Change]:
    """Return the commit that shows the ledger's state of one model on `main`; none where it does already."""
    unit = environment_of(view, environment, model)
    return projected(view, folder_of(view, unit, model), view.ledger.state(environment, model))


def promote(
    context: Context,
    model: str,
    release: str,
    environment: str | None,
    *,
    reason: str,
    force: bool,
) -> Answer:
    """Ask for a rollout of a release: one commit on `main`, touching `rollout.yaml` alone.

    Raises:
        Denied: A hold, an open rollout, or an earlier rollback stands in the way.
    """
    if force and not reason:
        raise InvalidInput("--force needs --reason: it is kept with the promotion")
    view = look(context)
    unit = environment_of(view, environment, model)
    name = find_release(view, model, release).name
    values: dict[str, object] = {"release": name, "environment": unit.name}
    state = view.ledger.state(unit.name, model)
    if state.champion == name and state.open is None:
        return Answer(words=f"release {name} is live in {unit.name} already", changed=False, values=values)

    def wanted(view: View) -> Change:
        if view.problem is not None:
            raise view.problem
        state, found = view.ledger.state(unit.name, model), view.ledger.release(model, name)
        check_ahead(view, folder_of(view, unit, model), state)
        _promotable(view, unit, state, found, force=force)
        values["rollout"] = state.last_number + 1
        folder = folder_of(view, unit, model)
        return promotion(view, unit, folder, state, name, author=context.person, reason=reason, force=force)

    if unit.by_pull_request:
        return _propose(context, proposing.place_of(view, unit, model), wanted(view), values)
    write(context, lambda _: None, lambda view: (wanted(view),))
    words = f"release {name} is proposed for {unit.name} as rollout {values['rollout']}; reconcile takes it up"
    return Answer(words=words, changed=True, values=values)


def _propose(context: Context, place: proposing.Place, change: Change, values: dict[str, object]) -> Answer:
    pull, new = proposing.ask(context, place, change)
    values |= {"pullRequest": pull.number or None, "url": pull.url}  # neither in a dry run
    told = "proposes" if new else "proposes already"
    who, where = (f"pull request #{pull.number}", f": {pull.url}") if pull.number else ("a pull request", "")
    words = f"{who} {told} release {values['release']} for {values['environment']}{where}"
    return Answer(words=words, changed=new, values=values)


def _promotable(view: View, unit: Environment, state: EnvironmentState, release: Release, *, force: bool) -> None:
    action, subject = "promoting", f"release {release.name} to {unit.name}"
    asked = pending(view, folder_of(view, unit, state.model), state)
    if asked is not None:
        raise Denied(action, subject, f"rollout {asked.number} is proposed on main and not taken up yet")
    if state.open is not None:
        raise Denied(action, subject, f"rollout {state.open.number} is {state.open.phase}; there is one at a time")
    if release.phase is not ReleasePhase.CANDIDATE:
        raise Denied(action, subject, f"it is {release.phase}, and only a CANDIDATE can be rolled out")
    if release.collected:
        again = f"`mlgitops train --attempt {release.submission.attempt + 1}` trains anew"
        raise Denied(action, subject, f"its model was deleted by `mlgitops gc`; {again}")
    if state.hold is not None:
        raise Denied(action, subject, f"on hold by {state.hold.by}: {state.hold.reason}; `mlgitops resume` ends it")
    if any(one.rollback for one in state.tried(release.name)) and not force:
        raise Denied(action, subject, "it was rolled back here before; --force --reason brings it back all the same")


def hold(context: Context, model: str, environment: str | None, *, reason: str) -> Answer:
    """Stop automation for one model in one environment until `resume`."""
    unit = environment_of(look(context), environment, model)
    held = Hold(by=by(context.person), reason=reason, at=stamp(now(context)))

    def change(_: View, state: EnvironmentState) -> Move | None:
        if state.hold is not None:
            return None
        message = f"hold({model}): {unit.name} by {held.by}\n\n{reason}\n"
        return Move(state=replace(state, hold=held), message=message)

    changed = _write_state(context, unit.name, model, change)
    words = f"{model} in {unit.name} is on hold" if changed else f"{model} in {unit.name} was on hold already"
    return Answer(words=words, changed=changed, values={"model": model, "environment": unit.name, "hold": True})


def resume(context: Context, model: str, environment: str | None) -> Answer:
    """End a hold; what people changed by hand in owned fields is written over by the next projection."""
    unit = environment_of(look(context), environment, model)

    def change(view: View, state: EnvironmentState) -> Move | None:
        if state.hold is None and state.foreign is None:
            return None
        at = stamp(now(context))
        message = f"resume({model}): {unit.name} by {by(context.person)}"
        freed = replace(state, hold=None, foreign=None, resumed_at=at)
        if state.foreign is not None:  # a new generation, so that main is written anew
            known = {**state.projections, state.generation + 1: state.desired}
            freed = replace(
                freed,
                generation=state.generation + 1,
                projections=known,
                decided_on=view.main.revision or "",
            )
        return Move(state=freed, message=message)

    changed = _write_state(context, unit.name, model, change)
    words = f"{model} in {unit.name} goes on" if changed else f"{model} in {unit.name} was not on hold"
    return Answer(words=words, changed=changed, values={"model": model, "environment": unit.name, "hold": False})


def approve(context: Context, model: str, environment: str | None) -> Answer:
    """Approve the proposed rollout: this release by this plan with these manifests, and nothing else.

    Raises:
        Denied: Nothing is proposed, or the one who proposed approves.
    """
    view = look(context)
    unit = environment_of(view, environment, model)
    rollout = view.ledger.state(unit.name, model).open
    author = by(context.person)
    if rollout is None or rollout.phase is not RolloutPhase.PROPOSED:
        raise Denied("approving", f"{model} in {unit.name}", "nothing is proposed")
    if address(rollout.proposal.by) == address(author):
        raise Denied("approving", f"rollout {rollout.number}", "who proposed it cannot approve it")
    approval = Approval(
        rollout=rollout.number,
        release=rollout.release,
        plan_digest=rollout.proposal.plan_digest,
        by=author,
        at=stamp(now(context)),
        manifests=manifests_digest(view, view.ledger.state(unit.name, model)),
    )

    def change(_: View, state: EnvironmentState) -> Move | None:
        known = {(one.rollout, address(one.by), one.manifests) for one in state.approvals}
        if (approval.rollout, address(author), approval.manifests) in known:
            return None
        message = f"approve({model}): rollout {approval.rollout} in {unit.name} by {author}"
        return Move(state=replace(state, approvals=(*state.approvals, approval)), message=message)

    changed = _write_state(context, unit.name, model, change)
    words = f"rollout {rollout.number} of release {rollout.release} is approved by {author}"
    return Answer(words=words, changed=changed, values={"rollout": rollout.number, "release": rollout.release})


def abort(context: Context, model: str, release: str, *, reason: str) -> Answer:
    """Stop a release that is still on its way to a candidate."""
    found = find_release(look(context), model, release)
    event = release_machine.Aborted(at=now(context), by=by(context.person), reason=reason)
    return end_release(context, found, event, ReleasePhase.ABORTED)


def end_release(
    context: Context,
    found: Release,
    event: release_machine.Aborted | release_machine.Rejected,
    phase: ReleasePhase,
) -> Answer:
    """End a release by a person's word, unless it has ended so already."""
    model = found.submission.model

    def decide(view: View) -> str | None:
        release = view.ledger.release(model, found.name)
        if release.phase is phase:
            return None
        moved = release_machine.advance(release, event)
        view.ledger.put_release(moved)
        return diary.release(moved)

    changed = write(context, decide, lambda _: ())
    values: dict[str, object] = {"release": found.name, "phase": str(phase)}
    return Answer(words=f"release {found.name} is {phase}", changed=changed, values=values)
