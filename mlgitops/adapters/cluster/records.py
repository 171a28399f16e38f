"""What the embedded cluster keeps of a job on disk, and how it is read by any process.

    jobs/<environment>/<name>/<incarnation>/object.json    the applied manifest; when it was applied and deleted
    jobs/<environment>/<name>/<incarnation>/status.json    conditions, the controller's memory, and the observation
    jobs/<environment>/<name>/<incarnation>/pods/…          see `pods`
    jobs/<environment>/<name>/<incarnation>/logs/…

An object that is deleted and applied again is a new object: its next incarnation. The highest one is looked at.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mlgitops.adapters.cluster.pods import RunningPod
from mlgitops.adapters.cluster.state import instant, text
from mlgitops.adapters.cluster.tfjob import Condition, ReplicaStatus, Status, TrainingJob


@dataclass(kw_only=True)
class Record:
    """One object the engine knows; the engine alone changes it."""

    environment: str
    folder: Path
    manifest: Mapping[str, Any]
    job: TrainingJob
    applied_at: datetime
    deleted_at: datetime | None = None
    deleted_because: str = ""
    status: Status = field(default_factory=Status)
    pods: list[RunningPod] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)
    """Loopback port by pod name, when the job is distributed."""
    carried_restarts: int = 0
    """Container restarts of pods that are gone."""
    outcome: dict[str, Any] = field(default_factory=dict)
    """Message and result, taken when the job finished, as its pods may be cleaned away."""
    create_error: str = ""
    """Why pods could not be made."""
    not_before: dict[str, datetime] = field(default_factory=dict)
    """When a pod may be made again, by name."""
    written: str = ""
    """The status file as last written."""

    @property
    def restarts(self) -> int:
        """Container restarts so far, over all pods, and pods made again."""
        running = sum(max(pod.runs - 1, 0) for pod in self.pods)
        return running + self.carried_restarts + sum(self.status.recreations.values())


def status_document(status: Status) -> dict[str, Any]:
    """Return a status in the shape of the TFJob's own."""
    return {
        "conditions": [
            {
                "type": one.type,
                "status": str(one.status),
                "reason": one.reason,
                "message": one.message,
                "lastUpdateTime": text(one.updated_at),
                "lastTransitionTime": text(one.transitioned_at),
            }
            for one in status.conditions
        ],
        "replicaStatuses": {role: asdict(one) for role, one in status.replicas.items()},
        "startTime": text(status.started_at),
        "completionTime": text(status.completed_at),
    }


def document(record: Record, observation: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that is written about a job."""
    return {
        "status": status_document(record.status),
        "controller": {
            "starting_since": text(record.status.starting_since),
            "recreations": dict(record.status.recreations),
            "failure": record.status.failure,
            "ports": record.ports,
            "carried_restarts": record.carried_restarts,
            "outcome": record.outcome,
        },
        "observation": dict(observation),
    }


def restore(record: Record, values: Mapping[str, Any]) -> None:
    """Give a record back what `document` wrote."""
    written, memory = values["status"], values["controller"]
    record.status = Status(
        conditions=tuple(_condition(one) for one in written["conditions"]),
        replicas={role: ReplicaStatus(**one) for role, one in written["replicaStatuses"].items()},
        started_at=instant(written["startTime"]),
        completed_at=instant(written["completionTime"]),
        starting_since=instant(memory["starting_since"]),
        recreations=memory["recreations"],
        failure=memory["failure"],
    )
    record.ports = memory["ports"]
    record.carried_restarts = memory["carried_restarts"]
    record.outcome = memory["outcome"]


def _condition(values: Mapping[str, Any]) -> Condition:
    updated, moved = instant(values["lastUpdateTime"]), instant(values["lastTransitionTime"])
    assert updated is not None
    assert moved is not None
    return Condition(
        type=values["type"],
        status=values["status"] == "True",
        reason=values["reason"],
        message=values["message"],
        updated_at=updated,
        transitioned_at=moved,
    )


def parse_result(message: str, *, cut: bool) -> tuple[dict[str, Any], str]:
    """Return the JSON object in a termination message, and what was wrong with it; both empty for no message.

    NaN and infinity, also as a number that overflows, are no JSON: a result with one is no result.
    """
    if not message.strip():
        return {}, ""
    if cut:
        return {}, "the termination message is longer than 4,096 bytes, so it is no result"
    try:
        value = json.loads(message, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return {}, f"the termination message is no JSON object: {error!s:.120}"
    if not isinstance(value, dict):
        return {}, "the termination message is no JSON object"
    return value, ""


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(written: str) -> float:
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(f"{written} is no finite number")
    return value
