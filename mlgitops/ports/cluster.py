"""What runs jobs and applies the environment repository."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


class JobPhase(enum.StrEnum):
    """Where a training job is, from conditions and replica statuses together."""

    PENDING = "Pending"
    """Accepted, not everything runs yet; `reason` says what it waits for."""
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    """Queued by somebody else; not a failure."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class JobObservation:
    """One look at a training job."""

    name: str
    phase: JobPhase
    reason: str = ""
    """One word in CamelCase, like `DeadlineExceeded`."""
    message: str = ""
    """A sentence for people; the failing container's last words where there are any."""
    started_at: datetime | None = None
    """When the engine applied it."""
    finished_at: datetime | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """What the deciding pod reported through its termination message (a JSON object), empty for none."""
    restarts: int = 0
    """Container restarts so far, over all pods."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """How far the engine has come with one environment."""

    revision: str | None
    """The commit of `main` that is applied; None before the first."""
    error: str = ""
    """Why the newest commit is not applied; empty when it is, or is about to be."""


class Cluster(Protocol):
    """The engine: Kubernetes, or the embedded one."""

    def job(self, environment: str, name: str) -> JobObservation | None:
        """Look at one training job; None when the engine does not know it."""

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        """Return the logs kept of each pod of a job, by pod name; they outlive the pods."""

    def applied(self, environment: str) -> Applied:
        """Say which commit of `main` is applied for an environment (`training` included)."""

    def sync(self) -> None:
        """Ask the engine to look at `main` now; returns at once."""
