"""Probation with a hold-back: a baseline that answers beside the release shows what comes late, and rolls back."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from mlgitops.app import judging, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reading import history
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.rollout import Rollout
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Change
from tests.support.memory import Interposed, Killed
from tests.support.world import (
    ENVIRONMENTS,
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

GOOD, BETTER = Quality(wrong=0.05), Quality(wrong=0.03)
LASTS = 3_600
PLAN = ENVIRONMENTS.replace(
    "    insufficientData: wait\n", f"    holdBack: {{percent: 5, seconds: {LASTS}}}\n    insufficientData: wait\n"
)
PROBATION = "2-4"
World2 = tuple[World, Engine]


def under_probation(plan: str = PLAN, *, requests: int = 40_000) -> World2:
    """Return a world whose second release has passed its steps and is on probation."""
    found = quick_world(plan)
    found[1].requests = requests
    live(*found, "one", GOOD, trusted=True)
    push(found[0], "two", quality=BETTER, engine=found[1])
    for _ in range(40):
        if state_of(found[0]).last_number == 2 and second(found[0]).on_probation:
            settle(*found, 0.1, passes=2)
            return found
        settle(*found, 11, passes=1)
    raise AssertionError(second(found[0]).phase)


@pytest.fixture
def world() -> World2:
    return under_probation()


def second(world: World) -> Rollout:
    return state_of(world).rollouts[2]


def changed(engine: Engine, change: Callable[[Sample], Sample]) -> None:
    """Let users meet something else on probation than in the steps."""
    real = engine.samples

    def samples(environment: str, model: str, rollout: int) -> list[Sample]:
        found = real(environment, model, rollout)
        return [change(one) if one.cohort == PROBATION else one for one in found]

    engine.samples = samples  # type: ignore[method-assign]


def wrong_late(sample: Sample) -> Sample:
    return replace(sample, incorrect=sample.total * 2 // 5) if sample.arm is Arm.CANARY else sample


def last_decision(world: World) -> dict[str, Any]:
    ledger = view_of(world).ledger
    names = ledger.decision_names("production", MODEL)
    return dict(ledger.decision("production", MODEL, names[-1]) or {})


def test_the_former_release_goes_on_answering_through_the_probation(world: World2) -> None:
    """For the plan's time 5 % of the requests are held back; then the release serves alone, and is trusted at once."""
    seen = world[1].observe("production", MODEL)
    assert seen.baseline is not None
    assert seen.canary is not None
    assert (seen.weight_percent, seen.cohort) == (95, PROBATION)
    assert (seen.baseline.release, seen.canary.release) == (
        state_of(world[0]).rollouts[1].release,
        second(world[0]).release,
    )
    assert [one["onProbation"] for one in history(world[0], MODEL, None)["rollouts"]] == [False, True]
    settle(*world, LASTS * 0.9, passes=1)
    assert second(world[0]).on_probation
    settle(*world, LASTS * 0.2, passes=1)
    settle(*world, 1)
    assert (second(world[0]).phase, second(world[0]).trusted) == (P.LIVE, True)
    assert not second(world[0]).on_probation
    assert state_of(world[0]).rollouts[1].phase is P.RETIRED
    decision = last_decision(world[0])
    assert decision["baseline"] == {"kind": "hold-back", "rollout": 1, "percent": 5}
    assert "its baseline is rollout 1, which 5 % of the requests go on to" in decision["verdict"]["words"]


def test_quality_that_fails_late_rolls_back_by_the_hold_back(world: World2) -> None:
    """What nobody saw in the steps is seen beside the hold-back; the former release serves again."""
    former = state_of(world[0]).rollouts[1].release
    changed(world[1], wrong_late)
    settle(*world, 60)
    assert second(world[0]).phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == former
    decision = last_decision(world[0])
    assert decision["verdict"]["outcome"] == "failed"
    assert decision["verdict"]["cohort"] == PROBATION
    assert decision["baseline"]["kind"] == "hold-back"
    assert "rollout 1, which 5 % of the requests go on to" in second(world[0]).reason


def test_the_same_failure_of_both_sides_rolls_nothing_back(world: World2) -> None:
    """When the labels get worse for everybody, the release is not to blame: former times are no baseline."""
    changed(world[1], lambda sample: replace(sample, incorrect=sample.total * 2 // 5))
    settle(*world, 60, passes=5)
    assert second(world[0]).on_probation


def test_labels_that_never_come_are_no_pass(world: World2) -> None:
    """A probation without labels ends with a question to a person, and the former release still answers beside it."""
    changed(world[1], lambda sample: replace(sample, labelled=0, incorrect=0))
    settle(*world, LASTS + 1, passes=2)
    settle(*world, 601, passes=3)
    assert second(world[0]).on_probation
    hold = state_of(world[0]).hold
    assert hold is not None
    assert "step 4 has no answer" in hold.reason
    assert world[1].observe("production", MODEL).weight_percent == 95


def test_a_probation_is_not_cut_short() -> None:
    """A plan whose steps pass early still waits out the probation: what comes late comes after a while."""
    world = under_probation(PLAN.replace("    alpha: 0.01\n", "    alpha: 0.01\n    early: true\n"), requests=4_000_000)
    settle(*world, LASTS * 0.4, passes=2)
    assert second(world[0]).on_probation


def test_a_rollback_by_hand_needs_one_edit(world: World2) -> None:
    """While it is on probation the former release is still in its place: the first commit takes all requests off."""
    rollbacks.rollback(world[0], MODEL, None, reason="users complain")
    seen = world[1].observe("production", MODEL)
    assert seen.baseline is not None
    assert (seen.weight_percent, seen.baseline.release) == (0, state_of(world[0]).rollouts[1].release)


def test_without_a_hold_back_late_labels_of_the_steps_are_the_evidence() -> None:
    """A probation without one is judged by late labels of the steps, and its verdict says that nothing else speaks."""
    world = quick_world(ENVIRONMENTS)
    live(*world, "one", GOOD, trusted=True)
    live(*world, "two", BETTER)
    assert second(world[0]).phase is P.LIVE
    assert not second(world[0]).trusted
    verdict = judging.judge(world[0], second(world[0]))
    assert verdict.baseline.to_mapping() == {"kind": "former-steps", "rollout": 1, "percent": 0}
    assert "Its baseline is rollout 1 as it answered beside it in the steps" in verdict.words


def test_a_first_release_has_nothing_to_hold_back() -> None:
    """Without a champion the environment's own probation counts, as for every first release."""
    world = quick_world(PLAN)
    live(*world, "one", GOOD)
    first = state_of(world[0]).rollouts[1]
    assert (first.holds_back, first.trusted) == (0, False)
    settle(*world, 61, passes=2)
    assert state_of(world[0]).rollouts[1].trusted


def test_an_edited_plan_changes_no_probation_that_began(world: World2) -> None:
    """Taking the hold-back out of the file does not end one: a rollout keeps the plan that it began with."""
    now = world[0].repository.snapshot(MAIN).revision
    files = {"environments.yaml": ENVIRONMENTS.encode()}
    world[0].repository.update(MAIN, now, [Change(message="no hold-back", files=files)])
    settle(*world, 60, passes=3)
    assert second(world[0]).on_probation


@pytest.mark.parametrize("number", range(0, 14, 2))
def test_killed_anywhere_on_probation_it_ends_the_same(number: int) -> None:
    """Whichever write was the last, of a probation and of twins after it, the next process ends live and trusted."""
    world, engine = under_probation(PLAN.replace("    alpha: 0.01\n", "    alpha: 0.01\n    noiseSeconds: 7200\n"))

    def die(count: int, _: str) -> None:
        if count == number:
            raise Killed

    def go(through: World) -> None:
        for _ in range(3):
            settle(through, engine, 4_000, passes=3)
            settle(through, engine, 1)

    with suppress(Killed):
        go(seen_by(engine, Interposed(world.repository, before_write=die)))
    go(world)
    assert (second(world).phase, second(world).trusted) == (P.LIVE, True)
    seen = engine.observe("production", MODEL)
    assert seen.canary is None
    assert seen.baseline is not None
    assert (seen.baseline.release, seen.weight_percent, seen.cohort) == (second(world).release, 0, "2-1000")
