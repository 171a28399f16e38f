"""What keeps users from harm: it goes on whatever waits, fails, or cannot be asked."""

import pytest

from mlgitops.app import deciding, reading, rollbacks
from mlgitops.app.context import World, environment_of
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.release import Rejected, ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Change
from tests.support.memory import edited
from tests.support.world import (
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
SKEWED = Quality(accuracy=0.97, wrong=0.40)
STAGING = ENVIRONMENTS.partition("environments:\n")[2].partition("plans:")[0].replace("production", "staging")
TWO = ENVIRONMENTS.replace("environments:\n", f"environments:\n{STAGING}")
APPROVED = ENVIRONMENTS.replace("    probationSeconds: 60\n", "    probationSeconds: 60\n    approvals: 1\n")


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def under_way(world: World, engine: Engine, code: str = "two", quality: Quality = BETTER) -> str:
    """Start a rollout and leave it in its first step."""
    release = push(world, code, quality=quality, engine=engine)
    settle(world, engine, 0.2, passes=4)
    assert state_of(world).rollouts[state_of(world).last_number].phase is P.ANALYSING
    return release.name


def served(world: World) -> bytes:
    return world.repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice.yaml") or b""


def refused_for_good(world: World, release: str, reason: str = "biased") -> None:
    """Write only the word of a rejection, as one that lost a race against a take-up does."""
    event = Rejected(at=world.clock.now(), by="Eve <eve@example.org>", reason=reason)
    found = view_of(world).ledger.release(MODEL, release)
    deciding.end_release(world, found, event, ReleasePhase.REJECTED)


def test_rollback_never_returns_to_a_rejected_release(world: tuple[World, Engine]) -> None:
    """A release that was refused for good after it was replaced is no last-good any more."""
    first = live(*world, "one", GOOD, trusted=True)
    second = live(*world, "two", BETTER, trusted=True)
    live(*world, "three", BETTER)
    rollbacks.reject(world[0], MODEL, second, reason="biased")
    rollbacks.rollback(world[0], MODEL, None, reason="bad")
    settle(*world, 1)
    assert state_of(world[0]).champion == first


def test_rejection_that_meets_a_waiting_rollout_refuses_it() -> None:
    """A release that was refused for good while its rollout waited never starts."""
    world = quick_world(APPROVED)
    push(world[0], "one", quality=GOOD, engine=world[1])
    _approved(*world)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED
    refused_for_good(world[0], second)
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.REFUSED
    assert "REJECTED" in state_of(world[0]).rollouts[2].reason


@pytest.mark.parametrize("serves", [False, True])
def test_rejection_takes_off_whatever_is_under_way_or_serves(world: tuple[World, Engine], serves: bool) -> None:
    """A rejection that a rollout overtook still takes the release off, by the person's name."""
    first = live(*world, "one", GOOD, trusted=True)
    second = live(*world, "two", BETTER, trusted=True) if serves else under_way(*world)
    refused_for_good(world[0], second)
    settle(*world, 1)
    state = state_of(world[0])
    assert (state.champion, state.rollouts[2].phase) == (first, P.ROLLED_BACK)
    assert state.rollouts[2].rollback is not None
    assert state.rollouts[2].rollback.by == "Eve <eve@example.org>"


def test_rejecting_the_champion_takes_a_canary_with_it(world: tuple[World, Engine]) -> None:
    """What serves is taken off while a canary is out: both go back, and last-good serves."""
    first = live(*world, "one", GOOD, trusted=True)
    second = live(*world, "two", BETTER, trusted=True)
    under_way(*world, "three")
    rollbacks.reject(world[0], MODEL, second, reason="biased")
    main = world[0].repository.snapshot(MAIN)
    assert b"weight: 100" in (main.read(f"{FOLDER}/route.yaml") or b"")
    assert first.encode() in served(world[0])
    settle(*world, 1)
    state = state_of(world[0])
    assert state.champion == first
    assert [state.rollouts[number].phase for number in (1, 2, 3)] == [P.LIVE, P.ROLLED_BACK, P.ROLLED_BACK]
    assert state.open is None
    assert world[0].repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice-canary.yaml") is None


def test_rollback_by_hand_of_what_served_survives_a_rollout_that_started_meanwhile(world: tuple[World, Engine]) -> None:
    """A rollback that chose what serves is carried out although a canary started before it was written."""
    first = live(*world, "one", GOOD, trusted=True)
    live(*world, "two", BETTER, trusted=True)
    under_way(*world, "three")
    unit = environment_of(view_of(world[0]), None, MODEL)
    assert rollbacks.roll_back(world[0], unit, MODEL, 2, "users complain")
    settle(*world, 1)
    assert state_of(world[0]).champion == first


def test_probation_is_watched_while_another_rollout_waits() -> None:
    """Late labels take a LIVE release off although a newer one waits for approval, which is withdrawn."""
    world = quick_world(APPROVED)
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    _approved(*world)
    settle(*world, 61)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    _approved(*world)
    assert state_of(world[0]).champion == second
    push(world[0], "three", quality=BETTER, engine=world[1])
    settle(*world, 1)
    assert state_of(world[0]).rollouts[3].phase is P.PROPOSED
    world[1].qualities[second] = SKEWED
    settle(*world, 1)
    state = state_of(world[0])
    assert state.champion == first
    assert [state.rollouts[number].phase for number in (2, 3)] == [P.ROLLED_BACK, P.WITHDRAWN]


def test_probation_ends_while_another_rollout_waits() -> None:
    """A LIVE release becomes trusted in its time, however long a newer one waits for approval."""
    world = quick_world(APPROVED)
    push(world[0], "one", quality=GOOD, engine=world[1])
    _approved(*world)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED
    assert not state_of(world[0]).rollouts[1].trusted
    settle(*world, 61, passes=2)
    assert state_of(world[0]).rollouts[1].trusted


def _approved(world: World, engine: Engine) -> None:
    settle(world, engine, 1)
    deciding.approve(world, MODEL, None)
    settle(world, engine, 15)


def test_champion_that_fails_probation_takes_a_canary_with_it(world: tuple[World, Engine]) -> None:
    """Late labels of what serves count while the next release is out: both go back to what was trusted."""
    first = live(*world, "one", GOOD, trusted=True)
    second = live(*world, "two", BETTER)
    push(world[0], "three", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    assert state_of(world[0]).rollouts[3].phase is P.ANALYSING
    world[1].qualities[second] = SKEWED
    settle(*world, 1)
    state = state_of(world[0])
    assert state.champion == first
    assert [state.rollouts[number].phase for number in (2, 3)] == [P.ROLLED_BACK, P.ROLLED_BACK]


def test_late_labels_fail_probation(world: tuple[World, Engine]) -> None:
    """A LIVE release whose labels turn bad before it is trusted goes back, and automation is on hold."""
    first = live(*world, "one", GOOD, trusted=True)
    second = live(*world, "two", BETTER)
    world[1].qualities[second] = SKEWED
    settle(*world, 1)
    assert state_of(world[0]).champion == first
    assert state_of(world[0]).hold is not None


def test_rollback_passes_over_a_release_that_was_never_trusted() -> None:
    """A LIVE release goes back to the newest that passed probation, not to a newer one that did not."""
    world = quick_world(ENVIRONMENTS.replace("probationSeconds: 60", "probationSeconds: 600"))
    first = live(*world, "one", GOOD)
    settle(*world, 601, passes=2)
    live(*world, "two", BETTER)
    live(*world, "three", BETTER)
    rollbacks.rollback(world[0], MODEL, None, reason="bad")
    settle(*world, 1)
    assert state_of(world[0]).champion == first


def test_nothing_is_promoted_while_metrics_cannot_be_asked(world: tuple[World, Engine]) -> None:
    """Without metrics a step neither passes nor fails, the pass says so, and a rollback by hand works."""
    first = live(*world, "one", GOOD)
    under_way(*world)
    world[1].metrics_down = True
    done = settle(*world, 100, passes=4)
    assert state_of(world[0]).rollouts[2].phase is P.ANALYSING
    assert all(isinstance(one.problems[0], Unavailable) for one in done)
    rollbacks.rollback(world[0], MODEL, None, reason="by hand")
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == first


def test_a_proposal_does_not_wait_for_ever() -> None:
    """A rollout that nobody approved is withdrawn after its time, also on hold, with the reason; others may follow."""
    world = quick_world(APPROVED.replace("    approvals: 1\n", "    approvals: 1\n    proposalSeconds: 3600\n"))
    push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1, passes=6)
    assert state_of(world[0]).rollouts[1].phase is P.PROPOSED
    deciding.hold(world[0], MODEL, None, reason="holiday")
    settle(*world, 3000, passes=1)
    assert state_of(world[0]).rollouts[1].phase is P.PROPOSED
    settle(*world, 700, passes=2)
    first = state_of(world[0]).rollouts[1]
    assert first.phase is P.WITHDRAWN
    assert (
        first.reason
        == "it was proposed for longer than 1:00:00, and still waits: on hold by Ada <ada@example.org>: holiday"
    )
    deciding.resume(world[0], MODEL, None)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 1, passes=6)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED


def test_an_environment_that_was_taken_out_is_watched_until_it_is_empty() -> None:
    """What serves in an environment that is gone from the file goes back when it harms, or when a person says so."""
    world = quick_world(TWO)
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 61)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    rollout = state_of(world[0], "staging").rollouts[2]
    assert rollout.phase is P.ANALYSING
    main = world[0].repository.snapshot(MAIN)
    change = Change(message="no staging", files={"environments.yaml": ENVIRONMENTS.encode()})
    world[0].repository.update(MAIN, main.revision, [change])
    world[1].qualities[rollout.release] = SKEWED
    done = settle(*world, 15)
    assert any("leaving out environment staging" in str(one) for one in done[0].problems)
    shown = reading.status(world[0], MODEL)["models"][0]["environments"]
    assert [one["environment"] for one in shown] == ["staging", "production"]
    state = state_of(world[0], "staging")
    assert (state.rollouts[2].phase, state.champion) == (P.ROLLED_BACK, first)
    rollbacks.rollback(world[0], MODEL, "staging", reason="empty it")
    done = settle(*world, 15)
    assert state_of(world[0], "staging").champion is None
    assert not done[-1].problems


@pytest.mark.parametrize("what", ["state.yaml", "rollouts/00001.yaml"])
def test_a_damaged_state_in_an_environment_that_was_taken_out_stops_its_model_alone(what: str) -> None:
    """What one model left in an environment that is gone from the file, and nobody can read, keeps no other back."""
    world, engine = quick_world(TWO)
    for model in (MODEL, "cats"):
        push(world, "one", quality=GOOD, engine=engine, model=model)
    settle(world, engine, 61)
    edited(world.repository, MAIN, {"environments.yaml": ENVIRONMENTS.encode()})
    path = f"environments/staging/cats/{what}"
    edited(world.repository, LEDGER, {path: b"\xff\xfe{"})
    first = state_of(world).champion
    push(world, "two", quality=BETTER, engine=engine)
    done = settle(world, engine, 15)
    assert state_of(world).champion not in {None, first}
    assert any(path in str(one) for one in done[-1].problems), "the other model's problem is told"
    assert world.repository.snapshot(LEDGER).read(path) == b"\xff\xfe{"
    cats, digits = reading.status(world)["models"]
    assert path in cats["problem"]
    assert [one["environment"] for one in digits["environments"]] == ["staging", "production"]
    assert reading.models(world)["models"][1]["problem"] == ""


def test_a_split_that_git_does_not_say_is_no_pass(world: tuple[World, Engine]) -> None:
    """A step whose requests went otherwise than its weight never passes, and holds for a person with both numbers."""
    first = live(*world, "one", GOOD)
    world[1].canary_share = 0.5
    under_way(*world)
    settle(*world, 700, passes=3)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ANALYSING
    assert state.champion == first
    assert state.hold is not None
    assert "where git says 10 %" in state.hold.reason


def test_no_traffic_moves_before_the_metrics_answer(world: tuple[World, Engine]) -> None:
    """A source that could judge nothing is named before a canary is started, and the rollout goes on once it can."""
    first = live(*world, "one", GOOD)
    world[1].metrics_problem = "the query for requests yields nothing"
    push(world[0], "two", quality=BETTER, engine=world[1])
    done = settle(*world, 5, passes=4)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED
    assert "the query for requests yields nothing" in str(done[-1].problems[0])
    assert f"{FOLDER}/inferenceservice-canary.yaml" not in world[0].repository.snapshot(MAIN).paths("")
    world[1].metrics_problem = ""
    settle(*world, 100)
    assert state_of(world[0]).champion != first


def test_rollout_grows_too_old_although_metrics_cannot_be_asked(world: tuple[World, Engine]) -> None:
    """The maximum age ends a rollout that nobody can judge."""
    live(*world, "one", GOOD, trusted=True)
    under_way(*world)
    world[1].metrics_down = True
    settle(*world, 90_000, passes=2)
    settle(*world, 1)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert "longer than" in state.rollouts[2].reason


def test_rollout_on_hold_grows_too_old(world: tuple[World, Engine]) -> None:
    """A hold pauses a rollout and does not keep a canary out for ever."""
    live(*world, "one", GOOD)
    under_way(*world)
    deciding.hold(world[0], MODEL, None, reason="holiday")
    settle(*world, 90_000, passes=3)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK


def test_waiting_for_people_makes_no_rollout_old() -> None:
    """A rollout that waited for its approval longer than its maximum age still has all its time."""
    world = quick_world(APPROVED)
    push(world[0], "one", quality=GOOD, engine=world[1])
    _approved(*world)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    settle(*world, 100_000, passes=1)
    _approved(*world)
    assert state_of(world[0]).champion == second


def test_hold_pauses_and_safety_goes_on(world: tuple[World, Engine]) -> None:
    """On hold no step passes; what harms is rolled back all the same."""
    first = live(*world, "one", GOOD)
    second = under_way(*world)
    deciding.hold(world[0], MODEL, None, reason="look first")
    settle(*world, 100)
    assert state_of(world[0]).rollouts[2].step == 0
    assert state_of(world[0]).rollouts[2].phase is P.ANALYSING
    world[1].qualities[second] = SKEWED
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == first


def test_hold_does_not_use_up_the_time_to_become_ready(world: tuple[World, Engine]) -> None:
    """A canary that is held before it is ready gets its time again after `resume`."""
    live(*world, "one", GOOD)
    world[1].broken = True
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 1)
    deciding.hold(world[0], MODEL, None, reason="wait")
    settle(*world, 5_000, passes=2)
    deciding.resume(world[0], MODEL, None)
    reconcile(world[0])
    assert state_of(world[0]).rollouts[2].phase is P.STARTING
    world[1].broken = False
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.LIVE


def test_resume_extends_a_step_without_data(world: tuple[World, Engine]) -> None:
    """A step that had no answer is given its time again by a person, and passes when the data come."""
    live(*world, "one", GOOD)
    world[1].requests = 0
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 400)
    assert state_of(world[0]).hold is not None
    deciding.resume(world[0], MODEL, None)
    settle(*world, 100, passes=3)
    assert state_of(world[0]).hold is None
    world[1].requests = 40_000
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.LIVE


def test_slow_evaluation_never_delays_another_models_rollback(world: tuple[World, Engine]) -> None:
    """While one model's evaluation runs, another model's canary that harms goes back in one pass."""
    live(*world, "one", GOOD)
    cats = live(*world, "one", GOOD, model="cats")
    second = under_way(*world)
    world[1].qualities[second] = SKEWED
    push(world[0], "two", quality=BETTER, engine=world[1], model="cats")
    world[1].slow_evaluations = 1_000
    world[1].clock.pass_seconds(15)
    reconcile(world[0])
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0], model="cats").champion == cats


def test_evaluation_goes_on_while_the_next_release_trains(world: tuple[World, Engine]) -> None:
    """A release becomes a candidate although the training of a newer one runs for hours."""
    world[1].slow_evaluations = 3
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=1)
    world[1].trains_at_once = False
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    ledger = view_of(world[0]).ledger
    phases = {name: ledger.release(MODEL, name).phase for name in (first, second)}
    assert phases == {first: ReleasePhase.CANDIDATE, second: ReleasePhase.TRAINING}


def test_evaluation_without_an_answer_is_no_refusal(world: tuple[World, Engine]) -> None:
    """An evaluation that crashes ends a release, or a rollout, ERRORED; production keeps its champion."""
    first = live(*world, "one", GOOD)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    world[1].evaluation_error = "out of memory"
    settle(*world, 15)
    assert view_of(world[0]).ledger.release(MODEL, second).phase is ReleasePhase.ERRORED
    world[1].evaluation_error = ""
    deciding.hold(world[0], MODEL, None, reason="wait")
    third = push(world[0], "three", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    live_now = view_of(world[0]).ledger.release(MODEL, third)
    assert live_now.phase is ReleasePhase.CANDIDATE
    assert state_of(world[0]).champion == first
