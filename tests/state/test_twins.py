"""Twins at the end of a promotion: what they show is recorded, and judges the next rollout; they never stop one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mlgitops.app import judging
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core import driver
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.rollout import Rollout
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.world import ENVIRONMENTS, START, Engine, Quality, live, push, quick_world, settle, state_of

GOOD, BETTER, BEST = Quality(wrong=0.05), Quality(wrong=0.03), Quality(wrong=0.02)
LASTS = 7200
PLAN = ENVIRONMENTS.replace("    dispersion: 1.0\n", f"    noiseSeconds: {LASTS}\n")


@pytest.fixture
def world() -> tuple[World, Engine]:
    found = quick_world(PLAN)
    live(*found, "one", GOOD, trusted=True)
    push(found[0], "two", quality=BETTER, engine=found[1])
    for _ in range(60):
        settle(*found, 15, passes=1)
        if driver.compares_twins(second(found[0])):
            return found
    raise AssertionError("the twins never shared the traffic")


def second(world: World) -> Rollout:
    return state_of(world).rollouts[2]


def compared(world: World, engine: Engine, at_once: int) -> None:
    """Let the twins meet failures that come `at_once` together, in one of them at a time."""
    cohort, failed = driver.twins_cohort(second(world)), dict.fromkeys(Arm, 0)
    for minute in range(130):
        failed[Arm.CANARY if (minute * 7 // 3) % 2 else Arm.BASELINE] += at_once
        for arm in Arm:
            engine.counted.append(
                Sample(
                    at=START + timedelta(minutes=minute),
                    cohort=cohort,
                    arm=arm,
                    total=1_000 * minute,
                    failed=failed[arm] if minute else 0,
                )
            )


def test_two_services_of_one_release_share_the_traffic_for_the_plans_time(world: tuple[World, Engine]) -> None:
    """For the time that the plan says both sides serve the new release, half of the requests each; then one is left."""
    seen = world[1].observe("production", "digits")
    assert seen.baseline is not None
    assert seen.canary is not None
    assert seen.baseline.release == seen.canary.release == second(world[0]).release
    assert (seen.weight_percent, seen.cohort) == (50, "2-5")
    settle(*world, 60, passes=20)
    assert driver.compares_twins(second(world[0]))
    settle(*world, LASTS, passes=1)
    settle(*world, 1)
    assert second(world[0]).phase is P.LIVE
    assert world[1].observe("production", "digits").canary is None


def test_the_next_rollout_is_judged_by_what_they_showed(world: tuple[World, Engine]) -> None:
    """The measured noise is recorded, taken over when the next rollout begins, and told by its verdicts."""
    compared(*world, at_once=8)
    settle(*world, LASTS, passes=1)
    settle(*world, 65)
    measured = second(world[0]).measured_noise
    assert {*measured} == {"errors"}, "no label came, and no latency: nothing is known of them"
    assert measured["errors"]["dispersion"] > 2
    push(world[0], "three", quality=BEST, engine=world[1])
    settle(*world, 0.2, passes=4)
    third = state_of(world[0]).rollouts[3]
    assert third.phase is P.ANALYSING
    assert third.noise["errors"] == {**measured["errors"], "rollout": 2}
    assert third.noise["labels"] == {"dispersion": 2.0, "source": "default"}
    verdict = judging.judge(world[0], third)
    assert verdict.metrics[0].noise.dispersion == measured["errors"]["dispersion"]
    assert "the twins of rollout 2 show a dispersion of" in verdict.words
    assert "Noise of labelled correctness: no history says how much" in verdict.words


def test_what_twins_meet_judges_nothing(world: tuple[World, Engine]) -> None:
    """One twin that fails all the time rolls nothing back: its counts are of no step."""
    before = judging.judge(world[0], second(world[0]))
    cohort = driver.twins_cohort(second(world[0]))
    for part in (0, 1, 2):
        at = START + timedelta(hours=part)
        bad = Sample(at=at, cohort=cohort, arm=Arm.CANARY, total=9_000 * part, failed=9_000 * part)
        world[1].counted += [bad, replace(bad, arm=Arm.BASELINE, failed=0)]
    assert judging.judge(world[0], second(world[0])).metrics == before.metrics
    settle(*world, 60, passes=3)
    assert second(world[0]).phase is P.COMPLETING


def test_a_twin_that_ends_ends_the_comparison(world: tuple[World, Engine]) -> None:
    """Users do not meet a dead twin until the time is over: the other one gets all requests at once."""
    world[1].broken = True
    reconcile(world[0])
    reconcile(world[0])
    seen = world[1].observe("production", "digits")
    assert seen.weight_percent == 0
    world[1].broken = False
    settle(*world, 1)
    assert second(world[0]).phase is P.LIVE
    assert not second(world[0]).measured_noise
