"""Killed anywhere, the next process goes on to the same end: nothing twice, nothing lost."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory import Interposed, Killed
from tests.support.walk import QUICK, Walk, outcome
from tests.support.world import seen_by, world_of


@cache
def undisturbed() -> tuple[dict[str, Any], tuple[Walk, ...]]:
    """Walk once; returns how it ends, and the walk as it stood before each write."""
    walk, stands = Walk.fresh(), []

    def remember(_: int, __: str) -> None:
        stands.append(seen.fork())

    seen = walk.seen_through(Interposed(walk.world.repository, before_write=remember))
    seen.go()
    return outcome(seen), tuple(stands)


WRITES = 38
"""Writes of the walk; the first test below counts them."""


def killed_before(number: int) -> Walk:
    """Return the walk as the process that died before a write left it."""
    return undisturbed()[1][number].fork()


def test_the_walk_meets_every_kind_of_write() -> None:
    """The walk that is cut trains, starts, weighs, completes, rolls back and restores, by known numbers of writes."""
    end, stands = undisturbed()
    assert len(stands) == WRITES
    assert [phase for _, phase in end["rollouts"].values()] == ["LIVE", "ROLLED_BACK"]
    assert len(end["trained"]) == 2


@pytest.mark.parametrize("number", range(0, WRITES, 4))
def test_killed_before_a_write_ends_the_same(number: int) -> None:
    """Whichever write was the last that landed, the next process ends as if nobody had been killed."""
    assert outcome(killed_before(number).go()) == undisturbed()[0]


@pytest.mark.long
@pytest.mark.parametrize("number", range(WRITES))
def test_killed_before_any_write_ends_the_same(number: int) -> None:
    """Whichever write was the last that landed, the next process ends as if nobody had been killed."""
    assert outcome(killed_before(number).go()) == undisturbed()[0]


@pytest.mark.parametrize("number", range(0, WRITES, 9))
def test_killed_again_and_again_ends_the_same(number: int) -> None:
    """A process that is killed after each write still gets there, one write at a time."""
    walk = killed_before(number)
    for _ in range(2 * WRITES):

        def one_only(count: int, _: str) -> None:
            if count:
                raise Killed

        cut = walk.seen_through(Interposed(walk.world.repository, before_write=one_only))
        try:
            cut.go()
        except Killed:
            walk.at = cut.at
        else:
            break
    assert outcome(walk) == undisturbed()[0]


@pytest.mark.parametrize("number", [3, 7, 16, 29])
def test_killed_on_a_real_repository(tmp_path: Path, number: int) -> None:
    """The same holds in git: a process that died in the middle is followed by one that opens the repository anew."""

    def die(count: int, _: str) -> None:
        if count == number:
            raise Killed

    world, engine = world_of(tmp_path, environments=QUICK)
    walk = Walk(world, engine)
    cut = walk.seen_through(Interposed(world.repository, before_write=die))
    with pytest.raises(Killed):
        cut.go()
    after, _ = world_of(tmp_path)
    engine.repository = after.repository
    again = Walk(seen_by(engine, after.repository), engine, cut.at)
    found, expected = outcome(again.go()), undisturbed()[0]
    assert {**found, "main": None} == {**expected, "main": None}
