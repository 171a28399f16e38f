"""Costs: what they are read from, and how gates judge them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mlgitops.core.configuration import Gate, Role, Training
from mlgitops.core.evaluation.costs import COSTS, cost, gpus, training_costs
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.release import Release, TrainingSucceeded
from tests.support.values import submission


def side(size: int, median: float = 2.0) -> dict[str, Any]:
    return {
        "metrics": {},
        "slices": {},
        "sizeBytes": size,
        "latencyMilliseconds": {"median": median, "p95": 2 * median, "calls": 20},
    }


def report(champion: Any = None, training: Any = None) -> dict[str, Any]:
    given = {"confidence": 0.95, "candidate": side(3_000_000), "champion": champion, "comparison": None}
    return given if training is None else {**given, "training": training}


def judge(given: dict[str, Any], metric: str, **limits: Any):
    (result,) = judge_gates(given, [Gate(metric=metric, **limits)])
    return result


def test_costs_are_judged_by_their_value() -> None:
    """A cost at its limit passes, above it fails, and the reason says both numbers."""
    assert judge(report(), "size_megabytes", maximum=3).passed
    failed = judge(report(), "latency_p95_milliseconds", maximum=3.9)
    assert not failed.passed
    assert failed.reason == "latency_p95_milliseconds is 4, above the maximum 3.9"


def test_costs_are_judged_against_the_champion() -> None:
    """`maximumRatio` limits the candidate's cost over the champion's; without a champion it passes."""
    assert judge(report(), "size_megabytes", maximum_ratio=1).passed
    given = report(champion=side(2_000_000))
    assert judge(given, "size_megabytes", maximum_ratio=1.5).passed
    failed = judge(given, "size_megabytes", maximum_ratio=1.4)
    assert failed.reason == "size_megabytes is 3, the champion's 2; at most 1.4 times as much is allowed"
    assert not failed.passed


@pytest.mark.parametrize("name", ["training_hours", "gpu_hours"])
def test_a_cost_that_was_not_measured_fails(name: str) -> None:
    """No limit passes on a cost nobody knows, on either side."""
    assert judge(report(), name, maximum=1e9).reason == f"{name} was not measured"
    known = {"candidate": {"hours": 1, "gpuHours": 1}, "champion": None}
    assert not judge(report(side(1), known), name, maximum_ratio=1e9).passed
    broken = report(champion={"uri": "x", "error": "it cannot be loaded"})
    assert not judge(broken, "size_megabytes", maximum_ratio=1e9).passed


def test_every_cost_has_a_value_in_a_full_report() -> None:
    """Each published name of a cost is found in a report that has everything."""
    full = report(training={"candidate": {"hours": 1.5, "gpuHours": 6}, "champion": None})
    assert {name: cost(full, "candidate", name) for name in COSTS} == {
        "size_megabytes": 3,
        "latency_median_milliseconds": 2,
        "latency_p95_milliseconds": 4,
        "training_hours": 1.5,
        "gpu_hours": 6,
    }


def trained(started: str, finished: str) -> Release:
    done = TrainingSucceeded(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        artifact_digest="sha256:" + 64 * "0",
        started_at=started,
        finished_at=finished,
    )
    return Release(submission=submission(), history=(done,))


def test_training_hours_are_those_of_the_job_times_its_gpus() -> None:
    """GPU hours count every replica's GPUs of every vendor; a job without times has no hours."""
    roles = {
        "Chief": Role(resources={"limits": {"nvidia.com/gpu": 1, "memory": "2Gi"}}),
        "Worker": Role(replicas=3, resources={"limits": {"amd.com/gpu": "2"}, "requests": {"nvidia.com/gpu": 8}}),
    }
    training = Training(command=("python",), roles=roles)
    assert gpus(training) == 7
    release = trained("2026-01-01T10:00:00+00:00", "2026-01-01T10:30:00+00:00")
    assert training_costs(release, training) == {"hours": 0.5, "gpuHours": 3.5}
    assert training_costs(trained("", ""), training) is None
