"""Which InferenceServices and HTTPRoutes the embedded engine takes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from mlgitops.adapters.serving.objects import parse_route, parse_service, validate_route, validate_service
from mlgitops.core.errors import InvalidInput

Object = dict[str, Any]

SERVICE: Object = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {
        "name": "digits-canary",
        "labels": {"mlgitops.dev/release": "3f2a9c1d00aa"},
        "annotations": {
            "serving.kserve.io/deploymentMode": "Standard",
            "mlgitops.dev/artifact-digest": "sha256:" + "0" * 64,
        },
    },
    "spec": {
        "predictor": {
            "minReplicas": 1,
            "model": {
                "modelFormat": {"name": "tensorflow", "version": "2"},
                "protocolVersion": "v1",
                "storageUri": "pvc://store/models/digits/3f2a",
                "env": [{"name": "LEVEL", "value": "1"}],
            },
        }
    },
}
ROUTE: Object = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "digits", "annotations": {"mlgitops.dev/cohort": "3-2"}},
    "spec": {
        "parentRefs": [{"name": "gateway"}],
        "rules": [
            {
                "backendRefs": [
                    {"name": "digits-predictor", "port": 80, "weight": 90},
                    {"name": "digits-canary-predictor", "port": 80, "weight": 10},
                ]
            }
        ],
    },
}


def changed(value: Object, change: Callable[[Object], object]) -> Object:
    copied = copy.deepcopy(value)
    change(copied)
    return copied


def test_a_service_of_the_tool_is_taken() -> None:
    """What the tool writes is accepted, and its name says model and side."""
    service = parse_service(SERVICE)
    assert (service.model, service.arm, service.release) == ("digits", "canary", "3f2a9c1d00aa")
    assert service.variables == {"LEVEL": "1"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda o: o["metadata"].update(name="9digits"), "metadata.name"),
        (lambda o: o["metadata"].update(name="a" * 64), "metadata.name"),
        (lambda o: o["metadata"].update(name="digits\n"), "metadata.name"),
        (lambda o: o.update(apiVersion="serving.kserve.io/v1alpha1"), "must be a InferenceService"),
        (lambda o: o["metadata"]["annotations"].pop("serving.kserve.io/deploymentMode"), "deploymentMode"),
        (
            lambda o: o["metadata"]["annotations"].update({"serving.kserve.io/deploymentMode": "Knative"}),
            "deploymentMode",
        ),
        (lambda o: o["metadata"]["annotations"].pop("mlgitops.dev/artifact-digest"), "artifact-digest"),
        (lambda o: o["spec"].update(canary=[]), "spec.canary"),
        (lambda o: o["spec"].update(transformr={}), "spec.transformr"),
        (lambda o: o["spec"].pop("predictor"), "spec.predictor is required"),
        (lambda o: o["spec"]["predictor"].update(canaryTrafficPercent=10), "canaryTrafficPercent"),
        (lambda o: o["spec"]["predictor"].update(minReplica=1), "spec.predictor.minReplica "),
        (lambda o: o["spec"]["predictor"].update(minReplicas=-1), "minReplicas"),
        (lambda o: o["spec"]["predictor"].update(minReplicas=True), "minReplicas"),
        (lambda o: o["spec"]["predictor"].update(minReplicas=3, maxReplicas=2), "maxReplicas"),
        (lambda o: o["spec"]["predictor"].update(name="Bad"), "spec.predictor.name"),
        (lambda o: o["spec"].update(predictor={"tensorflow": {}}), "exactly one implementation"),
        (lambda o: o["spec"]["predictor"]["model"].update(name="x"), "not allowed in standard predictor"),
        (lambda o: o["spec"]["predictor"]["model"].update(modelFormat={"name": "onnx"}), "NoSupportingRuntime"),
        (
            lambda o: o["spec"]["predictor"]["model"].update(modelFormat={"name": "tensorflow", "version": "3"}),
            "version",
        ),
        (lambda o: o["spec"]["predictor"]["model"].update(protocolVersion="grpc-v2"), "protocolVersion"),
        (lambda o: o["spec"]["predictor"]["model"].update(storageUri="ftp://x/y"), "storageUri"),
        (lambda o: o["spec"]["predictor"]["model"].pop("storageUri"), "storageUri"),
        (lambda o: o["spec"]["predictor"]["model"].update(storage={"path": "x"}), "storage"),
        (lambda o: o["spec"]["predictor"]["model"].update(env=[{"name": "PYTHONPATH", "value": "/x"}]), "PYTHONPATH"),
        (
            lambda o: o["spec"]["predictor"]["model"].update(env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {}}}]),
            "plain value",
        ),
    ],
)
def test_what_kserve_refuses_or_ignores_is_refused(change: Callable[[Object], object], reason: str) -> None:
    """A service that KServe refuses, or would take without doing what it says, is refused, and the reason named."""
    assert reason in "; ".join(validate_service(changed(SERVICE, change)))
    with pytest.raises(InvalidInput):
        parse_service(changed(SERVICE, change))


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "ld_audit", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "PATH", "MLGITOPS_MOUNTS"]
)
def test_variables_that_decide_what_the_server_runs_are_refused(name: str) -> None:
    """A manifest cannot have the model server load other code than its own."""
    value = changed(SERVICE, lambda o: o["spec"]["predictor"]["model"].update(env=[{"name": name, "value": "/x"}]))
    assert f"{name} is reserved" in "; ".join(validate_service(value))


def test_every_reason_is_told_at_once() -> None:
    """Two faults give two reasons."""
    value = changed(SERVICE, lambda o: o["spec"]["predictor"].update(canaryTrafficPercent=1, minReplicas=-1))
    assert len(validate_service(value)) == 2


@pytest.mark.parametrize("value", [{}, {"spec": None}, {"metadata": [], "spec": {"predictor": []}}, {"spec": 5}])
def test_shapeless_objects_are_refused_without_an_error(value: Object) -> None:
    """Whatever the document holds, the answer is reasons."""
    assert validate_service(value)
    assert validate_route(value)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda o: o["spec"]["predictor"].update(minReplicas=2), True),
        (lambda o: o["metadata"].update(resourceVersion="5"), True),
        (lambda o: o["spec"]["predictor"]["model"].update(storageUri="pvc://store/other"), False),
        (lambda o: o["metadata"]["labels"].update({"mlgitops.dev/release": "other"}), False),
        (lambda o: o["metadata"]["annotations"].update(note="x"), False),
        (lambda o: o["spec"]["predictor"]["model"]["env"][0].update(value="2"), False),
    ],
)
def test_what_makes_a_new_revision(change: Callable[[Object], object], *, same: bool) -> None:
    """A changed pod template is a new revision, a changed number of replicas is not."""
    after = parse_service(changed(SERVICE, change)).fingerprint
    assert (after == parse_service(SERVICE).fingerprint) is same


def test_a_route_of_the_tool_is_taken() -> None:
    """Weights by side and the cohort are read from what the tool writes."""
    split = parse_route(ROUTE)
    assert (split.model, split.weights, split.cohort) == ("digits", {"baseline": 90, "canary": 10}, "3-2")


def references(value: Object) -> list[Object]:
    found: list[Object] = value["spec"]["rules"][0]["backendRefs"]
    return found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda o: o["spec"]["rules"].append({}), "exactly one rule"),
        (lambda o: o["spec"].update(ruls=[]), "spec.ruls"),
        (lambda o: o["spec"]["rules"][0].update(filters=[]), "filters"),
        (lambda o: references(o)[0].update(weight=-1), "weight"),
        (lambda o: references(o)[0].update(weight="90"), "weight"),
        (lambda o: references(o)[0].update(name="digits"), "-predictor"),
        (lambda o: references(o)[0].update(name="other-predictor"), "one model's services"),
        (lambda o: references(o).append(references(o)[0]), "at most its canary's"),
        (lambda o: references(o).clear(), "backendRefs"),
        (lambda o: references(o)[0].update(kind="InferencePool"), "must be a Service"),
        (lambda o: o["metadata"]["annotations"].update({"mlgitops.dev/cohort": "x"}), "cohort"),
        (lambda o: o["metadata"]["annotations"].update({"mlgitops.dev/label-tolerance": "wide"}), "label-tolerance"),
        (lambda o: o["metadata"]["annotations"].update({"mlgitops.dev/label-tolerance": "inf"}), "label-tolerance"),
    ],
)
def test_routes_that_cannot_be_split_are_refused(change: Callable[[Object], object], reason: str) -> None:
    """A route that is not a plain split between a model's two services is refused, and says what is wrong."""
    assert reason in "; ".join(validate_route(changed(ROUTE, change)))
