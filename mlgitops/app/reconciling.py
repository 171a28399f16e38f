"""One idempotent pass over everything: read git, look at the world, decide, write back. It may be killed anywhere."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mlgitops.app.context import View, World, look
from mlgitops.app.proposing import propose
from mlgitops.app.rolling import environment_unit
from mlgitops.app.training import training_unit
from mlgitops.app.writing import Unit, write_together
from mlgitops.core.errors import Denied, MlgitopsError
from mlgitops.core.rollout import RolloutPhase

MOVES = 60
"""Moves of one thing in one pass; a pass always ends."""


@dataclass(kw_only=True)
class Pass:
    """What a pass did."""

    moves: int = 0
    problems: list[MlgitopsError] = field(default_factory=list)
    """What could not be found out or was refused, each about one model; the others went on."""


def reconcile(world: World, *, models: tuple[str, ...] = ()) -> Pass:
    """Move everything as far as it goes now: what goes back first, then what serves, what trains after that.

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
    left = view.left(chosen, environments)
    done.problems += [_told(environment, model) for environment, model in left]
    places = [*left, *_places(chosen, environments[::-1])]
    moved = _move(world, done, _serving(world, [one for one in places if _goes_back(view, *one)]))
    moved |= _move(world, done, _serving(world, places))
    moved |= _move(world, done, {training_unit(world, model): model for model in chosen})
    # What became a candidate, or trusted, just now is proposed in the same pass.
    _move(world, done, _serving(world, _places([one for one in chosen if one in moved], environments)))
    if any(one.by_pull_request for one in view.configuration.environments):
        moves, problems = propose(world, chosen)
        done.moves += moves
        done.problems += _new(problems, done)
    return done


def _places(models: Sequence[str], environments: Sequence[str]) -> list[tuple[str, str]]:
    return [(environment, model) for model in models for environment in environments]


def _serving(world: World, places: Sequence[tuple[str, str]]) -> dict[Unit, str]:
    return {environment_unit(world, environment, model): model for environment, model in places}


def _goes_back(view: View, environment: str, model: str) -> bool:
    """Say whether the ledger is rolling something back, or `main` asks for less than was decided: a revert.

    That is written before anybody is asked how the others do, however slow their answers are.
    """
    with suppress(MlgitopsError):  # told when its turn comes
        state, asked = view.ledger.state(environment, model), view.promotion(environment, model)
        wanted = state.desired.rollout
        reverted = wanted is not None and (asked is None or asked[0] < wanted.number)
        return reverted or (state.open is not None and state.open.phase is RolloutPhase.ROLLING_BACK)
    return False


def _told(environment: str, model: str) -> MlgitopsError:
    return Denied(
        "leaving out",
        f"environment {environment}",
        f"what {model} has there is watched as environments.yaml last said, and nothing is promoted "
        f"there: roll it back with `mlgitops rollback --environment {environment}`, or put {environment} back",
    )


def _move(world: World, done: Pass, units: Mapping[Unit, str]) -> set[str]:
    """Move units together until each stands still; the problems of one stop only itself.

    Returns:
        The models of the units that moved.
    """
    waiting, looks = list(units), Counter[Unit]()
    while waiting:
        try:
            written = write_together(world, waiting)
            done.problems += _new(written.problems, done)
            done.moves += len(written.moved)
            if written.moved:
                world.cluster.sync()
        except MlgitopsError as error:
            done.problems += _new([error], done)
            break
        looks.update(written.moved)
        # Who was not looked at yet comes first, so that nobody who moves again and again keeps the others waiting.
        waiting = [*written.left, *(one for one in written.moved if looks[one] < MOVES)]
    return {units[one] for one in looks}


def _new(problems: Sequence[MlgitopsError], done: Pass) -> list[MlgitopsError]:
    """Return problems that the pass did not tell yet."""
    known = {str(one) for one in done.problems}
    return list({str(one): one for one in problems if str(one) not in known}.values())
