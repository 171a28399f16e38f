"""The command `rollback` at its worst moments: the first release, twice in a row, and while nobody answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.core.errors import Denied, Unavailable
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.memory import edited
from tests.support.phases import led_to
from tests.support.world import (
    ENVIRONMENTS,
    FOLDER,
    MODEL,
    Engine,
    Quality,
    live,
    push,
    quick_world,
    seen_by,
    settle,
    state_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
MANIFESTS = ("inferenceservice.yaml", "inferenceservice-canary.yaml", "route.yaml")
MOVING = [P.STARTING, P.STEP, P.ANALYSING, P.COMPLETING]


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def manifests(world: World) -> dict[str, bytes]:
    main = world.repository.snapshot(MAIN)
    return {name: data for name in MANIFESTS if (data := main.read(f"{FOLDER}/{name}")) is not None}


def tips(world: World) -> list[str | None]:
    return [world.repository.snapshot(ref).revision for ref in (MAIN, LEDGER)]


@pytest.mark.parametrize("phase", [P.PROPOSED, P.STARTING, P.LIVE])
def test_a_rollback_of_the_first_release_leaves_nothing_and_the_next_one_goes_live(
    world: tuple[World, Engine], phase: P
) -> None:
    """Wherever the first rollout is, a rollback takes every manifest away; the next release is a first one again."""
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    led_to(*world, 1, phase)
    assert rollbacks.rollback(world[0], MODEL, None, reason="wrong data").changed
    settle(*world, 1)
    state = state_of(world[0])
    assert state.rollouts[1].phase is (P.WITHDRAWN if phase is P.PROPOSED else P.ROLLED_BACK)
    assert (state.champion, state.open, manifests(world[0])) == (None, None, {})
    before = tips(world[0])
    with pytest.raises(Denied, match="nothing serves and nothing is under way"):
        rollbacks.rollback(world[0], MODEL, None, reason="again")
    assert tips(world[0]) == before
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    assert state_of(world[0]).last_number == 1, "what a person took away stays away until a person says so"
    deciding.resume(world[0], MODEL, None)
    settle(*world, 1)
    assert (state_of(world[0]).champion, state_of(world[0]).rollouts[2].proposal.champion) == (second, None)
    assert second != first


@pytest.mark.parametrize("phase", MOVING)
def test_a_rollback_typed_twice_is_one(world: tuple[World, Engine], phase: P) -> None:
    """Who types the command again while it is carried out changes nothing: the champion stays, not the one before."""
    live(*world, "zero", GOOD, trusted=True)
    first = live(*world, "one", GOOD, trusted=True)
    before = manifests(world[0])
    push(world[0], "two", quality=BETTER, engine=world[1])
    led_to(*world, 3, phase)
    assert rollbacks.rollback(world[0], MODEL, None, reason="bad").changed
    decided = tips(world[0])
    assert not rollbacks.rollback(world[0], MODEL, None, reason="is it gone?").changed
    assert tips(world[0]) == decided
    settle(*world, 1)
    state = state_of(world[0])
    assert (state.rollouts[3].phase, state.champion) == (P.ROLLED_BACK, first)
    assert manifests(world[0]) == before


class Silent(Engine):
    """An engine that nobody hears: cluster, servers, counts and evaluations are all away."""

    def __init__(self, other: Engine) -> None:
        super().__init__(**{name: getattr(other, name) for name in Engine.__dataclass_fields__})

    def job(self, environment: str, name: str) -> NoReturn:
        raise Unavailable("cluster", "nobody answers")

    def observe(self, environment: str, model: str) -> NoReturn:
        raise Unavailable("serving", "nobody answers")

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Any]:
        raise Unavailable("metrics", "nobody answers")

    def problem(self, environment: str, model: str) -> str:
        raise Unavailable("metrics", "nobody answers")

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        raise Unavailable("cluster", "nobody answers")

    def evaluate(self, request: object) -> NoReturn:
        raise Unavailable("evaluator", "nobody answers")


@pytest.mark.parametrize("phase", MOVING)
def test_a_rollback_needs_nobody_who_is_away(world: tuple[World, Engine], phase: P) -> None:
    """While counts, servers and cluster are all down a rollback is on main at once, and ends when they are back."""
    first = live(*world, "one", GOOD, trusted=True)
    before = manifests(world[0])
    push(world[0], "two", quality=BETTER, engine=world[1])
    led_to(*world, 2, phase)
    away = Silent(world[1])
    deaf = seen_by(away, world[0].repository)
    assert rollbacks.rollback(deaf, MODEL, None, reason="at night").changed
    route = owned.read_route(manifests(world[0])["route.yaml"], "r")
    assert route.canary_weight_percent == 0, "no request goes to what is taken back"
    assert state_of(world[0]).rollouts[2].phase is P.ROLLING_BACK
    for one in settle(deaf, away, 60, passes=3):
        assert [*map(type, one.problems)] == [Unavailable]
    assert state_of(world[0]).rollouts[2].phase is P.ROLLING_BACK, "nobody says that it is done before it was seen"
    settle(*world, 1)
    state = state_of(world[0])
    assert (state.rollouts[2].phase, state.champion, manifests(world[0])) == (P.ROLLED_BACK, first, before)


@pytest.mark.parametrize("phase", [P.STEP, P.ANALYSING])
def test_a_rollback_ends_while_nobody_counts_what_serves_beside_it(phase: P) -> None:
    """With the counts down and the champion on probation itself, a rollback by hand still comes to its end."""
    world, engine = quick_world(ENVIRONMENTS.replace("probationSeconds: 60", "probationSeconds: 80000"))
    live(world, engine, "zero", GOOD)
    first = live(world, engine, "one", GOOD)
    push(world, "two", quality=BETTER, engine=engine)
    led_to(world, engine, 3, phase)
    engine.metrics_down = True
    rollbacks.rollback(world, MODEL, None, reason="at night")
    settle(world, engine, 1, passes=6)
    state = state_of(world)
    assert (state.rollouts[3].phase, state.champion) == (P.ROLLED_BACK, first)
    assert state.live is not None
    assert not state.live.trusted


def test_a_rollback_of_what_serves_alone_needs_nobody_either(world: tuple[World, Engine]) -> None:
    """Last-good is asked for on main in the same command, however silent everybody is."""
    first = live(*world, "one", GOOD, trusted=True)
    live(*world, "two", BETTER, trusted=True)
    away = Silent(world[1])
    answer = rollbacks.rollback(seen_by(away, world[0].repository), MODEL, None, reason="at night")
    assert (answer.changed, answer.values["target"]) == (True, 1)
    wanted = {owned.read_service(data, name).release for name, data in manifests(world[0]).items() if "service" in name}
    assert first in wanted
    settle(*world, 1)
    assert state_of(world[0]).champion == first


def test_a_window_that_begins_during_a_rollout_stops_neither_it_nor_its_safety() -> None:
    """What is under way when a freeze begins goes on to its end, and goes back at once where it harms."""
    freeze = b"    freezeWindows:\n      - {name: f, start: '2026-11-30T12:00:00Z', end: '2026-12-02T12:00:00Z'}\n"
    for quality, ends in ((BETTER, P.LIVE), (Quality(accuracy=0.97, wrong=0.40), P.ROLLED_BACK)):
        world, engine = quick_world()
        live(world, engine, "one", GOOD, trusted=True)
        push(world, "two", quality=quality, engine=engine)
        led_to(world, engine, 2, P.STEP)
        main = world.repository.snapshot(MAIN)
        text = (main.read("environments.yaml") or b"").replace(b"    plan: quick\n", b"    plan: quick\n" + freeze)
        assert freeze in text
        edited(world.repository, MAIN, {"environments.yaml": text})
        settle(world, engine, 15)
        assert state_of(world).rollouts[2].phase is ends
        push(world, "three", quality=BETTER, engine=engine)
        if ends is P.ROLLED_BACK:
            deciding.resume(world, MODEL, None)
        settle(world, engine, 15)
        assert state_of(world).last_number == 2
