"""What runs jobs and applies the environment repository."""

import enum
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A piece of what a pod wrote."""

    position: int
    """Bytes that the pod wrote before it; a gap between two parts was left out."""
    data: bytes


def one_log(pods: Mapping[str, bytes]) -> bytes:
    """Return the logs of several pods as one, each below its name."""
    whole = ((pod, text if text.endswith(b"\n") else text + b"\n") for pod, text in sorted(pods.items()))
    return b"".join(b"== " + pod.encode() + b"\n" + text for pod, text in whole)


def left_out(size_bytes: int) -> bytes:
    """Return the note that stands for output that was not kept; empty for none."""
    return b"\n[mlgitops: %d bytes left out]\n" % size_bytes if size_bytes > 0 else b""


class Cluster(Protocol):
    """The engine: Kubernetes, or the embedded one."""

    def job(self, environment: str, name: str) -> JobObservation | None:
        """Look at one training job; None when the engine does not know it."""

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        """Return the logs kept of each pod of a job, by pod name; they outlive the pods."""

    def log_parts(self, environment: str, name: str, after: Mapping[str, int]) -> Mapping[str, Sequence[LogPart]]:
        """Return what the pods of a job wrote since a position of each, by pod name; nothing for what is not known.

        Args:
            environment: Of the job.
            name: The job.
            after: Bytes that were read already, by pod; 0 for pods that are not named.
        """

    def applied(self, environment: str) -> Applied:
        """Say which commit of `main` is applied for an environment (`training` included)."""

    def sync(self) -> None:
        """Ask the engine to look at `main` now; returns at once."""
