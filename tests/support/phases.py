"""A rollout led to one phase, as a process finds it that looks for the first time."""

from collections.abc import Sequence
from dataclasses import replace

from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.rollout import RolloutPhase
from mlgitops.ports.repository import Change
from tests.support.memory import MemoryRepository
from tests.support.world import Engine, state_of


class Stopping(MemoryRepository):
    """A repository that takes nothing any more once the ledger has a rollout in a phase."""

    def __init__(self, world: World, number: int, phase: RolloutPhase) -> None:
        below = world.repository
        assert isinstance(below, MemoryRepository)
        self._commits, self.tips, self._identity = below._commits, below.tips, below._identity
        self._world, self._number, self._phase = world, number, phase
        self.reached = False

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        if self.reached:
            return self.tips.get(ref)
        done = super().update(ref, expected, changes)
        found = state_of(self._world).rollouts.get(self._number)
        self.reached = found is not None and found.phase is self._phase
        return done


def led_to(world: World, engine: Engine, number: int, phase: RolloutPhase) -> World:
    """Lead a rollout that was pushed to a phase, write by write, as a pass makes all the moves that it can."""
    for _ in range(60):
        stop = Stopping(world, number, phase)
        engine.clock.pass_seconds(5)
        reconcile(replace(world, repository=stop))
        if stop.reached:
            return world
    raise AssertionError(f"never {phase}")
