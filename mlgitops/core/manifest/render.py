"""Scaffolding: the first version of each manifest, complete and ready for review. Later versions are edits of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mlgitops.core.configuration import ModelConfiguration, Role
from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.dump import Quoted, dump
from mlgitops.core.manifest.owned import (
    CONTAINER,
    INSTANCE_LABEL,
    VARIABLES_ANNOTATION,
    RolloutFields,
    RouteFields,
    ServiceFields,
    TrainingFields,
    backend_names,
    read_tfjob,
    rollout_values,
    tolerance_annotation,
)
from mlgitops.core.manifest.read import read_document, read_documents
from mlgitops.core.names import job_name

MANAGER: Final = "mlgitops"
DEADLINE_ANNOTATION: Final = f"{names.PREFIX}/start-deadline-seconds"
GATEWAY: Final = "kserve-ingress-gateway"
GATEWAY_NAMESPACE: Final = "kserve"
ROUTE_SUFFIX: Final = "-split"
"""KServe names its own routes after the InferenceService; this one must be another."""
USER_ID: Final = 1000
"""Any number but 0 satisfies `runAsNonRoot`, whatever user an image names."""
ROLE_ORDER: Final = ("Chief", "Master", "Worker", "PS", "Evaluator")

_TFJOB_HEADER: Final = """\
Training job of {model}. This file is yours: mlgitops wrote it once and edits only
metadata.name, the mlgitops.dev/ labels and annotations, the image of the containers named
tensorflow, and the variables that the annotation mlgitops.dev/variables names.
One object per attempt; it is listed in kustomization.yaml only while the attempt is open."""
_SERVICE_HEADER: Final = """\
Serves {model}. This file is yours: mlgitops wrote it once and edits only metadata.name,
the instance label, the mlgitops.dev/ labels and annotations, and storageUri.
Do not add canaryTrafficPercent: KServe ignores it in Standard mode. route.yaml splits the traffic."""
_ROUTE_HEADER: Final = """\
Splits the requests for {model} between the service and its canary. This file is yours:
mlgitops wrote it once and edits only the two weights and the mlgitops.dev/ labels and annotations.
Between rollouts it stays at 100 / 0. Set hostnames and parentRefs to what your gateway serves."""
_ROLLOUT_HEADER: Final = """\
What this environment is asked to serve. `mlgitops promote` writes these lines;
reverting the commit that wrote them is a rollback."""


def render_tfjob(configuration: ModelConfiguration, claim: str, fields: TrainingFields) -> bytes:
    """Return a complete TFJob.

    Args:
        configuration: The model's configuration; its `training` decides the roles.
        claim: Volume claim that data and models live in; mounted at `/mnt/<claim>`.
        fields: What the tool owns.

    Raises:
        InvalidInput: An extra volume takes the claim's name or mount path.
    """
    training = configuration.training
    spec: dict[str, Any] = {
        "runPolicy": {
            "activeDeadlineSeconds": training.active_deadline_seconds,
            "backoffLimit": training.backoff_limit,
            "cleanPodPolicy": training.clean_pod_policy,
        }
    }
    if training.success_policy:
        spec["successPolicy"] = training.success_policy
    spec["tfReplicaSpecs"] = {
        name: _replica(configuration, training.roles[name], claim, fields)
        for name in sorted(training.roles, key=ROLE_ORDER.index)
    }
    annotations = {
        DEADLINE_ANNOTATION: Quoted(training.start_deadline_seconds),
        names.IMAGE_TAG_ANNOTATION: Quoted(fields.image_tag),
        names.REVISION_ANNOTATION: Quoted(fields.source_revision),
        VARIABLES_ANNOTATION: Quoted(",".join(sorted(fields.variables))),
    }
    metadata = _metadata(
        name=Quoted(job_name(fields.model, fields.release)),
        namespace=fields.namespace,
        model=fields.model,
        component="training",
        release=fields.release,
        annotations=annotations,
    )
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}
    return dump(job, header=_TFJOB_HEADER.format(model=fields.model))


def _metadata(
    *,
    name: str,
    namespace: str,
    model: str,
    component: str,
    annotations: Mapping[str, str],
    release: str | None = None,
    instance: str | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "labels": {
            names.NAME_LABEL: model,
            **({} if instance is None else {INSTANCE_LABEL: instance}),
            "app.kubernetes.io/component": component,
            names.MANAGED_BY: MANAGER,
            names.MODEL_LABEL: model,
            **({} if release is None else {names.RELEASE_LABEL: Quoted(release)}),
        },
        "annotations": dict(annotations),
    }


def _replica(configuration: ModelConfiguration, role: Role, claim: str, fields: TrainingFields) -> dict[str, Any]:
    """Return one entry of `tfReplicaSpecs`."""
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if role.node_selector:
        pod["nodeSelector"] = dict(role.node_selector)
    if role.tolerations:
        pod["tolerations"] = [dict(one) for one in role.tolerations]
    mounts, volumes = _volumes(claim, configuration.training.volumes)
    pod["containers"] = [_container(configuration, role, mounts, fields)]
    pod["volumes"] = volumes
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart_policy,
        "template": {
            "metadata": {
                "labels": {names.NAME_LABEL: fields.model, names.MODEL_LABEL: fields.model},
                # A sidecar would keep the pod running after the training has ended.
                "annotations": {"sidecar.istio.io/inject": "false"},
            },
            "spec": pod,
        },
    }


def _container(
    configuration: ModelConfiguration, role: Role, mounts: Sequence[Mapping[str, Any]], fields: TrainingFields
) -> dict[str, Any]:
    variables = [*fields.variables.items(), *configuration.training.environment.items()]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": Quoted(fields.image),
        "command": list(configuration.training.command),
        "env": [{"name": name, "value": Quoted(value)} for name, value in variables],
    }
    if role.resources:
        container["resources"] = {kind: dict(values) for kind, values in role.resources.items()}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container["volumeMounts"] = list(mounts)
    return container


def _volumes(claim: str, extra: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return mounts and volumes: the claim's, then the configured ones."""
    mounts: list[dict[str, Any]] = [{"name": claim, "mountPath": f"/mnt/{claim}"}]
    volumes: list[dict[str, Any]] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}}]
    for one in extra:
        if one["name"] == claim or one["mountPath"].rstrip("/") == f"/mnt/{claim}":
            raise InvalidInput(f"volume {one['name']!r} takes the name or mount path of the claim {claim!r}")
        volume = dict(one)
        mount = {"name": volume["name"], "mountPath": volume.pop("mountPath")}
        if volume.pop("readOnly", False):
            mount["readOnly"] = True
        mounts.append(mount)
        volumes.append(volume)
    return mounts, volumes


def render_service(serving: Mapping[str, Any], fields: ServiceFields) -> bytes:
    """Return a complete InferenceService for a TensorFlow SavedModel in KServe's Standard mode.

    Args:
        serving: `minReplicas` and `resources`, as `mlgitops.yaml` has them; both may be absent.
        fields: What the tool owns.
    """
    annotations = {
        # Written because clusters differ in their default, and KServe refuses to change it later.
        "serving.kserve.io/deploymentMode": "Standard",
        names.ARTIFACT_DIGEST_ANNOTATION: Quoted(fields.artifact_digest),
    }
    model: dict[str, Any] = {
        "modelFormat": {"name": "tensorflow", "version": "2"},
        "protocolVersion": "v1",
        "storageUri": Quoted(fields.storage_uri),
    }
    if serving.get("resources"):
        model["resources"] = {kind: dict(values) for kind, values in serving["resources"].items()}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": _metadata(
            name=fields.name,
            namespace=fields.namespace,
            model=fields.model,
            component="predictor",
            instance=fields.name,
            release=fields.release,
            annotations=annotations,
        ),
        "spec": {
            "predictor": {
                "minReplicas": serving.get("minReplicas", 1),
                "automountServiceAccountToken": False,
                "model": model,
            }
        },
    }
    return dump(service, header=_SERVICE_HEADER.format(model=fields.model))


def render_route(fields: RouteFields, *, gateway: str = GATEWAY, gateway_namespace: str = GATEWAY_NAMESPACE) -> bytes:
    """Return a complete HTTPRoute with one rule and two weighted backends.

    Args:
        fields: What the tool owns.
        gateway: Name of the Gateway that takes the requests.
        gateway_namespace: Its namespace.
    """
    baseline, canary = backend_names(fields.model)
    weights = {baseline: 100 - fields.canary_weight_percent, canary: fields.canary_weight_percent}
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": _metadata(
            name=f"{fields.model}{ROUTE_SUFFIX}",
            namespace=fields.namespace,
            model=fields.model,
            component="route",
            annotations={
                names.COHORT_ANNOTATION: Quoted(fields.cohort),
                **{key: Quoted(text) for key, text in tolerance_annotation(fields).items()},
            },
        ),
        "spec": {
            "parentRefs": [{"name": gateway, "namespace": gateway_namespace}],
            "hostnames": [f"{fields.model}.{fields.namespace}.mlgitops.internal"],
            "rules": [
                {"backendRefs": [{"name": name, "port": 80, "weight": weight} for name, weight in weights.items()]}
            ],
        },
    }
    return dump(route, header=_ROUTE_HEADER.format(model=fields.model))


def render_rollout(fields: RolloutFields, *, model: str | None = None, environment: str | None = None) -> bytes:
    """Return `rollout.yaml`: what a person reviews, reverts and promotes by, one line each.

    Args:
        fields: What is asked for.
        model: Name of the model, written for the reader when given.
        environment: Name of the environment, written for the reader when given.
    """
    rollout: dict[str, Any] = {"apiVersion": f"{names.PREFIX}/v1", "kind": "Rollout"}
    rollout |= {key: name for key, name in (("model", model), ("environment", environment)) if name is not None}
    for one in rollout_values(fields):
        rollout[one.key] = Quoted(one.value) if one.key in {"release", "planDigest"} else one.value
    return dump(rollout, header=_ROLLOUT_HEADER)


def render_kustomization(namespace: str, resources: Sequence[str] = ()) -> bytes:
    """Return `kustomization.yaml` of one model in one environment, in the fields that every engine honours."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": list(resources),
    }
    return dump(kustomization)


def is_scaffold(data: bytes, path: str, configuration: ModelConfiguration, claim: str) -> bool:
    """Say whether a TFJob is what the tool wrote from `configuration`, apart from its owned fields.

    Then nobody's work is lost when it is written anew. The order of variables and the quotes around values do not
    count, because edits of owned fields change them; comments and everything else do.

    Raises:
        InvalidInput: The file cannot be read, or its owned fields contradict each other.
    """
    expected = render_tfjob(configuration, claim, read_tfjob(data, path))
    documents = read_documents(data, path)
    if len(documents) != 1 or _comments(data) != _comments(expected):
        return False
    return bool(_in_order(documents[0].value) == _in_order(read_document(expected, path).value))


def _comments(data: bytes) -> list[str]:
    return [line[line.index("#") :] for line in data.decode().splitlines() if line.startswith("#") or " #" in line]


def _in_order(value: Any) -> Any:
    """Return a copy in which every list `env` is sorted by name."""
    if isinstance(value, list):
        return [_in_order(one) for one in value]
    if not isinstance(value, dict):
        return value
    copy = {key: _in_order(one) for key, one in value.items()}
    if isinstance(copy.get("env"), list):
        copy["env"].sort(key=lambda one: str(one.get("name")) if isinstance(one, dict) else "")
    return copy
