"""What `gc` deletes, and what it never does."""

import pytest

from mlgitops.app import collecting, deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.world import MODEL, Engine, Quality, live, push, quick_world, settle, state_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)


@pytest.fixture(scope="module")
def three() -> tuple[World, Engine, tuple[str, ...]]:
    """Return a world with a refused release and three that went live one after another."""
    world, engine = quick_world()
    names = [live(world, engine, "one", GOOD, trusted=True)]
    names.append(push(world, "worse", quality=Quality(accuracy=0.6, wrong=0.4), engine=engine).name)
    settle(world, engine, 15)
    names += [live(world, engine, code, BETTER, trusted=True) for code in ("two", "three")]
    return world, engine, tuple(names)


def gone(world: World, engine: Engine, keep: int | None, *, dry_run: bool = True) -> list[str | None]:
    return [one.release for one in collecting.collect(world, engine, keep=keep, dry_run=dry_run)]


def test_what_serves_and_two_rollbacks_find_their_model(three: tuple[World, Engine, tuple[str, ...]]) -> None:
    """However few are kept, the champion, last-good and the one behind it stay; what was refused goes."""
    world, engine, names = three
    assert gone(world, engine, 0) == [names[1]]
    assert gone(world, engine, 0, dry_run=True) == [names[1]]
    assert engine.deleted == []


def test_the_newest_are_kept(three: tuple[World, Engine, tuple[str, ...]]) -> None:
    """As many of the newest as asked for stay, whatever became of them; without a word the file decides."""
    world, engine, _ = three
    assert gone(world, engine, 3) == []
    assert gone(world, engine, None) == []


def test_what_waits_is_tried_or_is_returned_to_stays() -> None:
    """A candidate that is next, one under way, and the target of an open rollback keep their models."""
    world, engine = quick_world()
    first = live(world, engine, "one", GOOD, trusted=True)
    deciding.hold(world, MODEL, None, reason="wait")
    second = push(world, "two", quality=BETTER, engine=engine).name
    settle(world, engine, 1)
    assert gone(world, engine, 0) == []
    deciding.resume(world, MODEL, None)
    settle(world, engine, 0.2, passes=3)
    assert (found := state_of(world).open) is not None
    assert found.release == second
    assert gone(world, engine, 0) == []
    rollbacks.rollback(world, MODEL, None, reason="bad")
    assert state_of(world).rollouts[2].phase is P.ROLLING_BACK
    assert gone(world, engine, 0) == []
    settle(world, engine, 1)
    assert state_of(world).champion == first
    assert gone(world, engine, 0) == [second]
    assert engine.deleted == []
    assert gone(world, engine, 0, dry_run=False) == [second]
    assert [one.rpartition("/")[2] for one in engine.deleted] == [second]
    assert gone(world, engine, 0) == []
