"""A short walk over the whole loop, told as steps that may be repeated, so that it can be cut anywhere."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mlgitops.app import rollbacks
from mlgitops.app.context import World
from mlgitops.core.manifest.fields import LEDGER, MAIN
from tests.support.memory import Interposed, MemoryRepository
from tests.support.world import (
    ENVIRONMENTS,
    MODEL,
    Engine,
    Quality,
    push,
    quick_world,
    seen_by,
    settle,
    state_of,
    view_of,
)

QUICK = ENVIRONMENTS.replace("      - {weight: 50, seconds: 10}\n      - {weight: 95, seconds: 10}\n", "").replace(
    "probationSeconds: 60", "probationSeconds: 80000"
)
"""One step, and a probation longer than the walk: every kind of move, and none that depends on how long it took."""


def first(world: World, engine: Engine) -> None:
    """Push the first release."""
    push(world, "one", quality=Quality(accuracy=0.95, wrong=0.05), engine=engine)


def second(world: World, engine: Engine) -> None:
    """Push a better one."""
    push(world, "two", quality=Quality(accuracy=0.97, wrong=0.03), engine=engine)


def back(world: World, _: Engine) -> None:
    """Roll back by hand, as a person who types the command again after it was killed."""
    rollbacks.rollback(world, MODEL, None, reason="by hand")


STEPS: tuple[Callable[[World, Engine], None], ...] = (first, second, back)


@dataclass
class Walk:
    """One walk: the repository, the engine, and where it is."""

    world: World
    engine: Engine
    at: int = 0
    """Index of the step that is being made."""

    @classmethod
    def fresh(cls) -> "Walk":
        """Return a walk at its beginning."""
        return cls(*quick_world(QUICK))

    def go(self, *, until: int = len(STEPS)) -> "Walk":
        """Make the steps that are left, each until the loop stands still."""
        while self.at < until:
            STEPS[self.at](self.world, self.engine)
            settle(self.world, self.engine, 15)
            self.at += 1
        return self

    def seen_through(self, repository: Interposed) -> "Walk":
        """Return the same walk by a process that sees the repository so."""
        return replace(self, world=seen_by(self.engine, repository))

    def fork(self) -> "Walk":
        """Return an independent walk with the same past."""
        below = self.world.repository
        repository = below.below if isinstance(below, Interposed) else below
        assert isinstance(repository, MemoryRepository)
        copy = repository.fork()
        engine = replace(
            self.engine,
            repository=copy,
            clock=replace_clock(self.engine),
            qualities=dict(self.engine.qualities),
            trained=list(self.engine.trained),
            jobs=dict(self.engine.jobs),
        )
        return Walk(seen_by(engine, copy), engine, self.at)


def replace_clock(engine: Engine) -> Any:
    """Return a clock of the same time that moves by itself."""
    clock = type(engine.clock)()
    clock.time = engine.clock.time
    return clock


def outcome(walk: Walk) -> dict[str, Any]:
    """Return what must be the same however a walk was disturbed: no revisions, no times."""
    world = walk.world
    state, ledger = state_of(world), view_of(world).ledger
    main = world.repository.snapshot(MAIN)
    return {
        "releases": {one.name: str(one.phase) for one in ledger.releases(MODEL)},
        "rollouts": {number: (one.release, str(one.phase)) for number, one in state.rollouts.items()},
        "events": {number: [type(one).__name__ for one in found.history] for number, found in state.rollouts.items()},
        "champion": state.champion,
        "hold": None if state.hold is None else state.hold.reason,
        "foreign": state.foreign,
        "trained": list(walk.engine.trained),
        "main": {path: main.read(path) for path in main.paths()},
        "diary": subjects(world, MAIN),
        "ledger": subjects(world, LEDGER),
    }


def subjects(world: World, ref: str) -> list[str]:
    """Return the subjects of a branch's commits, sorted: things that do not depend on each other may change places."""
    revision = world.repository.snapshot(ref).revision
    assert revision is not None
    every = [one.message.splitlines()[0] for one in world.repository.history(revision)]
    # How far a release is when its job leaves `main` depends on who got that far.
    return sorted(one.partition(" ended ")[0] for one in every)
