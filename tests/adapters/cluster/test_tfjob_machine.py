"""The operator's controller as a function: rules that hold whatever pods do."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.adapters.cluster.tfjob import (
    PodPhase,
    PodView,
    Replicas,
    TrainingJob,
    advance,
    created,
    pod_name,
    tf_config,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PHASES = ("Pending", "Running", "Succeeded", "Failed")


def job(roles=None, policy: str = "Never", **more):
    """Return a job with replica counts by type."""
    replicas = {
        role: Replicas(count=count, restart_policy=policy, template={})
        for role, count in (roles or {"Worker": 1}).items()
    }
    return TrainingJob(name="job", roles=replicas, **more)


def pod(role: str = "Worker", index=0, phase: PodPhase = "Running", **more):
    """Return what is seen of one pod."""
    return PodView(name=pod_name("job", role, index), role=role, index=index, phase=phase, **more)


def running(one):
    """Return the status of a job whose first pass is over."""
    return advance(one, created(one, NOW), [], NOW).status


def test_missing_pods_are_wished_for_by_name_and_index() -> None:
    """The first pass asks for every replica, and starts the job's clock."""
    step = advance(job({"Chief": 1, "Worker": 2}), created(job(), NOW), [], NOW)
    assert step.create == (("Chief", 0), ("Worker", 0), ("Worker", 1))
    assert step.status.started_at == NOW


def test_the_chief_wins_over_a_worker_that_fails_in_the_same_moment() -> None:
    """A job whose chief succeeded has succeeded, also when a worker failed at the same time."""
    one = job({"Chief": 1, "Worker": 1})
    pods = [pod("Chief", phase="Succeeded", exit_code=0), pod(phase="Failed", exit_code=1)]
    status = advance(one, running(one), pods, NOW).status
    assert status.holds("Succeeded")
    assert not status.holds("Failed")


def test_a_restarting_peer_does_not_hide_a_failure_for_good() -> None:
    """A replica that failed for good fails the job while another one restarts."""
    one = job({"Worker": 2}, policy="ExitCode")
    pods = [pod(phase="Failed", exit_code=1), pod(index=1, phase="Failed", exit_code=137)]
    assert advance(one, running(one), pods, NOW).status.holds("Failed")


def test_restarting_and_running_exclude_each_other() -> None:
    """A job is Restarting while a replica is made again, then Running again, never both."""
    one = job({"Chief": 1, "Worker": 1}, policy="ExitCode")
    pods = [pod("Chief"), pod(phase="Failed", exit_code=143)]
    step = advance(one, running(one), pods, NOW)
    assert (step.delete, step.status.holds("Restarting")) == (("job-worker-0",), True)
    assert step.status.condition("Running") is None
    status = advance(one, step.status, [pod("Chief"), pod()], NOW).status
    assert status.holds("Running")
    assert status.condition("Restarting") is None


@pytest.mark.parametrize(("count", "finished"), [(0, True), (-1, False)])
def test_no_replicas_are_a_success_and_less_than_none_are_not(count: int, finished: bool) -> None:
    """A worker type with 0 replicas has nothing left to succeed; a negative number never ends by itself."""
    one = job({"Worker": count})
    assert running(one).finished is finished


def test_dynamic_workers_know_the_parameter_servers_and_themselves() -> None:
    """With enableDynamicWorker the TF_CONFIG is sparse, so that workers may come and go."""
    one = job({"Worker": 2, "PS": 1}, dynamic_workers=True)
    ports = {"job-worker-0": 1, "job-worker-1": 2, "job-ps-0": 3}
    assert json.loads(tf_config(one, "Worker", 1, ports)) == {
        "sparseCluster": {"worker": {"1": "127.0.0.1:2"}, "ps": ["127.0.0.1:3"]},
        "task": {"type": "worker", "index": 1},
    }


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["Chief", "Worker", "PS"]), st.sampled_from(PHASES), st.integers(0, 255))),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(
    steps=STEPS,
    policy=st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"]),
    limit=st.none() | st.integers(0, 3),
    clean=st.sampled_from(["None", "Running", "All"]),
    chief=st.booleans(),
)
def test_whatever_pods_do_the_controller_keeps_its_rules(steps, policy, limit, clean, chief) -> None:
    """An outcome is final, excludes the other, comes with its time and a reason, and ends the making of pods."""
    roles = {"Worker": 2, "PS": 1} | ({"Chief": 1} if chief else {})
    one = job(roles, policy=policy, backoff_limit=limit, clean_pod_policy=clean, active_deadline_seconds=20)
    status, now = created(one, NOW), NOW
    for seen, seconds, suspended in steps:
        now += timedelta(seconds=seconds)
        one = dataclasses.replace(one, suspended=suspended)
        pods = [
            pod(role, number, phase, exit_code=code if phase == "Failed" else None)
            for number, (role, phase, code) in enumerate(seen)
            if role in roles
        ]
        step = advance(one, status, pods, now)
        if status.finished:
            assert (step.create, step.status.conditions) == ((), status.conditions)
            assert step.status.completed_at == status.completed_at
        status = step.status
        assert not (status.holds("Succeeded") and status.holds("Failed"))
        assert not (status.holds("Running") and status.holds("Restarting"))
        assert not (status.finished and (status.holds("Running") or step.create))
        assert status.finished == (status.completed_at is not None)
        assert bool(status.failure) == status.holds("Failed")
        assert not suspended or not step.create
        assert set(step.delete) <= {one.name for one in pods}
        again = advance(one, status, [], now)
        assert not again.delete
