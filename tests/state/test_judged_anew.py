"""Pushes of the same training that change what judges: gates, the evaluation, the evaluation set."""

import pytest

from mlgitops.app import deciding
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import Rollout
from mlgitops.core.rollout import RolloutPhase as P
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
    settle,
    state_of,
    view_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
APPROVED = ENVIRONMENTS.replace("    probationSeconds: 60\n", "    probationSeconds: 60\n    approvals: 1\n")


def limit(minimum: float) -> str:
    """Return a configuration whose own gate asks for an accuracy."""
    return CONFIGURATION + f"  gates: [{{metric: accuracy, minimum: {minimum}}}]\n"


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def release_of(world: World, name: str) -> Release:
    return view_of(world).ledger.release(MODEL, name)


def newest(world: World) -> Rollout:
    state = state_of(world)
    return state.rollouts[state.last_number]


def under_way(world: World, engine: Engine, code: str = "two") -> str:
    """Start a rollout and leave it in its first step."""
    release = push(world, code, quality=BETTER, engine=engine)
    settle(world, engine, 0.2, passes=4)
    assert newest(world).phase is P.ANALYSING
    return release.name


def test_a_tightened_gate_takes_an_approved_promotion_back() -> None:
    """Approval does not survive an evaluation anew that fails: the rollout is refused, and nothing has moved."""
    world = quick_world(APPROVED)
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1, passes=6)
    push(world[0], "one", engine=world[1], configuration=limit(0.99))
    deciding.approve(world[0], MODEL, None)
    settle(*world, 15)
    assert newest(world[0]).phase is P.REFUSED
    assert "by now: accuracy" in newest(world[0]).reason
    assert release_of(world[0], release.name).phase is ReleasePhase.FAILED
    assert world[0].repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice.yaml") is None


def test_an_approved_promotion_waits_while_its_release_is_evaluated_anew() -> None:
    """A rollout starts neither before the evaluation by another evaluation set has ended nor without its answer."""
    world = quick_world(APPROVED)
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1, passes=6)
    push(world[0], "one", engine=world[1], evaluation="other")
    world[1].slow_evaluations = 2
    deciding.approve(world[0], MODEL, None)
    reconcile(world[0])
    assert release_of(world[0], release.name).phase is ReleasePhase.EVALUATING
    assert newest(world[0]).phase is P.PROPOSED
    settle(*world, 15)
    assert state_of(world[0]).champion == release.name
    assert world[1].evaluation_sets == [f"pvc://mlgitops-store/evaluation/{name}" for name in ("evaluation", "other")]


def test_a_canary_that_fails_a_tightened_gate_goes_back(world: tuple[World, Engine]) -> None:
    """What is under way and is refused by its own new gate is taken off users, and the champion serves."""
    first = live(*world, "one", GOOD)
    second = under_way(*world)
    push(world[0], "two", engine=world[1], configuration=limit(0.99))
    settle(*world, 1)
    assert newest(world[0]).phase is P.ROLLED_BACK
    assert "was evaluated anew, and failed: accuracy" in newest(world[0]).reason
    assert state_of(world[0]).champion == first
    assert release_of(world[0], second).phase is ReleasePhase.FAILED


def test_what_serves_is_not_taken_away_by_a_gate(world: tuple[World, Engine]) -> None:
    """A LIVE release that fails its new gate is told to have FAILED, and serves until a person decides."""
    first = live(*world, "one", GOOD)
    push(world[0], "one", engine=world[1], configuration=limit(0.99))
    settle(*world, 15)
    assert release_of(world[0], first).phase is ReleasePhase.FAILED
    assert state_of(world[0]).champion == first
    assert len(world[1].evaluation_sets) == 1, "it is not compared with itself"
    push(world[0], "one", engine=world[1])
    settle(*world, 15)
    assert release_of(world[0], first).phase is ReleasePhase.CANDIDATE
    assert (state_of(world[0]).champion, state_of(world[0]).last_number) == (first, 1)


def test_a_gate_that_was_too_tight_costs_no_training(world: tuple[World, Engine]) -> None:
    """A release that failed its own gate goes live after a push of a looser one, without any training."""
    release = push(world[0], "one", quality=GOOD, engine=world[1], configuration=limit(0.99))
    settle(*world, 15)
    assert release_of(world[0], release.name).phase is ReleasePhase.FAILED
    push(world[0], "one", engine=world[1], configuration=limit(0.9))
    settle(*world, 15)
    assert state_of(world[0]).champion == release.name
    assert world[1].trained == [release.name]
    assert len(world[1].evaluation_sets) == 1


def test_a_gate_changed_during_training_judges_what_it_yields(world: tuple[World, Engine]) -> None:
    """A push of another gate while the training runs disturbs nothing, and the model is judged by the new one."""
    world[1].trains_at_once = False
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1, passes=3)
    push(world[0], "one", engine=world[1], configuration=limit(0.99))
    assert release_of(world[0], release.name).phase is ReleasePhase.TRAINING
    world[1].finish(f"{MODEL}-{release.name}")
    settle(*world, 1)
    assert release_of(world[0], release.name).phase is ReleasePhase.FAILED
    assert world[1].trained == [release.name]


def test_an_environment_minimum_holds_whatever_a_push_loosens(world: tuple[World, Engine]) -> None:
    """A release's own gate can be loosened by its author; the environment's minimum still refuses it."""
    release = push(world[0], "one", quality=Quality(accuracy=0.4), engine=world[1], configuration=limit(0.6))
    settle(*world, 15)
    push(world[0], "one", engine=world[1])
    settle(*world, 15)
    assert release_of(world[0], release.name).phase is ReleasePhase.CANDIDATE
    assert newest(world[0]).phase is P.REFUSED


def test_an_evaluation_without_an_answer_is_asked_for_again(world: tuple[World, Engine]) -> None:
    """Pushing the same again asks once more where there was no answer, never where there was one."""
    world[1].evaluation_error = "out of memory"
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1)
    assert release_of(world[0], release.name).phase is ReleasePhase.ERRORED
    world[1].evaluation_error = ""
    settle(*world, 1)
    assert release_of(world[0], release.name).phase is ReleasePhase.ERRORED, "nobody asked"
    push(world[0], "one", engine=world[1])
    settle(*world, 15)
    assert state_of(world[0]).champion == release.name
    asked = len(world[1].evaluation_sets)
    push(world[0], "one", engine=world[1])
    settle(*world, 15)
    assert len(world[1].evaluation_sets) == asked == 2
    assert world[1].trained == [release.name]


def test_a_promotion_after_one_without_an_answer_asks_again(world: tuple[World, Engine]) -> None:
    """A rollout that ended ERRORED stops no later one: promoting again evaluates against the champion again."""
    live(*world, "one", GOOD)
    deciding.hold(world[0], MODEL, None, reason="wait")
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1, passes=4)
    deciding.resume(world[0], MODEL, None)
    world[1].evaluated.clear()
    ledger = view_of(world[0]).ledger
    report = f"models/{MODEL}/reports/{ledger.release(MODEL, second).report}.json"
    edited(world[0].repository, LEDGER, {report: None})
    world[1].evaluation_error = "out of memory"
    settle(*world, 1, passes=3)
    assert newest(world[0]).phase is P.ERRORED
    world[1].evaluation_error = ""
    deciding.promote(world[0], MODEL, second, None, reason="again", force=False)
    settle(*world, 15)
    assert state_of(world[0]).champion == second


def test_a_canary_whose_evaluation_anew_gives_no_answer_asks_a_person(world: tuple[World, Engine]) -> None:
    """No answer takes no healthy canary back and passes no step: a person is asked once, and may let it go on."""
    live(*world, "one", GOOD)
    second = under_way(*world)
    world[1].evaluation_error = "out of memory"
    push(world[0], "two", engine=world[1], evaluation="other")
    settle(*world, 15, passes=4)
    assert newest(world[0]).phase is P.ANALYSING
    hold = state_of(world[0]).hold
    assert hold is not None
    assert "without an answer: out of memory" in hold.reason
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).champion == second
