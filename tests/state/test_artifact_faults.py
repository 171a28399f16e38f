"""Jobs that leave no model, or another one than they reported: nothing of it is evaluated, and the next ones go on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mlgitops.app.context import World
from mlgitops.core.errors import NotFound
from mlgitops.core.names import Digest
from mlgitops.core.release import ReleasePhase, TrainingSucceeded
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.cluster import JobObservation
from mlgitops.ports.serving import ServiceObservation
from tests.support.world import MODEL, Engine, Quality, live, push, quick_world, seen_by, settle, state_of, view_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)


@dataclass
class Faulty(Engine):
    """Trains, and leaves what a test says."""

    reports: Mapping[str, Any] = field(default_factory=dict)
    """What every job reports."""
    lost: bool = False
    """No model is where the job should have left it."""
    unloadable: set[str] = field(default_factory=set)
    """Releases whose model no server loads."""

    def job(self, environment: str, name: str) -> JobObservation | None:
        seen = super().job(environment, name)
        return None if seen is None else replace(seen, result=self.reports)

    def digest(self, uri: str) -> Digest:
        if self.lost:
            raise NotFound("artifact", uri)
        return super().digest(uri)

    def _service(self, data: bytes | None) -> ServiceObservation | None:
        seen = super()._service(data)
        if seen is None or seen.release not in self.unloadable:
            return seen
        return replace(seen, ready=False, serving=False, message="expected sha256:a, found sha256:b")


@pytest.fixture
def world() -> tuple[World, Faulty]:
    world, engine = quick_world()
    faulty = Faulty(repository=engine.repository, clock=engine.clock)
    return seen_by(faulty, world.repository), faulty


def test_a_job_that_succeeded_and_left_no_model_fails_its_release(world: tuple[World, Faulty]) -> None:
    """Success without a model is a no, told with the place that is empty; the next release trains."""
    world[1].lost = True
    first = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1)
    ended = view_of(world[0]).ledger.release(MODEL, first.name)
    assert ended.phase is ReleasePhase.FAILED
    assert ended.submission.artifact_uri in ended.reason
    world[1].lost = False
    second = push(world[0], "two", quality=GOOD, engine=world[1]).name
    settle(*world, 15)
    assert state_of(world[0]).champion == second


def test_a_model_changed_after_training_is_no_candidate(world: tuple[World, Faulty]) -> None:
    """Bytes that are not the ones the job reported end the release as an error, with both digests."""
    reported = str(Digest.of(b"what was trained"))
    world[1].reports = {"artifact": {"digest": reported}}
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 15)
    ended = view_of(world[0]).ledger.release(MODEL, release.name)
    assert ended.phase is ReleasePhase.ERRORED
    assert reported in ended.reason
    assert str(Digest.of(ended.submission.artifact_uri.encode())) in ended.reason
    assert state_of(world[0]).rollouts == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, "0.9", None, [0.9]])
def test_metrics_that_are_no_finite_numbers_are_not_kept(world: tuple[World, Faulty], value: object) -> None:
    """What a job reports is shown only where it is a finite number; the model is judged by its predictions anyway."""
    world[1].reports = {"metrics": {"accuracy": value, "loss": 0.5}, "history": [{"loss": value}, {"loss": 0.5}]}
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 15)
    trained = view_of(world[0]).ledger.release(MODEL, release.name)
    (event,) = [one for one in trained.history if isinstance(one, TrainingSucceeded)]
    assert event.metrics == {"loss": 0.5}
    assert event.history == ({}, {"loss": 0.5})
    assert state_of(world[0]).champion == release.name


def test_a_model_spoilt_after_its_evaluation_goes_back_without_traffic(world: tuple[World, Faulty]) -> None:
    """A canary that no server loads is given no traffic and goes back after its time; the champion serves on."""
    first = live(*world, "one", GOOD, trusted=True)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    world[1].unloadable.add(second)
    settle(*world, 1_000)
    state = state_of(world[0])
    rollout = state.rollouts[2]
    assert (rollout.release, rollout.phase) == (second, P.ROLLED_BACK)
    assert "canary's service is not ready: expected sha256:a, found sha256:b" in rollout.reason
    assert "CanaryReady" not in {type(one).__name__ for one in rollout.history}
    assert state.champion == first
