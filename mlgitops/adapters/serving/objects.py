"""InferenceServices and HTTPRoutes as the embedded engine reads them, and what it refuses. Pure.

What KServe's webhook, its controller and Gateway API refuse is refused here. Three things are refused that KServe takes
and then does not do, because a rollout must not fail silently: `canaryTrafficPercent` outside Knative mode (ignored:
all traffic moves at once), `spec.canary` (no split up to v0.20.0), and fields this engine does not have.

Source:
    kserve/kserve pkg/apis/serving/v1beta1/{inference_service_validation,component,predictor_model}.go
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.adapters.serving.recording import MOST_REQUESTS
from mlgitops.adapters.serving.routing import NO_COHORT
from mlgitops.core.errors import InvalidInput
from mlgitops.core.loaders.source import variable_fault
from mlgitops.core.manifest.fields import (
    ARTIFACT_DIGEST_ANNOTATION,
    CANARY_SUFFIX,
    COHORT_ANNOTATION,
    RECORD_ANNOTATION,
    RELEASE_LABEL,
    TOLERANCE_ANNOTATION,
)
from mlgitops.core.names import Digest

Object = Mapping[str, Any]

MODE_ANNOTATION: Final = "serving.kserve.io/deploymentMode"
"""On route.yaml: the largest absolute error of a right prediction, which makes the model a regression."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
PREDICTOR_SUFFIX: Final = "-predictor"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_COHORT: Final = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)")
_URI: Final = re.compile(r"(gs|s3|pvc|file|https|http|hdfs|webhdfs|oci|hf)://.+")
_REPLICA_FIELDS: Final = frozenset({"minReplicas", "maxReplicas"})
_PREDICTOR_FIELDS: Final = _REPLICA_FIELDS | {
    *("model", "name", "timeout", "serviceAccountName", "automountServiceAccountToken", "deploymentStrategy"),
    *("nodeSelector", "tolerations", "affinity", "annotations", "labels", "logger", "scaleMetric", "scaleTarget"),
}
_MODEL_FIELDS: Final = frozenset(
    {"modelFormat", "storageUri", "protocolVersion", "runtime", "runtimeVersion", "resources", "env"}
)


@dataclass(frozen=True, kw_only=True)
class Service:
    """An InferenceService that can be served."""

    name: str
    """Its name: the model's, or the model's with `-canary`."""
    storage_uri: str
    artifact_digest: Digest
    release: str
    """Its release label; empty for none."""
    variables: Mapping[str, str]
    """Environment variables of the server process."""
    fingerprint: str
    """Changes with everything that makes a new revision."""

    @property
    def model(self) -> str:
        """The model that this service serves, as the champion or as the canary."""
        return self.name.removesuffix(CANARY_SUFFIX)

    @property
    def arm(self) -> str:
        """`canary` or `baseline`."""
        return "canary" if self.name.endswith(CANARY_SUFFIX) else "baseline"


@dataclass(frozen=True, kw_only=True)
class Split:
    """An HTTPRoute between the two services of a model."""

    model: str
    weights: Mapping[str, int]
    """Weight by arm; an arm that the route does not name is missing."""
    cohort: str
    tolerance: float | None
    record: int
    """How many of the last requests are kept for replays."""


def name_of(value: Object) -> str:
    """Return an object's name; empty when it has none."""
    name = _mapping(value.get("metadata")).get("name")
    return name if isinstance(name, str) else ""


def validate_service(value: Object) -> list[str]:
    """Return why an InferenceService is refused; empty when it is not."""
    reasons = _validate_identity(value, "serving.kserve.io/v1beta1", "InferenceService")
    annotations = _mapping(_mapping(value.get("metadata")).get("annotations"))
    mode = annotations.get(MODE_ANNOTATION)
    if mode not in ("Standard", "RawDeployment"):
        reasons.append(f"annotation {MODE_ANNOTATION} must be Standard, the only mode here, not {mode!r}")
    try:
        Digest(str(annotations.get(ARTIFACT_DIGEST_ANNOTATION)))
    except InvalidInput:
        reasons.append(f"annotation {ARTIFACT_DIGEST_ANNOTATION} must be the model's digest (sha256:…)")
    spec = _mapping(value.get("spec"))
    if "canary" in spec:
        reasons.append("spec.canary splits no traffic here, nor in KServe up to v0.20.0: use a second InferenceService")
    reasons += [f"spec.{name} is not a known field" for name in sorted(set(spec) - {"predictor", "canary"})]
    if not isinstance(spec.get("predictor"), Mapping):
        return [*reasons, "spec.predictor is required"]
    return reasons + _validate_predictor(spec["predictor"])


def _validate_identity(value: Object, api_version: str, kind: str) -> list[str]:
    reasons = []
    if (value.get("apiVersion"), value.get("kind")) != (api_version, kind):
        reasons.append(f"must be a {kind} of {api_version}")
    name = name_of(value)
    if len(name) > 63 or not _NAME.fullmatch(name):
        reasons.append(f"metadata.name {name!r:.80} must be lower-case letters, digits and '-', starting with a letter")
    return reasons


def _validate_predictor(predictor: Object) -> list[str]:
    reasons = []
    if "canaryTrafficPercent" in predictor:
        reasons.append(
            "spec.predictor.canaryTrafficPercent is ignored in Standard mode: all traffic would move at once"
        )
    known = _PREDICTOR_FIELDS | {"canaryTrafficPercent"}
    reasons += [
        f"spec.predictor.{name} is not a field that the embedded engine has" for name in sorted(set(predictor) - known)
    ]
    minimum, maximum = predictor.get("minReplicas", 1), predictor.get("maxReplicas", 0)
    for name, count in (("minReplicas", minimum), ("maxReplicas", maximum)):
        if type(count) is not int or count < 0:
            reasons.append(f"spec.predictor.{name} must be a whole number, at least 0")
    if type(minimum) is type(maximum) is int and 0 < maximum < minimum:
        reasons.append("spec.predictor.maxReplicas must not be below minReplicas")
    if "name" in predictor and not _NAME.fullmatch(str(predictor["name"])):
        reasons.append("spec.predictor.name must be lower-case letters, digits and '-', starting with a letter")
    if not isinstance(predictor.get("model"), Mapping):
        return [*reasons, "exactly one implementation must be specified, as spec.predictor.model"]
    return reasons + _validate_model(predictor["model"])


def _validate_model(model: Object) -> list[str]:
    at, reasons = "spec.predictor.model", []
    if "name" in model:
        reasons.append(f"{at}.name: the 'name' field is not allowed in standard predictor")
    if {"storage", "storageUris"} & set(model):
        reasons.append(f"{at}.storage is not had by the embedded engine: use storageUri")
    known = _MODEL_FIELDS | {"name", "storage", "storageUris"}
    reasons += [f"{at}.{name} is not a field that the embedded engine has" for name in sorted(set(model) - known)]
    form = _mapping(model.get("modelFormat"))
    if form.get("name") != "tensorflow":
        reasons.append(f"{at}.modelFormat.name must be tensorflow: no runtime supports another (NoSupportingRuntime)")
    if form.get("version", "2") not in ("1", "2"):
        reasons.append(f'{at}.modelFormat.version must be "1" or "2": no runtime supports another')
    if model.get("protocolVersion", "v1") not in ("v1", "v2"):
        reasons.append(f"{at}.protocolVersion must be v1 or v2: the embedded server does not speak gRPC")
    uri = model.get("storageUri")
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        reasons.append(f"{at}.storageUri must be a URI with a known scheme")
    return reasons + _validate_variables(model.get("env", []))


def _validate_variables(variables: Any) -> list[str]:
    if not isinstance(variables, list):
        return ["spec.predictor.model.env must be a list"]
    reasons = []
    for variable in variables:
        entry = _mapping(variable)
        if (
            not isinstance(entry.get("name"), str)
            or not isinstance(entry.get("value", ""), str)
            or "valueFrom" in entry
        ):
            reasons.append("spec.predictor.model.env: each entry must be a name and a plain value")
        elif entry["name"] == "PYTHONPATH":
            reasons.append("setting PYTHONPATH in container kserve-container is not allowed")
        elif fault := _variable_fault(entry["name"]):
            reasons.append(f"spec.predictor.model.env: {fault}")
    return reasons


def _variable_fault(name: str) -> str | None:
    """Say why the model server cannot have a variable: it decides what code the server runs; None when it can."""
    if name.upper().startswith(("PYTHON", "DYLD_")):
        return f"{name} is reserved: the engine or the interpreter reads it"
    return variable_fault(name)


def parse_service(value: Object) -> Service:
    """Return an InferenceService as a value.

    Raises:
        InvalidInput: It is refused, for the reasons of `validate_service`.
    """
    if reasons := validate_service(value):
        raise InvalidInput("; ".join(reasons))
    metadata, predictor = value["metadata"], value["spec"]["predictor"]
    labels, annotations = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
    template = {
        "predictor": {name: one for name, one in predictor.items() if name not in _REPLICA_FIELDS},
        "labels": dict(labels),
        "annotations": {name: one for name, one in annotations.items() if name != LAST_APPLIED},
    }
    return Service(
        name=metadata["name"],
        storage_uri=predictor["model"]["storageUri"],
        artifact_digest=Digest(annotations[ARTIFACT_DIGEST_ANNOTATION]),
        release=str(labels.get(RELEASE_LABEL, "")),
        variables={one["name"]: one.get("value", "") for one in predictor["model"].get("env", [])},
        fingerprint=hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest(),
    )


def validate_route(value: Object) -> list[str]:
    """Return why an HTTPRoute is refused; empty when it is not."""
    reasons = _validate_identity(value, "gateway.networking.k8s.io/v1", "HTTPRoute")
    spec = _mapping(value.get("spec"))
    known = {"parentRefs", "hostnames", "rules"}
    reasons += [f"spec.{name} is not a field that the embedded engine has" for name in sorted(set(spec) - known)]
    rules = spec.get("rules")
    if not isinstance(rules, list) or len(rules) != 1 or not isinstance(rules[0], Mapping):
        return [*reasons, "spec.rules must hold exactly one rule"]
    extra = set(rules[0]) - {"backendRefs", "matches", "timeouts", "name"}
    reasons += [f"spec.rules[0].{name} is not a field that the embedded engine has" for name in sorted(extra)]
    reasons += _validate_backends(rules[0].get("backendRefs"))
    annotations = _mapping(_mapping(value.get("metadata")).get("annotations"))
    if not _COHORT.fullmatch(str(annotations.get(COHORT_ANNOTATION, NO_COHORT))):
        reasons.append(f"annotation {COHORT_ANNOTATION} must be <rollout>-<step>")
    if _tolerance(annotations) is not None and not 0 <= (_tolerance(annotations) or 0) < float("inf"):
        reasons.append(f"annotation {TOLERANCE_ANNOTATION} must be a number, at least 0")
    if _record(annotations) is None:
        reasons.append(f"annotation {RECORD_ANNOTATION} must be a whole number from 0 to {MOST_REQUESTS}, in quotes")
    return reasons


def _validate_backends(references: Any) -> list[str]:
    if not isinstance(references, list) or not 1 <= len(references) <= 2:
        return ["spec.rules[0].backendRefs must name the model's service, and at most its canary's"]
    reasons, names = [], []
    for index, reference in enumerate(references):
        at, entry = f"spec.rules[0].backendRefs[{index}]", _mapping(reference)
        name, weight = entry.get("name"), entry.get("weight", 1)
        if not isinstance(name, str) or not name.endswith(PREDICTOR_SUFFIX):
            reasons.append(f"{at}.name must be a service that ends in {PREDICTOR_SUFFIX}")
            continue
        names.append(name.removesuffix(PREDICTOR_SUFFIX))
        if type(weight) is not int or not 0 <= weight <= 1_000_000:
            reasons.append(f"{at}.weight must be a whole number from 0 to 1000000")
        if entry.get("kind", "Service") != "Service" or entry.get("group", "") != "":
            reasons.append(f"{at} must be a Service")
        extra = set(entry) - {"name", "weight", "kind", "group", "port", "namespace"}
        reasons += [f"{at}.{field} is not a field that the embedded engine has" for field in sorted(extra)]
    if len(set(names)) != len(names) or len({name.removesuffix(CANARY_SUFFIX) for name in names}) > 1:
        reasons.append("spec.rules[0].backendRefs must name one model's services, each once")
    return reasons


def parse_route(value: Object) -> Split:
    """Return an HTTPRoute as a value.

    Raises:
        InvalidInput: It is refused, for the reasons of `validate_route`.
    """
    if reasons := validate_route(value):
        raise InvalidInput("; ".join(reasons))
    annotations = _mapping(value["metadata"].get("annotations"))
    weights = {}
    model = ""
    for reference in value["spec"]["rules"][0]["backendRefs"]:
        service = reference["name"].removesuffix(PREDICTOR_SUFFIX)
        model = service.removesuffix(CANARY_SUFFIX)
        weights["canary" if service.endswith(CANARY_SUFFIX) else "baseline"] = reference.get("weight", 1)
    return Split(
        model=model,
        weights=weights,
        cohort=annotations.get(COHORT_ANNOTATION, NO_COHORT),
        tolerance=_tolerance(annotations),
        record=_record(annotations) or 0,
    )


def route_model(value: Object) -> str:
    """Return the model that an HTTPRoute is about, as well as a refused one can say it; else its name."""
    rules = _mapping(value.get("spec")).get("rules")
    references: Sequence[Any] = _mapping(rules[0]).get("backendRefs", []) if isinstance(rules, list) and rules else []
    for reference in references if isinstance(references, list) else []:
        name = _mapping(reference).get("name")
        if isinstance(name, str) and name.endswith(PREDICTOR_SUFFIX):
            return name.removesuffix(PREDICTOR_SUFFIX).removesuffix(CANARY_SUFFIX)
    return name_of(value)


def _tolerance(annotations: Object) -> float | None:
    text = annotations.get(TOLERANCE_ANNOTATION)
    if text is None:
        return None
    try:
        return float(text)
    except (TypeError, ValueError):
        return float("nan")


def _record(annotations: Object) -> int | None:
    """Return how many requests are to be kept, 0 where nobody says; None where what somebody says is no number."""
    text = annotations.get(RECORD_ANNOTATION, "0")
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,5}", text) or int(text) > MOST_REQUESTS:
        return None
    return int(text)


def _mapping(value: Any) -> Object:
    return value if isinstance(value, Mapping) else {}
