"""Which objects an environment may hold, and what a pod may ask for: everything else is refused.

A list of what is allowed, not of what is dangerous: a manifest that comes with a pull request cannot bring a kind, a
namespace, a host's folder, a privilege or another object's secret that nobody thought of. The pod fields are those
that the embedded cluster honours, or may overlook on one machine without changing what the program does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.errors import Problem
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.manifest.read import pointer_text

Kind = tuple[str, str]
"""API version and kind."""
TFJOB: Final[Kind] = ("kubeflow.org/v1", "TFJob")
INFERENCE_SERVICE: Final[Kind] = ("serving.kserve.io/v1beta1", "InferenceService")
HTTP_ROUTE: Final[Kind] = ("gateway.networking.k8s.io/v1", "HTTPRoute")
TRAINING_KINDS: Final = frozenset({TFJOB})
SERVING_KINDS: Final = frozenset({INFERENCE_SERVICE, HTTP_ROUTE})

POD_FIELDS: Final = frozenset(
    {
        "containers",
        "volumes",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "priorityClassName",
        "schedulerName",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "securityContext",
    }
)
CONTAINER_FIELDS: Final = frozenset(
    {
        "name",
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "workingDir",
        "env",
        "ports",
        "resources",
        "volumeMounts",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "securityContext",
    }
)
SECURITY_FIELDS: Final = frozenset(
    {
        "runAsNonRoot",
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "fsGroupChangePolicy",
        "supplementalGroups",
        "seccompProfile",
        "allowPrivilegeEscalation",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
    }
)
VOLUME_SOURCES: Final = ("persistentVolumeClaim", "emptyDir")
Pointer = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not allowed, and where in its object it stands."""

    pointer: Pointer
    message: str
    mend: str | None = None

    def problem(self, path: str | None = None) -> Problem:
        """Return it as a problem of an object whose text is not at hand."""
        return Problem(message=self.message, path=path, pointer=pointer_text(self.pointer) or None, mend=self.mend)


def kinds_of(environment: str) -> frozenset[Kind]:
    """Return the kinds that an environment may hold."""
    return TRAINING_KINDS if environment == TRAINING else SERVING_KINDS


def identity(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return an object's kind and name."""
    return str(manifest.get("kind")), str(_mapping(manifest.get("metadata")).get("name"))


def findings(manifest: Any, kinds: Iterable[Kind], namespace: str | None) -> Iterator[Finding]:
    """Yield what is not allowed in one object.

    Args:
        manifest: The object, as read.
        kinds: Kinds that may be there.
        namespace: The only namespace an object may name; None when any one may stand there.
    """
    if not isinstance(manifest, Mapping):
        yield Finding(pointer=(), message="must be a Kubernetes object (a mapping)")
        return
    kind = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
    if kind not in kinds:
        allowed = ", ".join(sorted(f"{name} of {version}" for version, name in kinds))
        message = f"{kind[1]} of {kind[0]} is not allowed here; allowed: {allowed}"
        yield Finding(pointer=("kind",), message=message, mend="move it to what bootstraps the cluster")
        return
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        yield Finding(pointer=("metadata",), message="is required")
        return
    written = metadata.get("namespace")
    if written is not None and namespace is not None and written != namespace:
        message = f"namespace {written!r} is not this environment's, {namespace!r}"
        yield Finding(pointer=("metadata", "namespace"), message=message, mend=f"write {namespace}, or remove the line")
    if kind == TFJOB:
        roles = _mapping(_mapping(manifest.get("spec")).get("tfReplicaSpecs"))
        for role, replicas in roles.items():
            pod = _mapping(_mapping(_mapping(replicas).get("template")).get("spec"))
            yield from _pod(pod, ("spec", "tfReplicaSpecs", role, "template", "spec"))


def _pod(pod: Mapping[str, Any], here: Pointer) -> Iterator[Finding]:
    yield from _unknown(pod, POD_FIELDS, here)
    yield from _security(pod.get("securityContext"), (*here, "securityContext"))
    for number, volume in enumerate(_sequence(pod.get("volumes"))):
        yield from _volume(_mapping(volume), (*here, "volumes", number))
    containers = _sequence(pod.get("containers"))
    for number, container in enumerate(containers):
        yield from _container(_mapping(container), (*here, "containers", number))
    if len(containers) > 1:
        message = "the embedded cluster runs one container per pod"
        yield Finding(pointer=(*here, "containers", 1), message=message, mend="remove the sidecar, or use Kubernetes")
    grace = pod.get("terminationGracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or grace < 0):
        yield Finding(pointer=(*here, "terminationGracePeriodSeconds"), message="must be whole seconds, at least 0")


def _unknown(values: Mapping[str, Any], known: frozenset[str], here: Pointer) -> Iterator[Finding]:
    for key in values:
        if key not in known:
            message = "is not allowed in a training pod of the embedded cluster"
            yield Finding(
                pointer=(*here, str(key)), message=message, mend=f"remove it; honoured: {', '.join(sorted(known))}"
            )


def _volume(volume: Mapping[str, Any], here: Pointer) -> Iterator[Finding]:
    for key in volume:
        if key != "name" and key not in VOLUME_SOURCES:
            message = f"volumes of kind {key} are not allowed"
            yield Finding(pointer=(*here, str(key)), message=message, mend=f"use one of {', '.join(VOLUME_SOURCES)}")
    if not isinstance(volume.get("name"), str):
        yield Finding(pointer=here, message="a volume needs a name")
    claim = volume.get("persistentVolumeClaim")
    if claim is not None and not isinstance(_mapping(claim).get("claimName"), str):
        yield Finding(pointer=(*here, "persistentVolumeClaim", "claimName"), message="is required")


def _container(container: Mapping[str, Any], here: Pointer) -> Iterator[Finding]:
    yield from _unknown(container, CONTAINER_FIELDS, here)
    yield from _security(container.get("securityContext"), (*here, "securityContext"))
    for field in ("command", "args"):
        words = container.get(field)
        if words is not None and not (
            isinstance(words, Sequence) and not isinstance(words, str) and all(isinstance(word, str) for word in words)
        ):
            yield Finding(pointer=(*here, field), message="must be a list of strings", mend="quote its items")
    for number, variable in enumerate(_sequence(container.get("env"))):
        yield from _variable(_mapping(variable), (*here, "env", number))
    working = container.get("workingDir")
    if working is not None and not isinstance(working, str):
        yield Finding(pointer=(*here, "workingDir"), message="must be a string")
    yield from _resources(container, here)


def _resources(container: Mapping[str, Any], here: Pointer) -> Iterator[Finding]:
    memory = _mapping(_mapping(container.get("resources")).get("limits")).get("memory")
    if memory is not None and quantity(memory) is None:
        message = f"{memory!r:.60} is not an amount of memory"
        yield Finding(pointer=(*here, "resources", "limits", "memory"), message=message, mend="write it like 2Gi")


def _variable(variable: Mapping[str, Any], here: Pointer) -> Iterator[Finding]:
    for key in variable:
        if key not in ("name", "value"):
            message = f"{key} would read from other objects; only plain values are allowed"
            yield Finding(pointer=(*here, str(key)), message=message, mend="write the value, or mount a volume claim")
    name, value = variable.get("name"), variable.get("value", "")
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        yield Finding(pointer=(*here, "name"), message="must be the name of an environment variable")
    if not isinstance(value, str) or "\0" in value:
        yield Finding(pointer=(*here, "value"), message="must be a string", mend="quote it")


def _security(context: Any, here: Pointer) -> Iterator[Finding]:
    values = _mapping(context)
    yield from _unknown(values, SECURITY_FIELDS, here)
    for key in ("privileged", "allowPrivilegeEscalation"):
        if values.get(key):
            yield Finding(pointer=(*here, key), message="is not allowed", mend="remove it")
    if _sequence(_mapping(values.get("capabilities")).get("add")):
        yield Finding(pointer=(*here, "capabilities", "add"), message="is not allowed", mend="remove it")


_SUFFIXES: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)
}


def quantity(written: Any) -> int | None:
    """Return a Kubernetes quantity (`2Gi`, `500M`, `1.5G`) in bytes; None when it is none."""
    if isinstance(written, int) and not isinstance(written, bool):
        return written if written > 0 else None
    if not isinstance(written, str):
        return None
    number = written.rstrip("kKMGTi")
    factor = _SUFFIXES.get(written[len(number) :])
    try:
        value = float(number) * (factor or 0)
    except ValueError:
        return None
    return int(value) if 0 < value < float(2**62) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
