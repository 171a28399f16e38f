"""What a TFJob means: defaults, admission, and the Training Operator's controller as a function.

State and pods in, state and wishes out; nothing here reads a clock, a file or a process. The semantics are those of
`kubeflow.org/v1` in kubeflow/trainer, branch release-1.9 (v1.9.4): `pkg/controller.v1/common/job.go`,
`pkg/controller.v1/tensorflow/tfjob_controller.go`, `pkg/core/job.go`, `pkg/webhooks/tensorflow/tfjob_webhook.go`.

Where this differs, on purpose:

- A job whose replicas do not all start within the start deadline fails (`mlgitops.dev/start-deadline-seconds`).
- When a job fails, replicas that still run are ended whatever `cleanPodPolicy` says: a worker that waits for a dead
  peer waits for ever.
- A replica that failed for good fails the job also while another replica restarts; the operator can forget it then.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from mlgitops.core.manifest.fields import PREFIX

START_DEADLINE_ANNOTATION: Final = f"{PREFIX}/start-deadline-seconds"
START_DEADLINE_SECONDS: Final = 120
CONTAINER: Final = "tensorflow"
PORT: Final = 2222
ROLES: Final = ("Chief", "Evaluator", "Master", "PS", "Worker")
"""The replica types the operator knows, in the order in which it looks at them."""
DECIDING_ROLES: Final = ("Chief", "Master")
RESTARTING_POLICIES: Final = ("OnFailure", "Always", "ExitCode")
FIRST_RETRYABLE_EXIT: Final = 128

PodPhase = Literal["Pending", "Running", "Succeeded", "Failed"]
ConditionType = Literal["Created", "Running", "Restarting", "Succeeded", "Suspended", "Failed"]


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """One replica type of a job, defaults filled in."""

    count: int
    restart_policy: str
    template: Mapping[str, Any]
    """The pod template, as written."""

    @property
    def container(self) -> Mapping[str, Any]:
        """The container that trains."""
        containers: Sequence[Mapping[str, Any]] = self.template["spec"]["containers"]
        return next(one for one in containers if one.get("name") == CONTAINER)

    @property
    def pod_restart_policy(self) -> str:
        """What the pod itself gets: with `ExitCode` the controller restarts, the pod never does."""
        return "Never" if self.restart_policy == "ExitCode" else self.restart_policy


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A TFJob after defaulting and admission."""

    name: str
    roles: Mapping[str, Replicas]
    clean_pod_policy: str = "None"
    ttl_seconds: int | None = None
    """Seconds after its end at which the object is deleted; None for never."""
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspended: bool = False
    managed_by: str | None = None
    success_policy: str = ""
    dynamic_workers: bool = False
    start_deadline_seconds: float = START_DEADLINE_SECONDS

    @property
    def has_chief(self) -> bool:
        """Whether a chief or master decides."""
        return any(role in self.roles for role in DECIDING_ROLES)

    @property
    def distributed(self) -> bool:
        """Whether replicas must find each other, so that they get a `TF_CONFIG`."""
        return sum(self.roles[role].count for role in ROLES if role in self.roles) != 1

    @property
    def deciding_pod(self) -> str:
        """Name of the pod whose end decides the job's."""
        role = next((one for one in DECIDING_ROLES if one in self.roles), "Worker")
        return pod_name(self.name, role, 0)

    @property
    def foreign(self) -> bool:
        """Whether another controller has taken the job."""
        return self.managed_by not in (None, "kubeflow.org/training-operator")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One entry of `status.conditions`."""

    type: ConditionType
    status: bool
    reason: str
    message: str
    updated_at: datetime
    transitioned_at: datetime


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """One entry of `status.replicaStatuses`."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """What the controller remembers of a job between its passes."""

    conditions: tuple[Condition, ...] = ()
    replicas: Mapping[str, ReplicaStatus] = field(default_factory=dict)
    started_at: datetime | None = None
    """`startTime`: the first pass, or the last resumption; deadlines count from it."""
    completed_at: datetime | None = None
    starting_since: datetime | None = None
    """What the start deadline counts from; None when every replica has started."""
    recreations: Mapping[str, int] = field(default_factory=dict)
    """Pods made again after a failure or loss, by pod name."""
    failure: str = ""
    """Why the job failed, one word; empty while it has not."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return the condition of a type, whatever its status."""
        return next((one for one in self.conditions if one.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Say whether a condition is true."""
        condition = self.condition(kind)
        return condition is not None and condition.status

    @property
    def finished(self) -> bool:
        """Whether the job has an outcome; it never runs again."""
        return self.holds("Succeeded") or self.holds("Failed")


@dataclass(frozen=True, kw_only=True)
class PodView:
    """What the controller sees of one pod."""

    name: str
    role: str
    index: int
    phase: PodPhase
    exit_code: int | None = None
    """Of the container that trains, when it has ended for good."""
    restarts: int = 0
    """Restarts of its container within the pod."""
    terminating: bool = False
    """Deletion was asked for."""


@dataclass(frozen=True, kw_only=True)
class Advance:
    """What one pass of the controller decided."""

    status: Status
    create: tuple[tuple[str, int], ...] = ()
    """Pods to make: role and index."""
    delete: tuple[str, ...] = ()
    """Pods to delete, by name."""
    expired: bool = False
    """The object itself is to be deleted: its time to live is over."""


def pod_name(job: str, role: str, index: int) -> str:
    """Return a replica's name."""
    return f"{job}-{role.lower()}-{index}"


def tf_config(job: TrainingJob, role: str, index: int, ports: Mapping[str, int]) -> str:
    """Return the `TF_CONFIG` of one replica; `ports` are loopback ports by pod name.

    Evaluators are not part of the cluster. With dynamic workers a replica knows the parameter servers and itself.
    """
    cluster = {
        kind.lower(): [f"127.0.0.1:{ports[pod_name(job.name, kind, number)]}" for number in range(replicas.count)]
        for kind, replicas in job.roles.items()
        if kind != "Evaluator"
    }
    task = {"type": role.lower(), "index": index}
    if not job.dynamic_workers:
        return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    sparse: dict[str, Any] = {"worker": {}, "ps": []}
    if role == "PS":
        sparse["ps"] = [cluster["ps"][index]]
    elif role == "Worker":
        sparse = {"worker": {str(index): cluster["worker"][index]}, "ps": cluster.get("ps", [])}
    return json.dumps({"sparseCluster": sparse, "task": task})


# --- the controller ---------------------------------------------------------------------------------------------------


def created(job: TrainingJob, now: datetime) -> Status:
    """Return the status of a job that was accepted a moment ago."""
    return _with(Status(), "Created", f"TFJob {job.name} is created.", now)


def advance(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime) -> Advance:
    """Make one pass of the controller over a job and the pods that exist."""
    if job.foreign:
        return Advance(status=status)
    if status.finished:
        return _clean_up(job, status, pods, now)
    if job.suspended:
        return _suspend(job, status, pods, now)
    if status.holds("Suspended"):
        status = _with(status, "Suspended", f"TFJob {job.name} is resumed.", now, holds=False, reason="TFJobResumed")
        status = dataclasses.replace(status, started_at=now, starting_since=now)
    failure = _exceeded(job, status, pods, now)
    if failure:
        return _give_up(job, status, pods, now, failure)
    return _reconcile(job, status, pods, now)


def _clean_up(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime) -> Advance:
    """Apply `cleanPodPolicy` and the time to live of a finished job."""
    alive = [pod for pod in pods if pod.phase in ("Running", "Pending")]
    unwanted: Sequence[PodView] = ()
    if job.clean_pod_policy == "Running" or (status.holds("Failed") and job.clean_pod_policy == "None"):
        unwanted = alive
    elif job.clean_pod_policy != "None":
        unwanted = pods
    if status.holds("Succeeded"):
        counts = {
            role: ReplicaStatus(succeeded=one.succeeded + one.active, failed=one.failed)
            for role, one in status.replicas.items()
        }
        status = dataclasses.replace(status, replicas=counts)
    expired = (
        job.ttl_seconds is not None
        and not job.suspended
        and status.completed_at is not None
        and now > status.completed_at + timedelta(seconds=job.ttl_seconds)
    )
    return Advance(status=status, delete=_names(unwanted), expired=expired)


def _suspend(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime) -> Advance:
    message = f"TFJob {job.name} is suspended."
    if status.holds("Running"):
        status = _with(status, "Running", message, now, holds=False, reason="TFJobSuspended")
    if not status.holds("Suspended"):
        status = _with(status, "Suspended", message, now)
    counts = {role: dataclasses.replace(one, active=0) for role, one in status.replicas.items()}
    return Advance(status=dataclasses.replace(status, replicas=counts), delete=_names(pods))


def _exceeded(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime) -> str:
    """Return the word for the limit that the job has passed; empty for none."""
    if job.backoff_limit is not None and _past_backoff_limit(job, job.backoff_limit, status, pods):
        return "BackoffLimitExceeded"
    if status.started_at is None:
        return ""
    active = now - status.started_at
    if job.active_deadline_seconds is not None and active >= timedelta(seconds=job.active_deadline_seconds):
        return "DeadlineExceeded"
    since = status.starting_since
    if (
        since is not None
        and not all_started(job, pods)
        and now - since >= timedelta(seconds=job.start_deadline_seconds)
    ):
        return "StartDeadlineExceeded"
    return ""


def _past_backoff_limit(job: TrainingJob, limit: int, status: Status, pods: Sequence[PodView]) -> bool:
    """Count as the operator does: restarts of containers in running pods; a limit of 0 also counts failed pods."""
    known = sum(one.failed for one in status.replicas.values())
    failed = sum(1 for pod in pods if pod.phase == "Failed")
    active = sum(1 for pod in pods if pod.phase in ("Running", "Pending") and not pod.terminating)
    if failed > known and active != sum(replicas.count for replicas in job.roles.values()) and limit < 1:
        return True
    restarts = sum(
        pod.restarts
        for pod in pods
        if pod.phase == "Running"
        and pod.role in job.roles
        and job.roles[pod.role].restart_policy in RESTARTING_POLICIES
    )
    return restarts > 0 if limit == 0 else restarts >= limit


def all_started(job: TrainingJob, pods: Sequence[PodView]) -> bool:
    """Say whether every replica of the job runs or has run."""
    begun = {(pod.role, pod.index) for pod in pods if pod.phase != "Pending" and not pod.terminating}
    wanted = {(role, index) for role, replicas in job.roles.items() for index in range(replicas.count)}
    return bool(wanted) and wanted <= begun


def _give_up(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime, failure: str) -> Advance:
    causes = {
        "BackoffLimitExceeded": "it has reached the specified backoff limit",
        "DeadlineExceeded": "it was active longer than specified deadline",
        "StartDeadlineExceeded": f"not every replica had started after {job.start_deadline_seconds:g} seconds",
    }
    status = _fail(status, f"Job {job.name} has failed because {causes[failure]}", now, failure)
    return dataclasses.replace(_clean_up(job, status, pods, now), expired=False)


def _reconcile(job: TrainingJob, status: Status, pods: Sequence[PodView], now: datetime) -> Advance:
    """Make missing pods, restart what may be restarted, and say what became of the job."""
    create: list[tuple[str, int]] = []
    delete: list[str] = []
    counts: dict[str, ReplicaStatus] = {}
    restarting: dict[str, int] = {}
    for role, replicas in job.roles.items():
        mine = [pod for pod in pods if pod.role == role]
        taken = {pod.index for pod in mine}
        create += [(role, index) for index in range(replicas.count) if index not in taken]
        delete += [pod.name for pod in mine if pod.index >= replicas.count]
        again = [pod for pod in mine if pod.index < replicas.count and _retryable(replicas, pod)]
        delete += [pod.name for pod in again]
        counts[role] = _count(mine)
        if again:
            restarting[role] = len(again)
            status = _again(job, role, status, again, now)
    status = dataclasses.replace(
        status,
        replicas=counts,
        started_at=status.started_at or now,
        starting_since=None
        if all_started(job, pods)
        else status.starting_since or (None if status.started_at else now),
    )
    for role in ROLES:
        if role in job.roles:
            status = _judge_role(job, role, status, pods, restarting=restarting, now=now)
    return Advance(status=status, create=() if status.finished else tuple(create), delete=tuple(delete))


def _retryable(replicas: Replicas, pod: PodView) -> bool:
    """Say whether the controller makes a failed pod again: 128 and above may pass, 1 to 127 are the program's own."""
    code = pod.exit_code
    return (
        replicas.restart_policy == "ExitCode"
        and pod.phase == "Failed"
        and not pod.terminating
        and code is not None
        and code >= FIRST_RETRYABLE_EXIT
    )


def _again(job: TrainingJob, role: str, status: Status, pods: Sequence[PodView], now: datetime) -> Status:
    recreations = {**status.recreations}
    for pod in pods:
        recreations[pod.name] = recreations.get(pod.name, 0) + 1
    message = f"TFJob {job.name} is restarting because {role} replica(s) failed."
    return _with(dataclasses.replace(status, recreations=recreations), "Restarting", message, now)


def _count(pods: Sequence[PodView]) -> ReplicaStatus:
    """Count pods by phase; one that is being deleted ends because of that, which says nothing about the job."""
    phases = [pod.phase for pod in pods if not pod.terminating]
    return ReplicaStatus(
        active=phases.count("Running"), succeeded=phases.count("Succeeded"), failed=phases.count("Failed")
    )


def _judge_role(
    job: TrainingJob,
    role: str,
    status: Status,
    pods: Sequence[PodView],
    *,
    restarting: Mapping[str, int],
    now: datetime,
) -> Status:
    """Set the conditions that one replica type decides; `restarting` are replicas made again in this pass, by type."""
    count = status.replicas[role]
    expected = job.roles[role].count - count.succeeded
    done = False
    if job.has_chief:
        decides = role in DECIDING_ROLES
        done = decides and expected == 0
    else:
        decides = role == "Worker"
        first = any(pod.role == role and pod.index == 0 and pod.phase == "Succeeded" for pod in pods)
        done = decides and (expected == 0 or (first and job.success_policy != "AllWorkers"))
    if done:
        status = _succeed(status, f"TFJob {job.name} successfully completed.", now)
    elif decides and count.active > 0 and not restarting:
        status = _with(status, "Running", f"TFJob {job.name} is running.", now)
    for_good = count.failed - restarting.get(role, 0)
    if for_good > 0 and not (job.dynamic_workers and role == "Worker"):
        message = f"TFJob {job.name} has failed because {for_good} {role} replica(s) failed."
        status = _fail(status, message, now, "ReplicaFailed")
    return status


# --- conditions -------------------------------------------------------------------------------------------------------


def _succeed(status: Status, message: str, now: datetime) -> Status:
    status = dataclasses.replace(status, completed_at=status.completed_at or now)
    return _with(status, "Succeeded", message, now)


def _fail(status: Status, message: str, now: datetime, failure: str) -> Status:
    if status.finished:
        return status
    status = dataclasses.replace(status, completed_at=status.completed_at or now, failure=failure)
    return _with(status, "Failed", message, now)


def _with(
    status: Status, kind: ConditionType, message: str, now: datetime, *, holds: bool = True, reason: str = ""
) -> Status:
    """Set a condition: a finished job's never change; running and restarting exclude each other."""
    reason = reason or f"TFJob{kind}"
    before = status.condition(kind)
    if status.finished or (before is not None and before.status == holds and before.reason == reason):
        return status
    since = before.transitioned_at if before is not None and before.status == holds else now
    fresh = Condition(type=kind, status=holds, reason=reason, message=message, updated_at=now, transitioned_at=since)
    gone = {"Running": {"Running", "Restarting"}, "Restarting": {"Running", "Restarting"}}.get(kind, {kind})
    kept = [one for one in status.conditions if one.type not in gone]
    if kind in ("Succeeded", "Failed"):
        kept = [dataclasses.replace(one, status=False) if one.type == "Running" else one for one in kept]
    return dataclasses.replace(status, conditions=(*kept, fresh))


def _names(pods: Sequence[PodView]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods)
