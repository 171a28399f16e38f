"""The write protocol, explored: every order, every death; and the code makes the calls that the model makes."""

import sys
from collections.abc import Callable
from functools import cache

from mlgitops.app import rollbacks
from mlgitops.app.context import World, look
from mlgitops.app.promoting import promotion
from mlgitops.app.rolling import environment_unit, folder_of
from mlgitops.app.training import training_unit
from mlgitops.app.writing import write_together
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import RolloutPhase
from tests.model import protocol as model
from tests.model.protocol import Call, Found, Phase, Protocol, State, Word, alone, explore, first_state, idle
from tests.support.memory import Interposed
from tests.support.walk import QUICK, Walk
from tests.support.world import MODEL, Engine, Quality, live, push, quick_world, seen_by, settle, state_of, view_of

WHOLE = Protocol()
LOOK = (Call.READ_MAIN, Call.READ_LEDGER)


@cache
def everything() -> Found:
    """Return what the protocol can do."""
    return explore(WHOLE)


def counterexample(protocol: Protocol, promise: Callable[[State], str], words: str) -> None:
    """Check that a protocol with a part taken out breaks a promise; prints how."""
    found = explore(protocol, promise)
    sys.stdout.write("\n  ".join((str(protocol), found.broken, *found.trace, "")))
    assert words in found.broken
    assert found.trace


def test_every_order_and_every_death_keeps_the_promises() -> None:
    """Nothing overtakes a finished rollback, nothing is decided or committed twice, nobody is said to have done it."""
    found = everything()
    assert found.broken == "", found.trace


def test_the_exploration_meets_what_it_is_about() -> None:
    """The explored states hold each rollback, the promotion that goes all the way, and every phase between."""
    ends = {(one.ledger.one, one.ledger.two, one.finished is not None) for one in everything().states}
    assert {(Phase.OFF, Phase.NONE, True), (Phase.LIVE, Phase.OFF, True), (Phase.RETIRED, Phase.LIVE, False)} <= ends
    assert {two for _, two, _ in ends} == {*Phase} - {Phase.RETIRED}
    assert len(everything().states) > 20_000


def test_whatever_happened_one_more_process_brings_main_to_the_ledger() -> None:
    """From wherever everybody died, a reconciler alone ends with `main` saying what the ledger decided."""
    for state in {one._replace(actors=(idle(WHOLE),) * 3) for one in everything().states}:
        end = alone(WHOLE, state, 0)
        assert end.main.shown == model.desired(end.ledger)
        assert end.main.generation == end.ledger.generation
        assert model.broken(end) == ""


def test_whatever_happened_a_rollback_comes_to_its_end() -> None:
    """No state keeps the command `rollback` from finishing: there is no deadlock, whoever died holding what."""
    for state in {one._replace(actors=(idle(WHOLE),) * 3) for one in everything().states}:
        if state.finished is None:
            end = alone(WHOLE, state, model.PERSON)
            assert end.finished is not None
            assert model.broken(end) == ""


def test_the_order_of_reading_is_needed() -> None:
    """With the ledger read first, a promotion decided before a finished rollback lands after it."""
    counterexample(Protocol(main_first=False, ahead=False), model.overtaken, "landed on main afterwards")


def test_the_order_of_reading_keeps_the_guard_against_a_rewound_ledger_quiet() -> None:
    """With the ledger read first, a healthy repository is taken for one whose ledger was rewound."""
    counterexample(Protocol(main_first=False), model.broken, "was rewound, and it was not")


def test_the_generation_is_needed() -> None:
    """Without the generation, a rollback that finds `main` right commits nothing, and an older step lands after it."""
    counterexample(Protocol(generation=False), model.overtaken, "rollout 2 was rolled back")


def test_the_generation_tells_a_revert_from_a_projection_to_come() -> None:
    """Without the generation, what a person took back on `main` is written over."""
    counterexample(Protocol(generation=False), model.broken, "written over")


def test_the_second_look_at_main_is_needed() -> None:
    """Without the second look, a promotion that landed between two readings is taken back in a person's name."""
    counterexample(Protocol(look_again=False), model.slandered, "a person who did nothing")


# The model is bound to the code.


def recorded(world: World, engine: Engine, act: Callable[[World], object]) -> Word:
    """Return the calls that something makes of the repository."""
    calls: list[Call] = []

    def read(_: int, ref: str) -> None:
        calls.append({MAIN: Call.READ_MAIN, LEDGER: Call.READ_LEDGER}[ref])

    def write(_: int, ref: str) -> None:
        calls.append({MAIN: Call.PUSH_MAIN, LEDGER: Call.PUSH_LEDGER}[ref])

    act(seen_by(engine, Interposed(world.repository, before_read=read, before_write=write)))
    return tuple(calls)


def modelled(ledger: dict[str, object], shown: tuple[int, int, int], *, back: bool = False) -> Word:
    """Return the calls of one process in a situation of the model."""
    start = first_state(WHOLE)
    before = start.ledger._replace(**ledger)  # type: ignore[arg-type]
    before = before._replace(projections=(model.BEGIN, model.desired(before)))
    state = start._replace(
        main=start.main._replace(shown=model.Shown(*shown)), ledger=before, chosen=2 if back else None
    )
    number = model.PERSON if back else 0
    while True:
        calls = (*state.actors[number].calls, state.actors[number].next)
        state = model.stepped(WHOLE, state, number)
        if state.actors[number] == idle(WHOLE):
            return calls


def one_attempt(world: World) -> None:
    """Let production's unit decide and show once, as a pass does."""
    write_together(world, [environment_unit(world, "production", MODEL)])


def at_first_live() -> tuple[World, Engine, str]:
    """Return a world in which one release serves and another is a candidate that nobody promoted."""
    world, engine = quick_world(QUICK)
    live(world, engine, "one", Quality())
    name = push(world, "two", quality=Quality(accuracy=0.97, wrong=0.03), engine=engine).name
    for _ in range(8):
        write_together(world, [training_unit(world, MODEL)])
    return world, engine, name


def test_a_pass_makes_the_calls_of_the_model() -> None:
    """Promoting, taking up, stepping and doing nothing are, in the code, the calls that were explored."""
    world, engine, _ = at_first_live()
    assert recorded(world, engine, one_attempt) == modelled({}, (1, 1, 0)) == (*LOOK, Call.PUSH_MAIN)
    taken_up = (*LOOK, Call.READ_MAIN, Call.PUSH_LEDGER)
    assert recorded(world, engine, one_attempt) == modelled({}, (2, 1, 0)) == taken_up
    proposed = {"last": 2, "two": Phase.PROPOSED}
    moved = (*LOOK, Call.PUSH_LEDGER, Call.PUSH_MAIN)
    assert recorded(world, engine, one_attempt) == modelled(proposed, (2, 1, 0)) == moved
    rollbacks.rollback(world, MODEL, None, reason="stop")
    settle(world, engine, 1)
    over = {"last": 2, "two": Phase.OFF, "held": True}
    assert recorded(world, engine, one_attempt) == modelled(over, (1, 1, 0)) == LOOK


def test_a_rollback_makes_the_calls_of_the_model() -> None:
    """The command `rollback` chooses on one look, decides on the next, and writes the ledger before `main`."""
    world, engine, _ = at_first_live()
    while (open_ := state_of(world).open) is None or open_.phase is not RolloutPhase.STEP:
        one_attempt(world)
    made = recorded(world, engine, lambda seen: rollbacks.rollback(seen, MODEL, None, reason="stop"))
    stepping = {"last": 2, "two": Phase.STEP}
    assert made == (*LOOK, *modelled(stepping, (2, 1, 10), back=True), *LOOK)


def test_a_rollback_meets_a_promotion_as_the_model_does() -> None:
    """A promotion that nobody took up is refused by the rollback after a second look at `main`."""
    world, engine, name = at_first_live()
    view, unit = view_of(world), look(world).configuration.environments[0]
    asked = promotion(view, unit, folder_of(view, unit, MODEL), state_of(world), name)
    world.repository.update(MAIN, view.main.revision, [asked])
    made = recorded(world, engine, lambda seen: rollbacks.rollback(seen, MODEL, None, reason="stop"))
    assert made == (*LOOK, *modelled({}, (2, 1, 0), back=True), *LOOK)


def test_a_whole_walk_is_made_of_the_words_of_the_model() -> None:
    """Two releases and a rollback by hand make no sequence of calls that was not explored."""
    walk = Walk.fresh()
    calls = recorded(walk.world, walk.engine, lambda seen: Walk(seen, walk.engine).go())
    words = everything().words
    starts = [at for at in range(len(calls)) if calls[at : at + 2] == LOOK]
    parts = {calls[at:end] for at, end in zip(starts, [*starts[1:], len(calls)], strict=True)}
    assert parts <= words
    assert len(parts) >= 4
