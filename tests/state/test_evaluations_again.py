"""What gave no answer can be asked again, what gave one is never asked again."""

from dataclasses import dataclass, field, replace

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest
from tests.support.world import ENVIRONMENTS, MODEL, Engine, Quality, push, quick_world, settle, state_of, view_of

GOOD = Quality(accuracy=0.95)
BETTER = Quality(accuracy=0.97)
WORSE = Quality(accuracy=0.80)


@dataclass
class Once:
    """Evaluates each key once, as the embedded evaluator does: an error stays the answer to its key."""

    engine: Engine
    outcomes: dict[str, EvaluationOutcome | None] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)

    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
        if request.key not in self.outcomes:
            self.started.append(request.key)
            self.outcomes[request.key] = self.engine.evaluate(request)
        return self.outcomes[request.key]


@pytest.fixture
def world() -> tuple[World, Engine, Once]:
    """A world in which people promote."""
    world, engine = quick_world(ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    automatic: false\n"))
    once = Once(engine)
    return replace(world, evaluator=once), engine, once


def candidate(world: World, engine: Engine, code: str, quality: Quality) -> str:
    name = push(world, code, quality=quality, engine=engine).name
    settle(world, engine, 1)
    assert view_of(world).ledger.release(MODEL, name).phase is ReleasePhase.CANDIDATE
    return name


def promoted(world: World, engine: Engine, release: str) -> P:
    deciding.promote(world, MODEL, release, None, reason="", force=False)
    settle(world, engine, 15)
    return state_of(world).rollouts[state_of(world).last_number].phase


def test_a_rollout_without_an_answer_is_evaluated_again(world: tuple[World, Engine, Once]) -> None:
    """A release whose comparison crashed is compared anew when it is promoted again, as often as it takes."""
    made, engine, once = world
    assert promoted(made, engine, candidate(made, engine, "one", GOOD)) is P.LIVE
    second = candidate(made, engine, "two", BETTER)
    assert promoted(made, engine, candidate(made, engine, "three", GOOD)) is P.LIVE
    engine.evaluation_error = "out of memory"
    assert promoted(made, engine, second) is P.ERRORED
    assert promoted(made, engine, second) is P.ERRORED
    engine.evaluation_error = ""
    asked = len(once.started)
    assert promoted(made, engine, second) is P.LIVE
    assert len(once.started) == asked + 1


def test_a_refused_rollout_is_not_evaluated_again(world: tuple[World, Engine, Once]) -> None:
    """A no is a no: promoting again what a gate refused tells the same report, and nothing is evaluated."""
    made, engine, once = world
    assert promoted(made, engine, candidate(made, engine, "one", GOOD)) is P.LIVE
    second = candidate(made, engine, "two", WORSE)
    assert promoted(made, engine, second) is P.REFUSED
    asked = [*once.started]
    engine.evaluation_error = "it would be another answer now"
    assert promoted(made, engine, second) is P.REFUSED
    assert once.started == asked


def test_an_answer_stays_when_later_ones_fail(world: tuple[World, Engine, Once]) -> None:
    """Against a champion it was compared with, a release is not compared anew, whatever crashed against others."""
    made, engine, once = world
    first = candidate(made, engine, "one", GOOD)
    assert promoted(made, engine, first) is P.LIVE
    settle(made, engine, 61, passes=2)
    second = candidate(made, engine, "two", WORSE)
    assert promoted(made, engine, second) is P.REFUSED
    assert promoted(made, engine, candidate(made, engine, "three", GOOD)) is P.LIVE
    engine.evaluation_error = "out of memory"
    assert promoted(made, engine, second) is P.ERRORED
    rollbacks.rollback(made, MODEL, None, reason="by hand")
    settle(made, engine, 15)
    assert state_of(made).champion == first
    deciding.resume(made, MODEL, None)
    asked = [*once.started]
    assert promoted(made, engine, second) is P.REFUSED
    assert once.started == asked


def test_a_release_without_an_answer_is_evaluated_by_a_rerun(world: tuple[World, Engine, Once]) -> None:
    """`train --attempt 2` of a release that ended ERRORED is another release, with an evaluation of its own."""
    made, engine, once = world
    engine.evaluation_error = "out of memory"
    first = push(made, "one", quality=GOOD, engine=engine).name
    settle(made, engine, 15)
    engine.evaluation_error = ""
    settle(made, engine, 15)
    assert view_of(made).ledger.release(MODEL, first).phase is ReleasePhase.ERRORED
    again = push(made, "one", quality=GOOD, engine=engine, attempt=2).name
    settle(made, engine, 15)
    assert view_of(made).ledger.release(MODEL, again).phase is ReleasePhase.CANDIDATE
    assert [key[:12] for key in once.started] == [first, again]
