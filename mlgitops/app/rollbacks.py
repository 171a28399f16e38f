"""Rollbacks by hand: one command, no gates, bounded time, still a commit."""

from dataclasses import replace

from mlgitops.app.absorbing import answer_revert, check_ahead, pending, take_up
from mlgitops.app.context import Context, View, by, environment_of, find_release, look
from mlgitops.app.deciding import Answer, end_release, show_state
from mlgitops.app.moves import Move, now, put, rolled_back
from mlgitops.app.rolling import folder_of
from mlgitops.app.writing import write
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import Environment
from mlgitops.core.errors import Denied
from mlgitops.core.events import stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.release import Rejected, ReleasePhase
from mlgitops.core.rollout import Rollout, RolloutPhase


def rollback(context: Context, model: str, environment: str | None, *, reason: str) -> Answer:
    """Return all traffic to what served before, by one commit, without gates; automation is on hold afterwards.

    An open rollout that moved something goes back to the champion; else what is LIVE goes back to last-good; else what
    is only proposed is withdrawn. A promotion that nobody took up yet is withdrawn with it.

    Raises:
        Denied: Nothing serves and nothing is under way.
    """
    view = look(context)
    unit = environment_of(view, environment, model)
    chosen = _chosen(view.ledger.state(unit.name, model))
    if chosen is None:
        raise Denied("rolling back", f"{model} in {unit.name}", "nothing serves and nothing is under way")
    changed = roll_back(context, unit, model, chosen.number, reason or "asked for by hand")
    return _answer(look(context).ledger.state(unit.name, model), chosen.number, changed=changed)


def _chosen(state: EnvironmentState) -> Rollout | None:
    moving = state.open if state.open is not None and state.open.phase is not RolloutPhase.PROPOSED else None
    return moving or state.live or state.open


def roll_back(context: Context, unit: Environment, model: str, number: int, reason: str) -> bool:
    """Roll one rollout back, or withdraw it where it moved nothing; it is named, so that no retry meets another."""

    def decide(view: View) -> str | None:
        folder = folder_of(view, unit, model)
        state = view.ledger.state(unit.name, model)
        check_ahead(view, folder, state)
        waiting = pending(view, folder, state)
        if waiting is not None:
            first: Move | None = take_up(
                context, view, unit, state, waiting, refusal=f"a rollback came first: {reason}"
            )
        else:  # what somebody took back on main: this does not write over it
            first = answer_revert(context, view, folder, state)
        message = None if first is None else put(view, first)
        state = view.ledger.state(unit.name, model)
        move = _move(context, state, state.rollouts[number], reason)
        return message if move is None else put(view, move)

    return write(context, decide, lambda view: show_state(view, unit.name, model))


def _move(context: Context, state: EnvironmentState, rollout: Rollout, reason: str) -> Move | None:
    author, at = by(context.person), now(context)
    if rollout.phase in machine.MOVED:
        changed = rolled_back(state, rollout, author, reason, at)
        return Move.of(changed, changed.rollouts[rollout.number])
    if rollout.phase is not RolloutPhase.PROPOSED:
        return None
    moved = machine.advance(rollout, machine.Withdrawn(at=at, by=author, reason=reason))
    held = Hold(by=author, reason=f"rollout {rollout.number} was withdrawn: {reason}", at=stamp(at))
    return Move.of(replace(state.with_rollout(moved), hold=held), moved)


def _answer(state: EnvironmentState, number: int, *, changed: bool) -> Answer:
    rollout = state.rollouts[number]
    target = rollout.rollback.target if rollout.rollback else state.live.number if state.live else None
    values: dict[str, object] = {
        "rollout": number,
        "release": rollout.release,
        "phase": str(rollout.phase),
        "target": target,
    }
    serves = f"rollout {target} (release {state.rollouts[target].release}) serves" if target else "nothing serves"
    words = (
        f"{state.environment} is taken off release {rollout.release} (rollout {number}, {rollout.phase}); "
        f"{serves} afterwards; automation is on hold until `mlgitops resume`"
    )
    return Answer(words=words, changed=changed, values=values)


def reject(context: Context, model: str, release: str, *, reason: str) -> Answer:
    """Refuse a release for good; where it serves or is under way, it is rolled back first."""
    view = look(context)
    found = find_release(view, model, release)
    for unit in view.configuration.environments:
        state = view.ledger.state(unit.name, model)
        for rollout in (state.open, state.live):
            if rollout is not None and rollout.release == found.name:
                roll_back(context, unit, model, rollout.number, f"release {found.name} is rejected: {reason}")
    event = Rejected(at=now(context), by=by(context.person), reason=reason)
    return end_release(context, found, event, ReleasePhase.REJECTED)
