"""From a TFJob's manifest to the job it means: defaults, the schema's types and the operator's webhook.

What a cluster refuses is refused: a name that is no DNS-1035 label, no `tfReplicaSpecs`, a role without a container
named `tensorflow`, a container without an image, both a chief and a master, an unknown `managedBy`, a value of the
wrong type. What nobody checks on a cluster is accepted and means here what it means there: an unknown restart policy
(whose pods are then refused), a deadline of 0 (which fails the job at once), an unknown replica type (which nobody
looks at), two chiefs. `mlgitops lint` is the place that warns of those.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mlgitops.adapters.cluster.tfjob import (
    CONTAINER,
    DECIDING_ROLES,
    ROLES,
    START_DEADLINE_ANNOTATION,
    START_DEADLINE_SECONDS,
    Replicas,
    TrainingJob,
)
from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.names import parse_name

LABEL_LENGTH: Final = 63
MANAGERS: Final = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1


def parse_job(manifest: Mapping[str, Any], path: str | None = None) -> TrainingJob:
    """Apply defaults and admission to a TFJob's manifest.

    Raises:
        InvalidInput: What the webhook or the resource's schema refuses; everything at once.
    """
    admission = _Admission(path)
    job = admission.job(manifest)
    if admission.problems or job is None:
        raise InvalidInput(admission.problems)
    return job


class _Admission:
    """One look at one manifest, which gathers what is wrong with it."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.problems: list[Problem] = []

    def refuse(self, pointer: str, message: str, mend: str | None = None) -> None:
        self.problems.append(Problem(message=message, path=self.path, pointer=pointer or None, mend=mend))

    def mapping(self, values: Any, pointer: str) -> Mapping[str, Any]:
        """Return a mapping; absence is an empty one, anything else is refused."""
        if values is None or isinstance(values, Mapping):
            return values or {}
        self.refuse(pointer, f"must be a mapping, not {type(values).__name__}")
        return {}

    def integer(self, values: Mapping[str, Any], key: str, pointer: str, limit: int = _INT32) -> int | None:
        value = values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limit:
            self.refuse(
                f"{pointer}.{key}", f"must be a whole number of {limit.bit_length() + 1} bits, not {value!r:.60}"
            )
            return None
        return value

    def boolean(self, values: Mapping[str, Any], key: str, pointer: str) -> bool:
        value = values.get(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(f"{pointer}.{key}", f"must be true or false, not {value!r:.60}")
        return value is True

    def text(self, values: Mapping[str, Any], key: str, pointer: str) -> str | None:
        value = values.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(f"{pointer}.{key}", f"must be a string, not {value!r:.60}", "quote it")
            return None
        return value

    def job(self, manifest: Mapping[str, Any]) -> TrainingJob | None:
        metadata = self.mapping(manifest.get("metadata"), "metadata")
        spec = self.mapping(manifest.get("spec"), "spec")
        policy = self.mapping(spec.get("runPolicy"), "spec.runPolicy")
        name = self.name(metadata)
        roles = self.roles(spec)
        manager = self.text(policy, "managedBy", "spec.runPolicy")
        if manager is not None and manager not in MANAGERS:
            self.refuse("spec.runPolicy.managedBy", f"must be one of {', '.join(MANAGERS)}, not {manager!r:.60}")
        clean = self.text(policy, "cleanPodPolicy", "spec.runPolicy")
        job = TrainingJob(
            name=name,
            roles=roles,
            clean_pod_policy="None" if clean is None else clean,
            ttl_seconds=self.integer(policy, "ttlSecondsAfterFinished", "spec.runPolicy"),
            active_deadline_seconds=self.integer(policy, "activeDeadlineSeconds", "spec.runPolicy", _INT64),
            backoff_limit=self.integer(policy, "backoffLimit", "spec.runPolicy"),
            suspended=self.boolean(policy, "suspend", "spec.runPolicy"),
            managed_by=manager,
            success_policy=self.text(spec, "successPolicy", "spec") or "",
            dynamic_workers=self.boolean(spec, "enableDynamicWorker", "spec"),
            start_deadline_seconds=self.start_deadline(metadata),
        )
        return None if self.problems else job

    def name(self, metadata: Mapping[str, Any]) -> str:
        if "name" not in metadata and "generateName" in metadata:
            self.refuse("metadata.generateName", "a generated name cannot be applied", "give the job a name of its own")
            return ""
        try:
            return parse_name(metadata.get("name", ""), "metadata.name", LABEL_LENGTH)
        except InvalidInput as error:
            self.refuse("metadata.name", str(error))
            return ""

    def start_deadline(self, metadata: Mapping[str, Any]) -> float:
        annotations = self.mapping(metadata.get("annotations"), "metadata.annotations")
        for key, value in annotations.items():
            if not isinstance(value, str):
                self.refuse(f"metadata.annotations.{key}", "an annotation must be a string", "quote it")
        text = annotations.get(START_DEADLINE_ANNOTATION)
        if text is None:
            return START_DEADLINE_SECONDS
        if not isinstance(text, str) or not text.isascii() or not text.isdigit() or not 0 < int(text[:10]) <= _INT32:
            self.refuse(
                f"metadata.annotations[{START_DEADLINE_ANNOTATION}]",
                f"must be whole seconds, at least 1, not {text!r:.60}",
            )
            return START_DEADLINE_SECONDS
        return int(text)

    def roles(self, spec: Mapping[str, Any]) -> dict[str, Replicas]:
        written = self.mapping(spec.get("tfReplicaSpecs"), "spec.tfReplicaSpecs")
        if not written:
            self.refuse("spec.tfReplicaSpecs", "is required", "give it at least one of Chief, Worker")
        roles: dict[str, Replicas] = {}
        for key, values in written.items():
            role = next((one for one in ROLES if one.lower() == str(key).lower()), str(key))
            pointer = f"spec.tfReplicaSpecs.{key}"
            replicas = self.replicas(self.mapping(values, pointer), pointer)
            if role in roles:
                self.refuse(pointer, f"is {role} once more")
            if replicas is not None:
                roles[role] = replicas
        if sum(1 for role in roles if role in DECIDING_ROLES) > 1:
            self.refuse("spec.tfReplicaSpecs", "must not have more than one of the roles Chief and Master")
        return roles

    def replicas(self, values: Mapping[str, Any], pointer: str) -> Replicas | None:
        count = self.integer(values, "replicas", pointer)
        policy = self.text(values, "restartPolicy", pointer)
        template = self.mapping(values.get("template"), f"{pointer}.template")
        pod = self.mapping(template.get("spec"), f"{pointer}.template.spec")
        place = f"{pointer}.template.spec.containers"
        containers = pod.get("containers")
        if not isinstance(containers, Sequence) or isinstance(containers, str) or not containers:
            self.refuse(place, "is required", f"give the role a container named {CONTAINER}")
            return None
        for number, container in enumerate(containers):
            values_of = self.mapping(container, f"{place}[{number}]")
            if not self.text(values_of, "image", f"{place}[{number}]"):
                self.refuse(f"{place}[{number}].image", "is required")
        if not any(isinstance(one, Mapping) and one.get("name") == CONTAINER for one in containers):
            self.refuse(place, f"one container must be named {CONTAINER}")
            return None
        return Replicas(count=1 if count is None else count, restart_policy=policy or "Never", template=template)
