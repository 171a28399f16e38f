"""One idempotent pass over everything: read git, look at the world, decide, write back. It may be killed anywhere."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mlgitops.app.context import View, World, look
from mlgitops.app.rolling import advance_environment
from mlgitops.app.training import advance_training
from mlgitops.core.errors import Denied, MlgitopsError

MOVES = 60
"""Moves of one thing in one pass; a pass always ends."""


@dataclass(kw_only=True)
class Pass:
    """What a pass did."""

    moves: int = 0
    problems: list[MlgitopsError] = field(default_factory=list)
    """What could not be found out or was refused, each about one model; the others went on."""


def reconcile(world: World, *, models: tuple[str, ...] = ()) -> Pass:
    """Move everything as far as it goes now: what serves first, what trains after that.

    Args:
        world: The outside world.
        models: Only these; empty for all.
    """
    done = Pass()
    view = look(world)
    world = replace(world, metrics=world.metrics.using(view.configuration.metrics))
    chosen = [one for one in view.ledger.models() if not models or one in models]
    environments = [one.name for one in view.configuration.environments]
    if view.problem is not None:
        done.problems.append(view.problem)
    done.problems += _unlisted(view, chosen, environments)
    for model in chosen:
        for environment in reversed(environments):
            _repeat(world, done, lambda e=environment, m=model: advance_environment(world, e, m))  # type: ignore[misc]
    for model in chosen:
        _repeat(world, done, lambda m=model: advance_training(world, m))  # type: ignore[misc]
    for model in chosen:  # what became a candidate just now is proposed in the same pass
        for environment in environments:
            _repeat(world, done, lambda e=environment, m=model: advance_environment(world, e, m))  # type: ignore[misc]
    return done


def _unlisted(view: View, models: list[str], environments: list[str]) -> list[MlgitopsError]:
    """Tell what serves, or is under way, in environments that `environments.yaml` does not have any more."""
    left = [(name, model) for name, model in view.ledger.environments() if model in models and name not in environments]
    states = [view.ledger.state(name, model) for name, model in left]
    return [
        Denied(
            "leaving out",
            f"environment {one.environment}",
            f"{one.model} still serves or is under way there and nobody watches it; "
            f"put {one.environment} back into environments.yaml, and roll {one.model} back first",
        )
        for one in states
        if one.open is not None or one.live is not None
    ]


def _repeat(world: World, done: Pass, move: Callable[[], bool]) -> None:
    """Move one thing until it stands still; its problems stop only itself."""
    try:
        for _ in range(MOVES):
            if not move():
                return
            done.moves += 1
            world.cluster.sync()
    except MlgitopsError as error:
        if str(error) not in {str(one) for one in done.problems}:
            done.problems.append(error)
