"""Several models move together: one push for what one look decided, and nobody waits for another's trouble."""

from collections import Counter
from collections.abc import Sequence

import pytest

from mlgitops.app import rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.app.writing import Unit, write_together
from mlgitops.core.analysis.counts import Sample
from mlgitops.core.errors import Conflict, Denied, InvalidInput
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Change
from tests.support.memory import Interposed, Killed, MemoryRepository
from tests.support.world import Engine, Quality, live, push, quick_world, seen_by, settle, state_of, view_of

MODELS = ("digits", "letters", "words")
GOOD, BETTER, SKEWED = Quality(), Quality(0.97, 0.03), Quality(0.97, 0.4)


@pytest.fixture
def world() -> tuple[World, Engine]:
    """Three models, each with a champion and a canary in its first step."""
    made = quick_world()
    for model in MODELS:
        live(*made, f"one of {model}", GOOD, model=model)
    for model in MODELS:
        push(made[0], f"two of {model}", quality=BETTER, engine=made[1], model=model)
    settle(*made, 0.2, passes=4)
    assert {phase(made[0], model) for model in MODELS} == {P.ANALYSING}
    return made


def phase(world: World, model: str, number: int = 2) -> P:
    return state_of(world, model=model).rollouts[number].phase


def commits(world: World, ref: str, until: str | None) -> list[str]:
    revision = world.repository.snapshot(ref).revision
    assert revision is not None
    return [one.message.splitlines()[0] for one in world.repository.history(revision, until=until)]


def memory_of(engine: Engine) -> MemoryRepository:
    assert isinstance(engine.repository, MemoryRepository)
    return engine.repository


def test_one_look_is_one_push_each_way(world: tuple[World, Engine]) -> None:
    """Three decisions are three commits in one push of the ledger, and three projections in one push of `main`."""
    pushed: Counter[str] = Counter()
    watched = Interposed(memory_of(world[1]), before_write=lambda _, ref: pushed.update([ref]))
    before = {ref: watched.below.snapshot(ref).revision for ref in (MAIN, LEDGER)}
    world[1].clock.pass_seconds(15)
    reconcile(seen_by(world[1], watched))
    subjects = commits(world[0], LEDGER, before[LEDGER])
    assert sum("StepPassed" in one for one in subjects) == len(MODELS)
    assert sum("SplitObserved" in one for one in subjects) == len(MODELS)
    assert len(commits(world[0], MAIN, before[MAIN])) == len(MODELS)
    assert pushed == {LEDGER: 2, MAIN: 1}


def test_a_model_that_cannot_decide_stops_no_other(world: tuple[World, Engine]) -> None:
    """A damaged file of one model is told, and the others go all the way."""
    path = "environments/production/letters/rollouts/00002.yaml"
    ledger = world[0].repository.snapshot(LEDGER)
    world[0].repository.update(LEDGER, ledger.revision, [Change(message="damage", files={path: b"- 1\n"})])
    done = settle(*world, 15)
    assert any("letters" in str(one) for one in done[0].problems)
    for model in ("digits", "words"):
        assert phase(world[0], model) is P.LIVE


def test_what_a_server_refuses_of_one_model_stops_no_other(world: tuple[World, Engine]) -> None:
    """Where a hook refuses one model's files, the push is repeated for each by itself."""

    class Hooked(Interposed):
        def update(self, ref: str, expected: str | None, changes):
            if any("/letters/" in path for one in changes for path in one.files):
                raise Denied("pushing", ref, "letters is frozen by its owner")
            return super().update(ref, expected, changes)

    hooked = seen_by(world[1], Hooked(memory_of(world[1])))
    told: list[str] = []
    for _ in range(12):
        world[1].clock.pass_seconds(15)
        told += [str(one) for one in reconcile(hooked).problems]
    assert any("frozen by its owner" in one for one in told)
    assert phase(world[0], "letters") is P.ANALYSING
    for model in ("digits", "words"):
        assert phase(world[0], model) is P.LIVE


def test_a_rollback_of_one_goes_out_with_the_steps_of_others(world: tuple[World, Engine]) -> None:
    """A harmful canary goes back in the pass in which the others pass their steps."""
    for release in {state_of(world[0], model="letters").rollouts[2].release}:
        world[1].qualities[release] = SKEWED
    settle(*world, 15)
    assert phase(world[0], "letters") is P.ROLLED_BACK
    assert {phase(world[0], model) for model in ("digits", "words")} == {P.LIVE}


def asked_first(world: tuple[World, Engine], monkeypatch: pytest.MonkeyPatch, model: str) -> P:
    """Return where a model's canary is, in the ledger, when a pass first asks what users met."""
    found: list[P] = []
    known = Engine.samples

    def samples(self: Engine, environment: str, name: str, rollout: int) -> Sequence[Sample]:
        found.append(phase(world[0], model))
        return known(self, environment, name, rollout)

    monkeypatch.setattr(Engine, "samples", samples)
    reconcile(world[0])
    assert found
    return found[0]


def test_what_goes_back_waits_for_nobody(world: tuple[World, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that is under way ends before the metrics of any other model are asked for, which may take long."""
    rollbacks.rollback(world[0], "letters", None, reason="by hand")
    assert phase(world[0], "letters") is P.ROLLING_BACK
    assert asked_first(world, monkeypatch, "letters") is P.ROLLED_BACK


def test_what_a_person_reverted_waits_for_nobody(world: tuple[World, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """A revert on `main` is answered in full before the metrics of any other model are asked for."""
    path = "environments/production/letters/rollout.yaml"
    main = world[0].repository.snapshot(MAIN)
    assert main.revision is not None
    promotion = next(iter(world[0].repository.history(main.revision, path=path)))
    former = world[0].repository.at(promotion.parents[0]).read(path)
    world[0].repository.update(MAIN, main.revision, [Change(message="Revert", files={path: former})])
    assert asked_first(world, monkeypatch, "letters") is P.ROLLED_BACK


@pytest.mark.long
def test_killed_anywhere_all_of_them_go_on(world: tuple[World, Engine]) -> None:
    """After a kill before any write of a pass over three models, the next one ends where an undisturbed one does."""
    for number in range(40):
        fork = memory_of(world[1]).fork()
        engine = Engine(
            repository=fork, clock=world[1].clock, qualities=dict(world[1].qualities), jobs=dict(world[1].jobs)
        )

        def stop(write: int, _ref: str, at: int = number) -> None:
            if write == at:
                raise Killed

        disturbed = seen_by(engine, Interposed(fork, before_write=stop))
        engine.clock.pass_seconds(15)
        try:
            settle(disturbed, engine, 15)
            ended = True
        except Killed:
            ended = False
        after = seen_by(engine, fork)
        settle(after, engine, 15, passes=30)
        for model in MODELS:
            state = state_of(after, model=model)
            assert state.last_number == 2
            assert state.rollouts[2].phase is P.LIVE
            events = Counter(type(one).__name__ for one in state.rollouts[2].history)
            assert events["ServingAll"] == events["LastStepPassed"] == 1
        subjects = commits(after, MAIN, None)
        assert len(subjects) == len(set(subjects)), "a commit was made twice"
        if ended:
            return
    raise AssertionError("a pass has more writes than expected")


def test_a_rollback_by_hand_beats_a_batch_decided_before(world: tuple[World, Engine]) -> None:
    """A rollback that lands between a batch's reading and its writing wins, and the others' decisions land too."""
    rolled: list[bool] = []

    def intervene(_: int, ref: str) -> None:
        if ref == LEDGER and not rolled:
            rolled.append(True)
            rollbacks.rollback(world[0], "letters", None, reason="by hand")

    world[1].clock.pass_seconds(15)
    reconcile(seen_by(world[1], Interposed(memory_of(world[1]), before_write=intervene)))
    settle(*world, 15)
    assert rolled
    assert phase(world[0], "letters") is P.ROLLED_BACK
    assert {phase(world[0], model) for model in ("digits", "words")} == {P.LIVE}


def test_what_was_decided_does_not_wait_for_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a decision waited as long as it may, it is written, and the others come with the next look."""
    world, _ = quick_world()
    moments = iter(range(0, 1000, 1))
    monkeypatch.setattr("mlgitops.app.writing.monotonic", lambda: float(next(moments)))

    def unit(name: str) -> Unit:
        def decide(view):
            if view.ledger.log(name, "x") is not None:
                return None
            view.ledger.put_log(name, "x", b"decided")
            return f"decide {name}"

        return Unit(decide, lambda _: ())

    units = [unit(name) for name in MODELS]
    first = write_together(world, units)
    assert (first.moved, first.left) == (units[:2], units[2:])
    assert view_of(world).ledger.log("words", "x") is None
    assert write_together(world, first.left).moved == units[2:]


def test_a_part_that_failed_leaves_nothing(world: tuple[World, Engine]) -> None:
    """What a unit had put before it failed is in no commit, and another's decision does not see it."""

    def failing(view):
        view.ledger.put_log("digits", "x", b"half")
        raise InvalidInput("no")

    def looking(view):
        assert view.ledger.log("digits", "x") is None
        view.ledger.put_log("digits", "y", b"whole")
        return "decide"

    done = write_together(world[0], [Unit(failing, lambda _: ()), Unit(looking, lambda _: ())])
    assert [str(one) for one in done.problems] == ["no"]
    assert view_of(world[0]).ledger.log("digits", "x") is None
    assert view_of(world[0]).ledger.log("digits", "y") == b"whole"


def test_a_lost_race_repeats_every_decision(world: tuple[World, Engine]) -> None:
    """When the ledger moved, all of a batch is decided anew on what is there now; what landed is told as moved."""
    lost: list[bool] = []

    def lose(_: int, ref: str) -> None:
        if ref == MAIN and len(lost) < 2:
            lost.append(True)
            raise Conflict(ref, "a", "b")

    world[1].clock.pass_seconds(15)
    done = reconcile(seen_by(world[1], Interposed(memory_of(world[1]), before_write=lose)))
    assert len(lost) == 2
    assert done.moves >= len(MODELS)
    settle(*world, 15)
    assert {phase(world[0], model) for model in MODELS} == {P.LIVE}
