"""A process that dies after the ledger and before `main`, and people who write on `main` before the next one looks."""

from collections.abc import Callable

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.memory import Interposed, Killed, edited
from tests.support.world import FOLDER, MODEL, Engine, Quality, live, push, quick_world, seen_by, settle, state_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
ROLLOUT = f"{FOLDER}/rollout.yaml"
SERVICE = f"{FOLDER}/inferenceservice.yaml"
CANARY = f"{FOLDER}/inferenceservice-canary.yaml"


def read(world: World, path: str) -> bytes:
    return world.repository.snapshot(MAIN).read(path) or b""


def killed_before_main(world: World, engine: Engine, act: Callable[[World], object]) -> None:
    """Let a process do something and die where it would show on `main` what it decided."""

    def before_write(_: int, ref: str) -> None:
        if ref == MAIN:
            raise Killed

    with pytest.raises(Killed):
        act(seen_by(engine, Interposed(world.repository, before_write=before_write)))


def decided_and_not_shown(phase: P) -> tuple[World, Engine, bytes]:
    """Return a world whose second rollout is at `phase` in the ledger, which `main` does not show; and its revert."""
    world, engine = quick_world()
    live(world, engine, "one", GOOD, trusted=True)
    right = read(world, ROLLOUT)
    push(world, "two", quality=BETTER, engine=engine)
    for _ in range(40):
        open_ = state_of(world).open
        if open_ is not None and open_.phase is P.PROPOSED:
            break
        one_write(world, engine)
    while (open_ := state_of(world).open) is None or open_.phase is not phase:
        killed_before_main(world, engine, reconcile)
    return world, engine, right


def one_write(world: World, engine: Engine) -> None:
    """Let a pass write once, and die before its second write."""

    def before_write(number: int, _: str) -> None:
        if number:
            raise Killed

    try:
        reconcile(seen_by(engine, Interposed(world.repository, before_write=before_write)))
    except Killed:
        return


@pytest.mark.parametrize("command", ["hold", "resume"])
def test_no_command_writes_over_a_revert_that_nobody_answered(command: str) -> None:
    """A promotion that a person took back on main stays taken back, whichever command comes before the next pass."""
    world, engine, right = decided_and_not_shown(P.STARTING)
    if command == "resume":
        killed_before_main(world, engine, lambda seen: deciding.hold(seen, MODEL, None, reason="look first"))
    edited(world.repository, MAIN, {ROLLOUT: right})
    if command == "hold":
        deciding.hold(world, MODEL, None, reason="look first")
    elif command == "resume":
        deciding.resume(world, MODEL, None)
    assert read(world, ROLLOUT) == right
    assert read(world, CANARY) == b""
    settle(world, engine, 1)
    taken_back = state_of(world).rollouts[2]
    assert taken_back.phase is P.ROLLED_BACK
    assert taken_back.rollback is not None
    assert taken_back.rollback.by.startswith("Bob")
    assert read(world, ROLLOUT) == right


def test_no_command_writes_over_an_edit_that_nobody_answered() -> None:
    """A field that a person changed by hand after a decision stays as it is until the next pass has told it."""
    world, _, _ = decided_and_not_shown(P.STARTING)
    changed = read(world, SERVICE).replace(b"pvc://", b"pvc://elsewhere/")
    edited(world.repository, MAIN, {SERVICE: changed})
    deciding.hold(world, MODEL, None, reason="look first")
    assert read(world, SERVICE) == changed
    reconcile(world)
    assert "storageUri" in state_of(world).rollouts[2].reason
    assert state_of(world).rollouts[2].phase is P.ROLLED_BACK


def test_a_rollback_does_not_write_over_the_revert_of_another_rollout() -> None:
    """Somebody's revert of what was proposed is answered by a rollback that meets it, not undone in passing."""
    world, engine = quick_world()
    live(world, engine, "one", GOOD, trusted=True)
    live(world, engine, "two", BETTER, trusted=True)
    right = read(world, ROLLOUT)
    third = push(world, "three", quality=BETTER, engine=engine).name
    deciding.hold(world, MODEL, None, reason="wait")
    settle(world, engine, 1)
    deciding.resume(world, MODEL, None)
    deciding.promote(world, MODEL, third, None, reason="", force=False)
    deciding.hold(world, MODEL, None, reason="wait")
    reconcile(world)
    assert state_of(world).rollouts[3].phase is P.PROPOSED
    edited(world.repository, MAIN, {ROLLOUT: right})
    rollbacks.rollback(world, MODEL, None, reason="two is bad")
    state = state_of(world)
    assert [state.rollouts[number].phase for number in (2, 3)] == [P.ROLLING_BACK, P.WITHDRAWN]
    settle(world, engine, 1)
    assert [state_of(world).rollouts[number].phase for number in (1, 2)] == [P.LIVE, P.ROLLED_BACK]


def test_a_resume_that_died_half_way_stays_a_resume() -> None:
    """What a person resumed over is written over by the next pass, also where the command died before it did so."""
    world, engine = quick_world()
    live(world, engine, "one", GOOD, trusted=True)
    right = read(world, SERVICE)
    edited(world.repository, MAIN, {SERVICE: right.replace(b"pvc://", b"pvc://elsewhere/")})
    reconcile(world)
    assert state_of(world).foreign is not None
    killed_before_main(world, engine, lambda seen: deciding.resume(seen, MODEL, None))
    settle(world, engine, 1)
    assert state_of(world).hold is None
    assert read(world, SERVICE) == right


def test_an_edit_after_a_resume_that_died_is_told() -> None:
    """A resume covers what its person saw: what was changed by hand after it holds the model again."""
    world, engine = quick_world()
    live(world, engine, "one", GOOD, trusted=True)
    right = read(world, SERVICE)
    edited(world.repository, MAIN, {SERVICE: right.replace(b"pvc://", b"pvc://elsewhere/")})
    reconcile(world)
    killed_before_main(world, engine, lambda seen: deciding.resume(seen, MODEL, None))
    again = right.replace(b"pvc://", b"pvc://third/")
    edited(world.repository, MAIN, {SERVICE: again}, person="Eve")
    settle(world, engine, 1)
    held = state_of(world).hold
    assert held is not None
    assert held.by.startswith("Eve")
    assert read(world, SERVICE) == again
