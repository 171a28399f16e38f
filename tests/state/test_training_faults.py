"""What goes wrong with a training, seen from the release: it ends with the reason, and nobody waits behind it."""

import pytest

from mlgitops.app import deciding
from mlgitops.app.context import World
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.release import ReleasePhase
from mlgitops.ports.cluster import Applied, JobObservation, JobPhase
from tests.support.world import (
    CONFIGURATION,
    MODEL,
    START,
    Engine,
    Quality,
    push,
    quick_world,
    seen_by,
    settle,
    state_of,
    view_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
FOLDER = f"environments/training/{MODEL}"
FAILURES = {
    "DeadlineExceeded": "it ran for longer than 3600 s",
    "StartDeadlineExceeded": "digits-worker-0 waits: ErrImagePull",
    "BackoffLimitExceeded": "3 restarts reach the backoff limit",
    "ReplicaFailed": "1 Worker replica(s) failed; digits-worker-0 ended with 137 (OOMKilled)",
    "Deleted": "somebody removed the job",
}
"""How a training ends that hangs, never starts, is killed again and again, or is taken away."""


class Failing(Engine):
    """An engine whose jobs end in one way, or that does not know them."""

    reason = ""
    message = ""
    restarts = 0
    knows = True
    refuses = ""
    behind = False
    """It has not applied the newest commit yet."""

    def job(self, environment: str, name: str) -> JobObservation | None:
        seen = super().job(environment, name)
        if seen is None or not self.knows:
            return None
        good = seen.phase is JobPhase.SUCCEEDED
        return JobObservation(
            name=name,
            phase=seen.phase,
            reason="" if good else self.reason,
            message="" if good else self.message,
            restarts=self.restarts,
            started_at=START,
            result={},
        )

    def applied(self, environment: str) -> Applied:
        revision = None if self.behind else self.repository.snapshot(MAIN).revision
        return Applied(revision=revision, error=self.refuses)


@pytest.fixture
def world() -> tuple[World, Failing]:
    world, engine = quick_world()
    failing = Failing(**{name: getattr(engine, name) for name in Engine.__dataclass_fields__})
    return seen_by(failing, world.repository), failing


def phase_of(world: World, release: str) -> ReleasePhase:
    return view_of(world).ledger.release(MODEL, release).phase


def is_listed(world: World) -> bool:
    return b"tfjob.yaml" in (world.repository.snapshot(MAIN).read(f"{FOLDER}/kustomization.yaml") or b"")


@pytest.mark.parametrize("reason", FAILURES)
def test_a_failed_training_says_why_and_nobody_waits_behind_it(world: tuple[World, Failing], reason: str) -> None:
    """However a job ends badly: the release is FAILED with its words, its log is kept, and the next one trains."""
    world[1].reason, world[1].message = reason, FAILURES[reason]
    first = push(world[0], "one", quality=Quality(trains=False), engine=world[1]).name
    second = push(world[0], "two", quality=GOOD, engine=world[1]).name
    settle(*world, 1)
    found = view_of(world[0]).ledger.release(MODEL, first)
    assert found.phase is ReleasePhase.FAILED
    assert reason in found.reason
    assert FAILURES[reason] in found.reason
    assert view_of(world[0]).ledger.log(MODEL, first)
    assert world[1].trained == [first, second], "each was trained once"
    assert [one.release for one in state_of(world[0]).rollouts.values()] == [second]
    assert not is_listed(world[0])


def test_restarts_of_a_training_that_succeeds_are_told(world: tuple[World, Failing]) -> None:
    """A job that was killed and went on is a success, and the release says how often it was started again."""
    world[1].restarts = 2
    name = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1)
    found = view_of(world[0]).ledger.release(MODEL, name)
    assert found.phase is ReleasePhase.CANDIDATE
    assert found.trained is not None
    assert found.trained.restarts == 2


def test_a_training_that_hangs_keeps_its_place_and_can_be_ended(world: tuple[World, Failing]) -> None:
    """While a job runs no other of its model starts, however long; `abort` takes it off main, the next trains."""
    world[1].trains_at_once = False
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    second = push(world[0], "two", quality=GOOD, engine=world[1]).name
    settle(*world, 3600, passes=5)
    assert world[1].trained == [first]
    assert phase_of(world[0], second) is ReleasePhase.QUEUED
    deciding.abort(world[0], MODEL, first, reason="it hangs")
    world[1].trains_at_once = True
    settle(*world, 1)
    assert phase_of(world[0], first) is ReleasePhase.ABORTED
    assert world[1].trained == [first, second]
    assert state_of(world[0]).champion == second


@pytest.mark.parametrize("refuses", ["", "ClusterRoleBinding is no kind of training"])
def test_a_job_that_the_engine_never_knows_ends_its_release(world: tuple[World, Failing], refuses: str) -> None:
    """No status at all after the start deadline is an error with the engine's words; the next release trains."""
    world[1].knows, world[1].refuses = False, refuses
    assert "startDeadlineSeconds" not in CONFIGURATION, "what is waited for below is the default, 120 s"
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 1, passes=4)
    assert phase_of(world[0], first) is ReleasePhase.TRAINING, "an engine may be slow"
    settle(*world, 121, passes=2)
    found = view_of(world[0]).ledger.release(MODEL, first)
    assert found.phase is ReleasePhase.ERRORED
    assert "the engine has no such job after" in found.reason
    assert refuses in found.reason
    world[1].knows, world[1].refuses = True, ""
    second = push(world[0], "two", quality=GOOD, engine=world[1]).name
    settle(*world, 1)
    assert state_of(world[0]).champion == second


def test_an_engine_that_is_behind_makes_no_release_fail(world: tuple[World, Failing]) -> None:
    """A job that is unknown because the engine has not looked at main yet is waited for: nothing is trained twice."""
    world[1].knows, world[1].behind = False, True
    first = push(world[0], "one", quality=GOOD, engine=world[1]).name
    settle(*world, 86_400, passes=3)
    assert phase_of(world[0], first) is ReleasePhase.TRAINING
    world[1].knows, world[1].behind = True, False
    settle(*world, 1)
    assert world[1].trained == [first]
    assert state_of(world[0]).champion == first
