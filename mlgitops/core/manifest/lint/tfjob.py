"""Rules for TFJobs: what the operator accepts without a word and then does otherwise than people expect."""

import re
from collections.abc import Iterator
from typing import Any, Final

from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.lint.rule import Finding, Pointer, Subject, add, check, get, items
from mlgitops.core.manifest.owned import CONTAINER
from mlgitops.core.names import ImageReference, job_name

KIND: Final = "TFJob"
ROLES: Final = ("Chief", "Master", "Worker", "PS", "Evaluator")
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POLICIES: Final = ("All", "Running", "None")
LONGEST_POD_NAME: Final = 63
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_REPLICAS: Final[Pointer] = ("spec", "tfReplicaSpecs")
_POLICY: Final[Pointer] = ("spec", "runPolicy")


def _roles(subject: Subject) -> Iterator[tuple[str, Pointer, dict[str, Any]]]:
    """Return name, pointer and value of every role that is a mapping."""
    roles = subject.get(*_REPLICAS)
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, dict):
            yield name, (*_REPLICAS, name), role


def _pods(subject: Subject) -> Iterator[tuple[str, Pointer, dict[str, Any]]]:
    """Return role, pointer and specification of every pod template."""
    for name, pointer, role in _roles(subject):
        pod = get(role, "template", "spec")
        yield name, (*pointer, "template", "spec"), pod if isinstance(pod, dict) else {}


def _containers(subject: Subject) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """Return every container of every role."""
    for _, pointer, pod in _pods(subject):
        for kind in ("initContainers", "containers"):
            for index, container in enumerate(items(pod, kind)):
                if isinstance(container, dict):
                    yield (*pointer, kind, index), container


_CONTAINER = add(
    "tfjob-container",
    "error",
    what="A role without a container named tensorflow",
    why="The operator reads the exit code of that container and sets TF_CONFIG in it; it refuses a job without.",
    mend="name the container that trains tensorflow",
)


@check(_CONTAINER, KIND)
def _container(subject: Subject) -> Iterator[Finding]:
    for role, pointer, pod in _pods(subject):
        if CONTAINER not in [get(one, "name") for one in items(pod, "containers")]:
            yield (*pointer, "containers"), f"role {role} has no container named {CONTAINER}"


_ROLE = add(
    "tfjob-role",
    "error",
    what="No role, or a role that the operator does not know",
    why="An unknown role is accepted and never started or counted.",
    mend=f"write one of {', '.join(ROLES)}",
)


@check(_ROLE, KIND)
def _role(subject: Subject) -> Iterator[Finding]:
    roles = subject.get(*_REPLICAS)
    if not isinstance(roles, dict) or not roles:
        yield _REPLICAS, "the job has no role"
        return
    for name in roles:
        if name not in ROLES:
            yield (*_REPLICAS, name), f"{name} is not a role"


_CHIEF = add(
    "tfjob-chief",
    "error",
    what="More than one chief",
    why="Chief and Master are the same role; with two of them nobody can say who decides.",
    mend="keep one Chief with replicas: 1",
)


@check(_CHIEF, KIND)
def _chief(subject: Subject) -> Iterator[Finding]:
    chiefs = [one for one in _roles(subject) if one[0] in {"Chief", "Master"}]
    if len(chiefs) > 1:
        yield chiefs[1][1], "there is a Chief and a Master"
    for name, pointer, role in chiefs:
        if role.get("replicas", 1) != 1:
            yield (*pointer, "replicas"), f"{name} has {role['replicas']} replicas"


_COUNT = add(
    "tfjob-replicas",
    "error",
    what="A number of replicas below 1",
    why="The operator does not look at it; such a role is never complete.",
    mend="write 1 or more, or remove the role",
)


@check(_COUNT, KIND)
def _count(subject: Subject) -> Iterator[Finding]:
    for name, pointer, role in _roles(subject):
        count = role.get("replicas", 1)
        if type(count) is not int or count < 1:
            yield (*pointer, "replicas"), f"role {name} has {count!r} replicas"


_IMAGE = add(
    "tfjob-image",
    "error",
    what="A container without an image by digest",
    why="A tag can be moved after the tests; what trains must be what was built.",
    mend="write repository@sha256:…; keep the tag in an annotation",
)


@check(_IMAGE, KIND)
def _image(subject: Subject) -> Iterator[Finding]:
    for pointer, container in _containers(subject):
        image = container.get("image")
        if not isinstance(image, str) or not image:
            yield pointer, "the container has no image"
            continue
        try:
            ImageReference.parse(image)
        except InvalidInput:
            yield (*pointer, "image"), f"the image {image!r:.160} has no digest"


_POLICIES = add(
    "tfjob-restart-policy",
    "error",
    what="An unknown restart policy",
    why="Any text is accepted, and then means none of the four.",
    mend=f"write one of {', '.join(RESTART_POLICIES)}",
)


@check(_POLICIES, KIND)
def _policies(subject: Subject) -> Iterator[Finding]:
    for _, pointer, role in _roles(subject):
        policy = role.get("restartPolicy", "Never")
        if policy not in RESTART_POLICIES:
            yield (*pointer, "restartPolicy"), f"{policy!r:.60} is not a restart policy"


_CLEAN = add(
    "tfjob-clean-pod-policy",
    "error",
    what="An unknown policy for pods at the end",
    why="Any text is accepted; parameter servers then run on for ever.",
    mend="write Running, or None to keep what still runs",
)


@check(_CLEAN, KIND)
def _clean(subject: Subject) -> Iterator[Finding]:
    policy = subject.get(*_POLICY, "cleanPodPolicy")
    if policy not in (*CLEAN_POLICIES, "", None):
        yield (*_POLICY, "cleanPodPolicy"), f"{policy!r:.60} is not one of {', '.join(CLEAN_POLICIES)}"


_SUCCESS = add(
    "tfjob-success-policy",
    "error",
    what="An unknown success policy",
    why="Any text but AllWorkers means that the first worker decides.",
    mend="write AllWorkers, or remove it",
)


@check(_SUCCESS, KIND)
def _success(subject: Subject) -> Iterator[Finding]:
    policy = subject.get("spec", "successPolicy")
    if policy not in ("AllWorkers", "", None):
        yield ("spec", "successPolicy"), f"{policy!r:.60} is not a success policy"


_DEADLINE = add(
    "tfjob-deadline",
    "error",
    what="A deadline that is not positive",
    why="The job fails at once.",
    mend="write the seconds that an attempt may take",
)


@check(_DEADLINE, KIND)
def _deadline(subject: Subject) -> Iterator[Finding]:
    seconds = subject.get(*_POLICY, "activeDeadlineSeconds")
    if seconds is not None and (type(seconds) is not int or seconds <= 0):
        yield (*_POLICY, "activeDeadlineSeconds"), f"a deadline of {seconds!r} seconds"


_TTL = add(
    "tfjob-ttl",
    "error",
    what="ttlSecondsAfterFinished",
    why="It deletes the object that git still asks for; the GitOps engine makes it again, and the model trains twice.",
    mend="remove it: mlgitops unlists a job once its result is kept",
)


@check(_TTL, KIND)
def _ttl(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_POLICY, "ttlSecondsAfterFinished") is not None:
        yield (*_POLICY, "ttlSecondsAfterFinished"), "the job would delete itself"


_NAME = add(
    "tfjob-name",
    "error",
    what="A name that is no DNS label, leaves no room for pods, or does not contain the release",
    why="Pods are named <job>-<role>-<index>; and editing a job that ran does nothing, so each release needs its own.",
    mend="write <model>-<release>, as mlgitops does",
)


@check(_NAME, KIND)
def _name(subject: Subject) -> Iterator[Finding]:
    pointer: Pointer = ("metadata", "name")
    name = subject.name
    if not _LABEL.fullmatch(name):
        yield pointer, f"{name!r:.80} is not lower-case letters, digits and '-', starting with a letter"
    for role, _, value in _roles(subject):
        count = value.get("replicas", 1)
        last = count - 1 if type(count) is int and count > 0 else 0
        pod = f"{name}-{role.lower()}-{last}"
        if len(pod) > LONGEST_POD_NAME:
            yield pointer, f"the pod {pod!r:.120} has {len(pod)} characters; {LONGEST_POD_NAME} are allowed"
    labels = subject.get("metadata", "labels")
    model, release = get(labels, names.MODEL_LABEL), get(labels, names.RELEASE_LABEL)
    if isinstance(model, str) and isinstance(release, str) and name != job_name(model, release):
        yield pointer, f"{name!r:.80} is not the job of {model} and release {release}"


_VARIABLE = add(
    "tfjob-variable",
    "error",
    what="TF_CONFIG set by hand, or a variable from a secret",
    why="The operator sets TF_CONFIG, and two of them disagree; training code must not read credentials.",
    mend="remove it",
    can_be_allowed=False,
)


@check(_VARIABLE, KIND)
def _variable(subject: Subject) -> Iterator[Finding]:
    for pointer, container in _containers(subject):
        if container.get("envFrom"):
            yield (*pointer, "envFrom"), "variables come from elsewhere"
        for index, one in enumerate(items(container, "env")):
            if get(one, "name") == "TF_CONFIG":
                yield (*pointer, "env", index), "TF_CONFIG is set by hand"
            if get(one, "valueFrom", "secretKeyRef") is not None:
                yield (*pointer, "env", index, "valueFrom"), f"{get(one, 'name')} comes from a secret"


_HOST = add(
    "pod-host",
    "error",
    what="A privileged container, a folder or a namespace of the node",
    why="Whoever can change a manifest could read and change everything on the node.",
    mend="use a persistentVolumeClaim, and remove the privilege",
    can_be_allowed=False,
)


@check(_HOST, KIND)
def _host(subject: Subject) -> Iterator[Finding]:
    for _, pointer, pod in _pods(subject):
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.get(key):
                yield (*pointer, key), f"the pod shares the node's {key.removeprefix('host')}"
        for index, volume in enumerate(items(pod, "volumes")):
            if get(volume, "hostPath") is not None:
                yield (*pointer, "volumes", index), "the volume is a folder of the node"
    for pointer, container in _containers(subject):
        for key in ("privileged", "allowPrivilegeEscalation"):
            if get(container, "securityContext", key) is True:
                yield (*pointer, "securityContext", key), f"{key} is true"


# --- warnings -----------------------------------------------------------------------------------------------------

_NO_DEADLINE = add(
    "tfjob-no-deadline",
    "warning",
    what="No deadline",
    why="A worker that waits for a dead peer waits for ever.",
    mend="add runPolicy.activeDeadlineSeconds",
)
_NO_LIMIT = add(
    "tfjob-no-backoff-limit",
    "warning",
    what="No limit on restarts",
    why="Without one a container that fails is started again for ever.",
    mend="add runPolicy.backoffLimit",
)
_CLEAN_ALL = add(
    "tfjob-clean-all",
    "warning",
    what="cleanPodPolicy: All",
    why="Pods, and the logs in them, disappear at once.",
    mend="write Running",
)
_NEVER = add(
    "tfjob-restart-never",
    "warning",
    what="Workers or parameter servers that are never started again",
    why="One lost node ends the whole training.",
    mend="write OnFailure or ExitCode, and restore from a checkpoint",
)
_ALWAYS = add(
    "tfjob-restart-always",
    "warning",
    what="A chief or worker that is always started again",
    why="The role that decides success never ends.",
    mend="write OnFailure or ExitCode",
)
_EXIT_CODE = add(
    "tfjob-exit-code-memory",
    "warning",
    what="restartPolicy ExitCode where the memory limit is above the request",
    why="A container killed for memory exits with 137, which ExitCode takes for worth retrying: it fails again.",
    mend="request as much memory as the limit allows",
)
_FIRST_WORKER = add(
    "tfjob-first-worker",
    "warning",
    what="Several workers, no chief and no success policy",
    why="The first worker alone decides success; the others may have failed.",
    mend="add a Chief, or successPolicy: AllWorkers",
)
_SIDECAR = add(
    "tfjob-sidecar",
    "warning",
    what="A pod without sidecar.istio.io/inject: false",
    why="In a mesh the sidecar keeps the pod running after the training has ended.",
    mend='annotate the template with sidecar.istio.io/inject: "false"',
)
_SUSPEND = add(
    "tfjob-suspend",
    "warning",
    what="suspend: true",
    why="Somebody must resume the job; a default Kueue no longer looks at TFJobs.",
    mend="remove it, unless Kueue's TFJob integration is on",
)
_RESOURCES = add(
    "pod-resources",
    "warning",
    what="A container without requests or a memory limit",
    why="The scheduler packs it onto a full node, and the node kills whom it likes.",
    mend="add resources.requests and resources.limits.memory",
)
_TOKEN = add(
    "pod-service-account-token",
    "warning",
    what="A pod that gets a token for the Kubernetes API",
    why="Training code does not need one and could leak it.",
    mend="add automountServiceAccountToken: false",
)
_ROOT = add(
    "pod-root",
    "warning",
    what="A pod that may run as root",
    why="A way out of the container then leads to root on the node.",
    mend="add securityContext.runAsNonRoot: true",
)
_DEPRECATED = add(
    "tfjob-deprecated",
    "info",
    what="A TFJob at all",
    why="Its operator gets fixes only, and the successor has no TensorFlow runtime (kubeflow/trainer#2699).",
    mend="nothing needs to be done now",
)


@check(_NO_DEADLINE, KIND)
def _no_deadline(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_POLICY, "activeDeadlineSeconds") is None:
        yield _POLICY, "the job may run for ever"


@check(_NO_LIMIT, KIND)
def _no_limit(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_POLICY, "backoffLimit") is None:
        yield _POLICY, "restarts are not limited"


@check(_CLEAN_ALL, KIND)
def _clean_all(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_POLICY, "cleanPodPolicy") == "All":
        yield (*_POLICY, "cleanPodPolicy"), "logs are lost when the job ends"


@check(_NEVER, KIND)
def _never(subject: Subject) -> Iterator[Finding]:
    for name, pointer, role in _roles(subject):
        if name in {"Worker", "PS"} and role.get("restartPolicy", "Never") == "Never":
            yield (*pointer, "restartPolicy"), f"role {name} is never started again"


@check(_ALWAYS, KIND)
def _always(subject: Subject) -> Iterator[Finding]:
    for name, pointer, role in _roles(subject):
        if name in {"Chief", "Master", "Worker"} and role.get("restartPolicy") == "Always":
            yield (*pointer, "restartPolicy"), f"role {name} never ends"


@check(_EXIT_CODE, KIND)
def _exit_code(subject: Subject) -> Iterator[Finding]:
    for name, pointer, role in _roles(subject):
        if role.get("restartPolicy") != "ExitCode":
            continue
        for container in items(role, "template", "spec", "containers"):
            limit = get(container, "resources", "limits", "memory")
            if limit is not None and limit != get(container, "resources", "requests", "memory"):
                yield (*pointer, "restartPolicy"), f"role {name} is started again when it is killed for memory"


@check(_FIRST_WORKER, KIND)
def _first_worker(subject: Subject) -> Iterator[Finding]:
    roles = {name: role for name, _, role in _roles(subject)}
    several = get(roles, "Worker", "replicas") not in (None, 1)
    if several and not {"Chief", "Master"} & set(roles) and not subject.get("spec", "successPolicy"):
        yield (*_REPLICAS, "Worker"), "the first worker alone decides"


@check(_SIDECAR, KIND)
def _sidecar(subject: Subject) -> Iterator[Finding]:
    for name, pointer, role in _roles(subject):
        if get(role, "template", "metadata", "annotations", "sidecar.istio.io/inject") != "false":
            yield (*pointer, "template"), f"role {name} may get a sidecar"


@check(_SUSPEND, KIND)
def _suspend(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_POLICY, "suspend") is True:
        yield (*_POLICY, "suspend"), "the job waits until somebody resumes it"


@check(_RESOURCES, KIND)
def _resources(subject: Subject) -> Iterator[Finding]:
    for pointer, container in _containers(subject):
        resources = container.get("resources")
        if not get(resources, "requests") or get(resources, "limits", "memory") is None:
            yield pointer, f"container {container.get('name')} has no requests, or no memory limit"


@check(_TOKEN, KIND)
def _token(subject: Subject) -> Iterator[Finding]:
    for name, pointer, pod in _pods(subject):
        if pod.get("automountServiceAccountToken") is not False:
            yield pointer, f"role {name} gets a token for the Kubernetes API"


@check(_ROOT, KIND)
def _root(subject: Subject) -> Iterator[Finding]:
    for name, pointer, pod in _pods(subject):
        if get(pod, "securityContext", "runAsNonRoot") is not True:
            yield pointer, f"role {name} may run as root"


@check(_DEPRECATED, KIND)
def _deprecated(_subject: Subject) -> Iterator[Finding]:
    yield ("kind",), "TFJob has no successor for TensorFlow yet"
