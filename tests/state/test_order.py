"""Who goes when: environments in order, freezes, approvals, queues, and the words of people."""

from dataclasses import replace

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import Denied, IllegalTransition
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Person
from tests.support.memory import edited
from tests.support.world import (
    CONFIGURATION,
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
    view_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
STAGED = ENVIRONMENTS.replace(
    "  - name: production\n", "  - name: staging\n    plan: quick\n    probationSeconds: 60\n  - name: production\n", 1
)
FROZEN = ENVIRONMENTS.replace(
    "    gates:\n",
    "    freezeWindows:\n"
    '      - {name: holidays, start: "2026-12-20T00:00:00Z", end: "2027-01-02T00:00:00Z"}\n'
    "    gates:\n",
    1,
)
DECEMBER_21 = 21 * 86_400
APPROVED = ENVIRONMENTS.replace("    gates:\n", "    approvals: 2\n    gates:\n", 1)
SUPERSEDE = CONFIGURATION.replace("  script: train.py\n", "  script: train.py\n  newer: supersede\n")


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def phase(world: World, release: str) -> ReleasePhase:
    return view_of(world).ledger.release(MODEL, release).phase


def test_production_follows_when_staging_trusts() -> None:
    """A release reaches production by itself, and only after it passed its probation in staging."""
    world = quick_world(STAGED)
    release = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=5)
    assert state_of(world[0], "staging").champion == release
    assert state_of(world[0]).rollouts == {}
    settle(*world, 61)
    assert state_of(world[0], "staging").rollouts[1].trusted
    assert state_of(world[0]).champion == release


def test_production_by_hand_is_refused_before_staging_trusts() -> None:
    """A promotion past staging is refused without force, and goes through with force and a reason."""
    world = quick_world(STAGED)
    release = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=3)
    deciding.promote(world[0], MODEL, release, "production", reason="", force=False)
    settle(*world, 1, passes=3)
    assert state_of(world[0]).rollouts[1].phase is P.REFUSED
    assert "staging" in state_of(world[0]).rollouts[1].reason
    deciding.promote(world[0], MODEL, release, "production", reason="fire", force=True)
    settle(*world, 1, passes=3)
    assert state_of(world[0]).champion == release
    assert state_of(world[0]).rollouts[2].proposal.forced == "fire"


def test_what_staging_rolled_back_never_reaches_production() -> None:
    """A release that harms in staging stays there; production keeps what it serves."""
    world = quick_world(STAGED)
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 61)
    push(world[0], "two", quality=replace(BETTER, wrong=0.4), engine=world[1])
    settle(*world, 61)
    assert state_of(world[0], "staging").rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == first
    assert state_of(world[0]).last_number == 1
    assert state_of(world[0]).hold is None


def test_freeze_stops_promotions_and_no_rollback() -> None:
    """In a freeze window nothing is promoted and what was proposed waits; a rollback is written at once."""
    world = quick_world(FROZEN)
    first = live(*world, "one", GOOD, trusted=True)
    live(*world, "two", BETTER)
    world[1].clock.pass_seconds(DECEMBER_21)
    third = push(world[0], "three", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    assert state_of(world[0]).last_number == 2
    deciding.promote(world[0], MODEL, third, None, reason="", force=False)
    settle(*world, 1)
    assert state_of(world[0]).rollouts[3].phase is P.PROPOSED
    world[1].qualities[first] = GOOD
    rollbacks.rollback(world[0], MODEL, None, reason="bad")
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).rollouts[3].phase is P.WITHDRAWN


def test_frozen_promotion_goes_on_after_the_window() -> None:
    """What waited in a freeze window starts when it is over, by itself."""
    world = quick_world(FROZEN)
    world[1].clock.pass_seconds(DECEMBER_21)
    release = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1)
    assert state_of(world[0]).rollouts == {}
    settle(*world, 14 * 86_400, passes=3)
    assert state_of(world[0]).champion == release


def test_approvals_are_of_people_and_never_of_the_proposer() -> None:
    """Each address counts once, who proposed cannot approve, and the rollout starts with the last one needed."""
    world = quick_world(APPROVED)
    ada, engine = world
    release = push(ada, "one", quality=GOOD, engine=engine).name
    deciding.hold(ada, MODEL, None, reason="by hand this time")
    settle(*world, 1)
    deciding.resume(ada, MODEL, None)
    deciding.promote(ada, MODEL, release, None, reason="", force=False)
    settle(*world, 1, passes=3)
    with pytest.raises(Denied, match="proposed"):
        deciding.approve(ada, MODEL, None)
    with pytest.raises(Denied, match="proposed"):
        deciding.approve(replace(ada, person=Person(name="A.", email="ADA@example.org")), MODEL, None)
    bob = seen_by(engine, engine.repository, "Bob")
    assert deciding.approve(bob, MODEL, None).changed
    assert not deciding.approve(
        replace(bob, person=Person(name="Robert", email="bob@example.org")), MODEL, None
    ).changed
    settle(*world, 1, passes=3)
    assert state_of(ada).rollouts[1].phase is P.PROPOSED
    deciding.approve(seen_by(engine, engine.repository, "Cleo"), MODEL, None)
    settle(*world, 1, passes=3)
    assert state_of(ada).champion == release


def test_approvals_do_not_pass_on_to_other_content() -> None:
    """What was approved was one release by one plan: the next rollout starts with no approval."""
    world = quick_world(APPROVED)
    push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1, passes=4)
    for person in ("Bob", "Cleo"):
        deciding.approve(seen_by(world[1], world[1].repository, person), MODEL, None)
    rollbacks.rollback(world[0], MODEL, None, reason="not yet")
    deciding.resume(world[0], MODEL, None)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 1, passes=5)
    assert state_of(world[0]).rollouts[1].phase is P.WITHDRAWN
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED


def test_promotion_of_another_plan_is_refused(world: tuple[World, Engine]) -> None:
    """A plan that changed after the promotion was written refuses it, and main shows the champion again."""
    first = live(*world, "one", GOOD)
    deciding.hold(world[0], MODEL, None, reason="wait")
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    deciding.resume(world[0], MODEL, None)
    deciding.promote(world[0], MODEL, second, None, reason="", force=False)
    changed = ENVIRONMENTS.replace("alpha: 0.01", "alpha: 0.02")
    edited(world[0].repository, MAIN, {"environments.yaml": changed.encode()})
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.REFUSED
    assert "plan quick was changed" in state_of(world[0]).rollouts[2].reason
    assert first.encode() in (world[0].repository.snapshot(MAIN).read(f"{FOLDER}/rollout.yaml") or b"")


def test_push_during_a_rollout_trains_and_is_proposed_only_afterwards(world: tuple[World, Engine]) -> None:
    """One rollout at a time: a newer release becomes a candidate meanwhile and follows when the way is free."""
    live(*world, "one", GOOD)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    third = push(world[0], "three", quality=BETTER, engine=world[1]).name
    settle(*world, 0.2, passes=4)
    assert phase(world[0], third) is ReleasePhase.CANDIDATE
    assert state_of(world[0]).last_number == 2
    settle(*world, 15)
    assert state_of(world[0]).champion == third


def test_of_two_waiting_candidates_only_the_newest_is_proposed(world: tuple[World, Engine]) -> None:
    """A candidate that a newer one overtook while it waited is never brought out by automation."""
    live(*world, "one", GOOD)
    deciding.hold(world[0], MODEL, None, reason="wait")
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    third = push(world[0], "three", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert {one.release for one in state_of(world[0]).rollouts.values()}.isdisjoint({second})
    assert state_of(world[0]).champion == third


@pytest.mark.parametrize(("configuration", "trains"), [(CONFIGURATION, 3), (SUPERSEDE, 2)])
def test_waiting_trainings_queue_or_are_superseded(
    world: tuple[World, Engine], configuration: str, trains: int
) -> None:
    """Pushes behind an open training train in order, or only the newest, as the newest configuration says."""
    world[1].trains_at_once = False
    names = []
    for code in ("one", "two", "three"):
        names.append(push(world[0], code, quality=GOOD, engine=world[1], configuration=configuration).name)
        settle(*world, 1, passes=3)
    assert world[1].trained == names[:1]
    world[1].trains_at_once = True
    world[1].finish(f"{MODEL}-{names[0]}")
    settle(*world, 1)
    assert world[1].trained == (names if trains == 3 else [names[0], names[2]])
    assert phase(world[0], names[1]) is (ReleasePhase.CANDIDATE if trains == 3 else ReleasePhase.ABORTED)


def test_abort_takes_the_training_off_main(world: tuple[World, Engine]) -> None:
    """An aborted release's job is unlisted by the next pass, and the next release trains."""
    world[1].trains_at_once = False
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=3)
    deciding.abort(world[0], MODEL, first, reason="wrong data")
    reconcile(world[0])
    listing = world[0].repository.snapshot(MAIN).read(f"environments/training/{MODEL}/kustomization.yaml") or b""
    assert "tfjob.yaml" not in owned.listed_resources(listing, "kustomization.yaml")
    assert phase(world[0], first) is ReleasePhase.ABORTED
    second = push(world[0], "two", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=3)
    assert phase(world[0], second) is ReleasePhase.TRAINING
    world[1].finish(f"{MODEL}-{second}")
    settle(*world, 1, passes=3)
    with pytest.raises(IllegalTransition):
        deciding.abort(world[0], MODEL, second, reason="too late")


def _reach(world: World, engine: Engine, wanted: ReleasePhase) -> str:
    """Bring a release to a phase and leave it there."""
    deciding.hold(world, MODEL, None, reason="nothing is promoted here") if MODEL in view_of(
        world
    ).ledger.models() else None
    quality = Quality(trains=wanted is not ReleasePhase.FAILED)
    if wanted is ReleasePhase.EVALUATING:
        engine.slow_evaluations = 1_000
    engine.evaluation_error = "crashed" if wanted is ReleasePhase.ERRORED else ""
    engine.trains_at_once = wanted not in {ReleasePhase.TRAINING, ReleasePhase.QUEUED}
    if wanted is ReleasePhase.QUEUED:
        push(world, "before", engine=engine)
        settle(world, engine, 1, passes=3)
    name = push(world, "it", quality=quality, engine=engine).name
    if wanted is not ReleasePhase.SUBMITTED:
        settle(world, engine, 1, passes=3)
    if wanted is ReleasePhase.ABORTED:
        name = push(world, "other", engine=engine).name
        deciding.abort(world, MODEL, name, reason="wrong")
    return name


@pytest.mark.parametrize("wanted", [one for one in ReleasePhase if one is not ReleasePhase.REJECTED])
def test_a_release_can_be_rejected_wherever_it_is(world: tuple[World, Engine], wanted: ReleasePhase) -> None:
    """Whatever phase it meets, a rejection ends a release for good: nothing trains, evaluates or promotes it."""
    name = _reach(*world, wanted)
    assert phase(world[0], name) is wanted
    rollbacks.reject(world[0], MODEL, name, reason="biased")
    settle(*world, 15, passes=4)
    assert phase(world[0], name) is ReleasePhase.REJECTED
    assert state_of(world[0]).champion != name
    again = push(world[0], "it", engine=world[1]).name if wanted is not ReleasePhase.ABORTED else name
    settle(*world, 15, passes=3)
    assert phase(world[0], again) is ReleasePhase.REJECTED
    ledger = world[0].repository.snapshot(LEDGER).revision
    assert not rollbacks.reject(world[0], MODEL, name, reason="biased").changed
    assert world[0].repository.snapshot(LEDGER).revision == ledger


def test_a_second_promotion_by_command_is_refused_before_it_is_written() -> None:
    """While a rollout is under way, or asked for on main, `promote` says so and writes nothing, force or not."""
    world, engine = quick_world()
    live(world, engine, "one", GOOD, trusted=True)
    deciding.hold(world, MODEL, None, reason="by hand only")
    names = [push(world, code, quality=BETTER, engine=engine).name for code in ("two", "three")]
    settle(world, engine, 0.2)
    deciding.resume(world, MODEL, None)
    deciding.promote(world, MODEL, names[0], None, reason="", force=False)
    for said in (
        "rollout 2 is proposed on main and not taken up yet",
        "rollout 2 is ANALYSING; there is one at a time",
    ):
        before = world.repository.snapshot(MAIN).revision
        with pytest.raises(Denied, match=said):
            deciding.promote(world, MODEL, names[1], None, reason="now", force=True)
        assert world.repository.snapshot(MAIN).revision == before
        settle(world, engine, 0.2, passes=2)
