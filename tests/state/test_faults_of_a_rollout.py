"""What goes wrong around a rollout: clocks, counts, crowds; production ends at a release that was meant to serve."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mlgitops.app import deciding
from mlgitops.app.context import World
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.metrics import Sample
from mlgitops.ports.serving import Arm, ServingObservation
from tests.support.phases import led_to
from tests.support.world import MODEL, Engine, Quality, live, push, quick_world, seen_by, settle, state_of, view_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
SKEWED = Quality(accuracy=0.97, wrong=0.40)
DAY_SECONDS = 86_400.0
OPEN = [P.PROPOSED, P.STARTING, P.STEP, P.ANALYSING, P.COMPLETING]
Edit = Callable[[Sequence[Sample]], Sequence[Sample]]


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def at_phase(world: World, engine: Engine, phase: P) -> World:
    """Return the world of a process that looks at a second rollout in a phase for the first time."""
    live(world, engine, "one", GOOD, trusted=True)
    push(world, "two", quality=BETTER, engine=engine)
    return led_to(world, engine, 2, phase)


@pytest.mark.parametrize("phase", OPEN)
def test_a_clock_that_jumps_back_harms_nobody(world: tuple[World, Engine], phase: P) -> None:
    """A clock that goes back a day takes nothing healthy back; when it is right, all goes on, or age is the reason."""
    at_phase(*world, phase)
    world[1].clock.pass_seconds(-DAY_SECONDS)
    settle(*world, 1, passes=4)
    state = state_of(world[0])
    assert state.rollouts[2].phase in {P.PROPOSED, P.STARTING, P.STEP, P.ANALYSING, P.COMPLETING, P.LIVE}
    assert state.hold is None
    world[1].clock.pass_seconds(DAY_SECONDS)
    settle(*world, 15)
    state = state_of(world[0])
    if phase is P.PROPOSED:  # it was let start at a time that was a day too early
        assert "it was under way for longer than" in state.rollouts[2].reason
        assert state.champion == state.rollouts[1].release
    else:
        assert [state.rollouts[number].phase for number in (1, 2)] == [P.RETIRED, P.LIVE]


@pytest.mark.parametrize("phase", OPEN)
def test_a_clock_that_jumps_forward_ends_in_a_stated_way(world: tuple[World, Engine], phase: P) -> None:
    """A clock that goes on by a day leaves one release that serves alone: the new one, or the former with a reason."""
    at_phase(*world, phase)
    first = state_of(world[0]).rollouts[1].release
    world[1].clock.pass_seconds(DAY_SECONDS + 60)
    settle(*world, 15)
    state = state_of(world[0])
    rollout = state.rollouts[2]
    assert state.open is None
    if rollout.phase is P.ROLLED_BACK:
        assert state.champion == first
        assert "it was under way for longer than" in rollout.reason
    else:
        assert rollout.phase is P.LIVE
        assert phase is P.PROPOSED, "what waits for people makes nothing older"


@pytest.mark.parametrize("phase", [P.STEP, P.ANALYSING, P.COMPLETING])
@pytest.mark.parametrize("seconds", [-DAY_SECONDS, DAY_SECONDS / 2])
def test_a_clock_that_jumps_hides_no_harm(world: tuple[World, Engine], phase: P, seconds: float) -> None:
    """A release that harms goes back at the next look, whatever time it is."""
    at_phase(*world, phase)
    first, second = (state_of(world[0]).rollouts[number].release for number in (1, 2))
    world[1].qualities[second] = SKEWED
    world[1].clock.pass_seconds(seconds)
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == first


class Counting(Engine):
    """An engine whose counts reach the tool edited."""

    edit: Edit = staticmethod(lambda samples: samples)

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        return self.edit(super().samples(environment, model, rollout))


EDITS: dict[str, Edit] = {
    "nothing": lambda _: (),
    "no canary": lambda samples: [one for one in samples if one.arm is Arm.BASELINE],
    "no baseline": lambda samples: [one for one in samples if one.arm is Arm.CANARY],
    "no labels": lambda samples: [replace(one, labelled=0, incorrect=0) for one in samples],
    "another rollout's": lambda samples: [replace(one, cohort="9" + one.cohort) for one in samples],
}


@pytest.mark.parametrize("edit", EDITS)
def test_counts_that_say_nothing_decide_nothing(world: tuple[World, Engine], edit: str) -> None:
    """Without counts of both sides no step passes and nothing healthy goes back: a person is asked, with the step."""
    first = live(*world, "one", GOOD, trusted=True)
    engine = Counting(**{name: getattr(world[1], name) for name in Engine.__dataclass_fields__})
    engine.edit = EDITS[edit]
    mine = seen_by(engine, world[0].repository)
    push(mine, "two", quality=BETTER, engine=engine)
    settle(mine, engine, 15, passes=6)
    assert state_of(mine).rollouts[2].phase is P.ANALYSING
    settle(mine, engine, 700, passes=3)
    state = state_of(mine)
    assert (state.rollouts[2].phase, state.rollouts[2].step, state.champion) == (P.ANALYSING, 0, first)
    assert state.hold is not None
    assert "step 1 has no answer" in state.hold.reason
    engine.edit = staticmethod(lambda samples: samples)
    deciding.resume(mine, MODEL, None)
    settle(mine, engine, 15)
    assert state_of(mine).rollouts[2].phase is P.LIVE


class Deaf(Engine):
    """An engine whose router does not do what `main` says of it."""

    seen: Callable[[ServingObservation], ServingObservation] = staticmethod(lambda seen: seen)

    def observe(self, environment: str, model: str) -> ServingObservation:
        return self.seen(super().observe(environment, model))


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (lambda one: replace(one, weight_percent=min(one.weight_percent or 0, 5)), "gives the canary 5 %"),
        (lambda one: replace(one, cohort="1-0") if one.weight_percent == 10 else one, "as step 1-0"),
    ],
    ids=["another weight", "another step"],
)
def test_a_router_that_does_not_follow_makes_no_step(
    world: tuple[World, Engine], seen: Callable[[ServingObservation], ServingObservation], told: str
) -> None:
    """What the router does not show is not judged: after its time the canary goes back, with both numbers."""
    first = live(*world, "one", GOOD, trusted=True)
    engine = Deaf(**{name: getattr(world[1], name) for name in Engine.__dataclass_fields__})
    engine.seen = seen
    mine = seen_by(engine, world[0].repository)
    push(mine, "two", quality=BETTER, engine=engine)
    settle(mine, engine, 15, passes=6)
    assert (state_of(mine).rollouts[2].phase, state_of(mine).rollouts[2].step) == (P.STEP, 0)
    settle(mine, engine, 301, passes=4)
    state = state_of(mine)
    assert (state.rollouts[2].phase, state.champion) == (P.ROLLED_BACK, first)
    assert told in state.rollouts[2].reason
    assert "not 10 % as step 2-1" in state.rollouts[2].reason


def test_pushes_within_a_second_are_taken_in_order(world: tuple[World, Engine]) -> None:
    """Releases that are pushed at the same moment are all trained once, in their order, and the newest ends up live."""
    names = [push(world[0], code, quality=quality, engine=world[1]).name for code, quality in
             (("one", GOOD), ("two", BETTER), ("three", Quality(accuracy=0.98, wrong=0.02)))]  # fmt: skip
    settle(*world, 15, passes=30)
    releases = view_of(world[0]).ledger.releases(MODEL)
    assert [one.submission.sequence for one in releases] == [1, 2, 3]
    assert world[1].trained == names
    assert state_of(world[0]).champion == names[-1]


def test_nobody_waits_for_ever_behind_a_rollout_that_never_ends(world: tuple[World, Engine]) -> None:
    """While a canary is held and never resumed pushes go on training; its age ends it, and the newest one follows."""
    first = live(*world, "one", GOOD, trusted=True)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    deciding.hold(world[0], MODEL, None, reason="holiday")
    queue = [push(world[0], code, quality=BETTER, engine=world[1]).name for code in ("three", "four")]
    settle(*world, 15)
    phases = {name: view_of(world[0]).ledger.release(MODEL, name).phase for name in queue}
    assert phases == dict.fromkeys(queue, ReleasePhase.CANDIDATE)
    settle(*world, DAY_SECONDS, passes=3)
    state = state_of(world[0])
    assert (state.rollouts[2].phase, state.champion, state.last_number) == (P.ROLLED_BACK, first, 2)
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).champion == queue[-1]
