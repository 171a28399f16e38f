"""Two at once, met at every boundary: a rollback always wins, no decision is lost, no number is given twice."""

from collections.abc import Callable
from functools import cache

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import Denied
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.memory import Interposed
from tests.support.walk import Walk, outcome
from tests.support.world import FOLDER, MODEL, seen_by, settle, state_of

Intruder = Callable[[World], None]
BOUNDARIES = 52
"""Moments of a rollout at which somebody else may come in; the last test below counts them."""


@cache
def start() -> Walk:
    """Return the walk with the first release live and the second pushed, nothing of it done."""
    return Walk.fresh().go(until=1)


@cache
def undisturbed() -> dict[str, object]:
    """Return how the second release ends when nobody comes in."""
    return outcome(start().fork().go(until=2))


def disturbed(at: int, intruder: Intruder) -> tuple[Walk, bool]:
    """Bring the second release out, with somebody else at the `at`-th boundary; says whether it was reached.

    Boundaries are before every write, and between every reading of `main` and the reading of the ledger after it.
    """
    walk = start().fork()
    other, count = walk.world, 0

    def boundary(_: int, ref: str) -> None:
        nonlocal count
        if ref == MAIN and not writing:
            return
        count += 1
        if count - 1 == at:
            intruder(other)

    writing: list[int] = []

    def before_write(number: int, ref: str) -> None:
        writing.append(number)
        boundary(number, ref)
        writing.pop()

    seen = walk.seen_through(Interposed(walk.world.repository, before_write=before_write, before_read=boundary))
    seen.go(until=2)
    return walk, count > at


def by_hand(world: World) -> None:
    """Roll back whatever there is to roll back."""
    eve = seen_by(world.cluster, world.repository, "Eve")  # type: ignore[arg-type]
    try:
        rollbacks.rollback(eve, MODEL, None, reason="stop")
    except Denied:
        return


def consistent(walk: Walk) -> None:
    """Check what must hold whoever met whom."""
    state = state_of(walk.world)
    assert sorted(state.rollouts) == list(range(1, state.last_number + 1))
    assert sum(one.is_open for one in state.rollouts.values()) == 0
    assert sum(one.phase is P.LIVE for one in state.rollouts.values()) <= 1
    assert len(walk.engine.trained) == len({*walk.engine.trained})
    served = walk.world.repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice.yaml") or b""
    assert (state.champion or "nothing").encode() in (served or b"nothing")


def meets(at: int, intruder: Intruder) -> Walk:
    """Return the disturbed walk, after checking it."""
    walk, reached = disturbed(at, intruder)
    assert reached
    settle(walk.world, walk.engine, 1)  # who came in at the last reading of all is answered by the next pass
    consistent(walk)
    return walk


def rollback_wins(at: int) -> None:
    """Check that after a rollback by hand at a boundary its release is off, and stays off."""
    hit: list[int] = []

    def intruder(world: World) -> None:
        state = state_of(world)
        moving = state.open if state.open is not None and state.open.phase is not P.PROPOSED else None
        chosen = moving or state.live or state.open
        assert chosen is not None
        by_hand(world)
        hit.append(chosen.number)
        main = world.repository.snapshot(MAIN)
        assert state_of(world).rollouts[chosen.number].phase in {P.ROLLING_BACK, P.ROLLED_BACK, P.WITHDRAWN}
        canary_gets = b"weight: 100" in (main.read(f"{FOLDER}/route.yaml") or b"weight: 100")
        assert canary_gets, "traffic is off the canary when the command returns"

    walk = meets(at, intruder)
    state = state_of(walk.world)
    assert state.rollouts[hit[0]].phase in {P.ROLLED_BACK, P.WITHDRAWN}
    assert state.hold is not None
    assert state.champion != state.rollouts[hit[0]].release
    settle(walk.world, walk.engine, 30, passes=3)
    assert state_of(walk.world) == state


@pytest.mark.parametrize("at", range(0, BOUNDARIES, 7))
def test_rollback_by_hand_wins_at_sampled_boundaries(at: int) -> None:
    """A rollback that comes in between what a pass read and what it writes takes the release off for good."""
    rollback_wins(at)


@pytest.mark.long
@pytest.mark.parametrize("at", range(BOUNDARIES))
def test_rollback_by_hand_wins_at_every_boundary(at: int) -> None:
    """A rollback wins at whatever moment of a rollout it comes in."""
    rollback_wins(at)


def nothing_doubles(at: int) -> None:
    """Check that a second pass at a boundary changes nothing about the end."""

    def second_pass(world: World) -> None:
        reconcile(world)

    walk = meets(at, second_pass)
    assert outcome(walk) == undisturbed()


@pytest.mark.parametrize("at", range(3, BOUNDARIES, 7))
def test_two_passes_at_once_end_as_one_at_sampled_boundaries(at: int) -> None:
    """A second pass that comes in anywhere leads to the same releases, numbers, commits and manifests."""
    nothing_doubles(at)


@pytest.mark.long
@pytest.mark.parametrize("at", range(BOUNDARIES))
def test_two_passes_at_once_end_as_one_at_every_boundary(at: int) -> None:
    """Two passes are one pass, wherever they meet."""
    nothing_doubles(at)


@pytest.mark.parametrize("at", range(5, BOUNDARIES, 11))
def test_hold_by_hand_is_never_lost(at: int) -> None:
    """A hold that comes in anywhere is there afterwards, and no step passes that was not decided before it."""
    moment: list[int] = []

    def intruder(world: World) -> None:
        if state_of(world).hold is None:
            deciding.hold(world, MODEL, None, reason="look first")
            moment.append(len(state_of(world).rollouts))

    walk, reached = disturbed(at, intruder)
    assert reached
    state = state_of(walk.world)
    assert state.hold is not None
    assert state.hold.reason == "look first"
    assert len(state.rollouts) <= moment[0] + 1


def test_numbers_of_boundaries_cover_the_rollout() -> None:
    """The boundaries tried are all that a rollout has."""
    assert disturbed(BOUNDARIES - 1, lambda _: None)[1]
    assert not disturbed(BOUNDARIES, lambda _: None)[1]
