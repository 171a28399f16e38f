"""What a job looks like from outside: one phase, one word and one sentence, from conditions and pods together."""

import signal
from typing import Any, Final

from mlgitops.adapters.cluster.logs import last_words
from mlgitops.adapters.cluster.pods import RunningPod
from mlgitops.adapters.cluster.records import Record, parse_result
from mlgitops.adapters.cluster.state import text
from mlgitops.adapters.cluster.tfjob import all_started
from mlgitops.ports.cluster import JobPhase

_MESSAGE_CHARACTERS: Final = 2000


def observe(record: Record) -> dict[str, Any]:
    """Return the observation of a job, as it is written."""
    phase, reason, message = _phase(record)
    done = phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
    finished = (record.status.completed_at or record.deleted_at) if done else None
    return {
        "phase": str(phase),
        "reason": reason,
        "message": message[:_MESSAGE_CHARACTERS],
        "started_at": text(record.applied_at),
        "finished_at": text(finished),
        "result": record.outcome.get("result", {}),
        "restarts": record.restarts,
    }


def _phase(record: Record) -> tuple[JobPhase, str, str]:
    status = record.status
    if status.holds("Succeeded"):
        return JobPhase.SUCCEEDED, "TFJobSucceeded", record.outcome.get("message", "")
    if status.holds("Failed"):
        return JobPhase.FAILED, status.failure, record.outcome.get("message", "")
    if record.deleted_at is not None:
        return JobPhase.FAILED, "Deleted", f"TFJob {record.job.name} was deleted while it ran: {record.deleted_because}"
    if status.holds("Suspended"):
        return JobPhase.SUSPENDED, "TFJobSuspended", "waits until somebody resumes it"
    if record.job.foreign:
        return JobPhase.PENDING, "ManagedElsewhere", f"{record.job.managed_by} has this job"
    return _unfinished(record)


def _unfinished(record: Record) -> tuple[JobPhase, str, str]:
    """Tell a job that runs from one that waits, and for what."""
    if record.create_error:
        return JobPhase.PENDING, "FailedCreatePod", record.create_error
    stuck = next((pod for pod in record.pods if not pod.active and pod.phase == "Running"), None)
    waits = [pod for pod in record.pods if pod.phase == "Pending"]
    waits.sort(key=lambda pod: pod.waiting[0] == "ContainerCreating")  # what is stuck before what only takes its time
    if waits:
        reason, message = waits[0].waiting
        return JobPhase.PENDING, reason, f"{waits[0].pod.name} {message or 'is being created'}"
    if not all_started(record.job, [pod.view() for pod in record.pods]):
        restarting = record.status.condition("Restarting")
        if restarting is not None and restarting.status:
            return JobPhase.PENDING, restarting.reason, restarting.message
        return JobPhase.PENDING, "ContainerCreating", "pods are being created"
    if stuck is not None:
        return JobPhase.RUNNING, stuck.waiting[0], f"{stuck.pod.name} {ending(stuck)}"
    return JobPhase.RUNNING, "TFJobRunning", ""


def capture(record: Record) -> dict[str, Any]:
    """Return a finished job's message and result, while its pods are still there to be asked."""
    status = record.status
    condition = status.condition("Succeeded") if status.holds("Succeeded") else status.condition("Failed")
    words = [condition.message] if condition is not None else []
    deciding = next((pod for pod in record.pods if pod.pod.name == record.job.deciding_pod), None)
    result: dict[str, Any] = {}
    if deciding is not None and deciding.ended is not None:
        result, trouble = parse_result(deciding.message, cut=bool(deciding.ended["message_cut"]))
        if trouble and status.holds("Succeeded"):
            words.append(f"{deciding.pod.name}: {trouble}")
    if status.holds("Failed"):
        words += [f"{pod.pod.name} {_why(pod)}" for pod in record.pods if _concerns(record, pod)][:3]
    return {"message": "; ".join(words), "result": result}


def _concerns(record: Record, pod: RunningPod) -> bool:
    """Say whether a pod tells why its job failed."""
    failure = record.status.failure
    if failure == "StartDeadlineExceeded":
        return not pod.begun
    if failure == "DeadlineExceeded":
        return pod.pod.name == record.job.deciding_pod
    return pod.runs > 1 or (pod.ended is not None and pod.ended["exit_code"] != 0)


def _why(pod: RunningPod) -> str:
    if not pod.begun:
        return f"waits: {pod.waiting[0]} {pod.waiting[1]}".rstrip()
    return ending(pod) if pod.ended is not None else f"was running, last words: {last_words(pod.log)}"


def ending(pod: RunningPod) -> str:
    """Say how a pod's container ended, with its last words."""
    assert pod.ended is not None
    code = int(pod.ended["exit_code"])
    name = _signal_name(code - 128)
    message = pod.message.strip()
    words = message if message and not message.startswith("{") else last_words(pod.log)
    cause = pod.ended["reason"] if pod.ended["reason"] in ("OOMKilled", "StartError") else name
    return f"ended with {code}{f' ({cause})' if cause else ''}{': ' if words else ''}{words[:500]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
