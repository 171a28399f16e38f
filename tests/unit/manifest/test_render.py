"""Scaffolding manifests and editing the fields that the tool owns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.core.configuration import ModelConfiguration
from mlgitops.core.errors import InvalidInput
from mlgitops.core.loading import load_model, load_rollout
from mlgitops.core.manifest import owned, render
from mlgitops.core.manifest.owned import RolloutFields, RouteFields, ServiceFields, TrainingFields
from mlgitops.core.manifest.read import read_document
from mlgitops.core.names import Digest, ImageReference
from mlgitops.core.schemas import schema

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
CLAIM = "mlgitops-store"
TRAINING = TrainingFields(
    model="digits",
    release="3f2a9c1d07be",
    namespace="training",
    image=ImageReference("registry.example.com/digits", Digest.of(b"image")),
    image_tag="3f2a9c1",
    source_revision="81d07be5" * 5,
    variables={
        "MLGITOPS_OUTPUT_URI": "pvc://mlgitops-store/models/digits/3f2a9c1d07be",
        "MLGITOPS_DATA_URI": "pvc://mlgitops-store/data/1234567e8",
    },
)
SERVICE = ServiceFields(
    name="digits",
    namespace="production",
    model="digits",
    release="3f2a9c1d07be",
    storage_uri="pvc://mlgitops-store/models/3f2a9c1d07be",
    artifact_digest=str(Digest.of(b"model")),
)
CANARY = ServiceFields(
    name="digits-canary",
    namespace="production",
    model="digits",
    release="001234567890",
    storage_uri="pvc://mlgitops-store/models/001234567890",
    artifact_digest=str(Digest.of(b"other")),
)
ROUTE = RouteFields(model="digits", namespace="production", canary_weight_percent=0, cohort="0-0")
ROLLOUT = RolloutFields(number=3, release="001234567890", plan="standard", plan_digest=str(Digest.of(b"plan")))


def configuration(number: int = 0) -> ModelConfiguration:
    return load_model(json.dumps(schema("model")["examples"][number]).encode(), "mlgitops.yaml")


RENDERED = {
    "tfjob.yaml": lambda: render.render_tfjob(configuration(), CLAIM, TRAINING),
    "tfjob-gpu.yaml": lambda: render.render_tfjob(configuration(1), CLAIM, replace(TRAINING, model="prices")),
    "inferenceservice.yaml": lambda: render.render_service(configuration().serving, SERVICE),
    "inferenceservice-canary.yaml": lambda: owned.derive_canary(
        render.render_service(configuration().serving, SERVICE), "inferenceservice.yaml", CANARY
    ),
    "route.yaml": lambda: render.render_route(ROUTE),
    "rollout.yaml": lambda: render.render_rollout(ROLLOUT, model="digits", environment="production"),
    "kustomization.yaml": lambda: render.render_kustomization("production", ["inferenceservice.yaml", "route.yaml"]),
}


@pytest.mark.parametrize("name", RENDERED)
def test_scaffolds_are_what_was_reviewed(name) -> None:
    """A scaffold is byte for byte the file under tests/golden/, so a change of one is seen in review."""
    assert RENDERED[name]().decode() == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", RENDERED)
def test_scaffolds_read_the_same_in_yaml_1_1(name) -> None:
    """A scaffold means to PyYAML, which reads YAML 1.1 as the API server does, what it means to the strict reader."""
    loaded = yaml.safe_load(RENDERED[name]())
    strict = read_document(RENDERED[name](), name).value
    assert loaded == strict
    assert json.dumps(loaded) == json.dumps(strict)


def test_tfjob_carries_everything_the_configuration_says() -> None:
    """Roles, GPU limits, node selection, tolerations, volumes and policies of mlgitops.yaml are in the TFJob."""
    job = yaml.safe_load(RENDERED["tfjob-gpu.yaml"]())["spec"]
    worker = job["tfReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    assert (worker["replicas"], worker["restartPolicy"]) == (2, "ExitCode")
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["nodeSelector"] == {"cloud.example.com/gpu": "a100"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["volumes"][1] == {"name": "cache", "emptyDir": {"sizeLimit": "10Gi"}}
    assert pod["containers"][0]["volumeMounts"][1] == {"name": "cache", "mountPath": "/cache"}
    assert pod["containers"][0]["command"] == ["python", "train.py"]
    assert job["runPolicy"] == {"activeDeadlineSeconds": 3600, "backoffLimit": 3, "cleanPodPolicy": "Running"}


def test_a_volume_cannot_take_the_place_of_the_store() -> None:
    """A configured volume with the claim's name is refused before a job exists that reads the wrong data."""
    with pytest.raises(InvalidInput, match="cache"):
        render.render_tfjob(configuration(1), "cache", TRAINING)


def test_reading_gives_back_what_was_rendered() -> None:
    """Every reader returns the owned values that its file was rendered from."""
    assert owned.read_tfjob(RENDERED["tfjob.yaml"](), "t") == TRAINING
    assert owned.read_service(RENDERED["inferenceservice.yaml"](), "s") == SERVICE
    assert owned.read_service(RENDERED["inferenceservice-canary.yaml"](), "s") == CANARY
    assert owned.read_route(RENDERED["route.yaml"](), "r") == ROUTE
    assert load_rollout(RENDERED["rollout.yaml"](), "r") == ROLLOUT


def test_editing_what_is_right_already_leaves_the_bytes() -> None:
    """An editor whose values are there already returns the very same bytes."""
    job, service = RENDERED["tfjob.yaml"](), RENDERED["inferenceservice.yaml"]()
    route, rollout = RENDERED["route.yaml"](), RENDERED["rollout.yaml"]()
    assert owned.edit_tfjob(job, "t", TRAINING) == job
    assert owned.edit_service(service, "s", SERVICE) == service
    assert owned.edit_route(route, "r", ROUTE) == route
    assert owned.edit_rollout(rollout, "r", ROLLOUT) == rollout


def changed(before: bytes, after: bytes) -> list[str]:
    """Return the lines of `after` that differ, when no line was added or removed."""
    old, new = before.decode().splitlines(), after.decode().splitlines()
    assert len(old) == len(new)
    return [b.strip() for a, b in zip(old, new, strict=True) if a != b]


HAND_EDITED = (
    (GOLDEN / "tfjob.yaml")
    .read_text()
    .replace("replicas: 1\n", "replicas: 1  # ask the platform team before you raise it\n")
    .replace("      env:\n", "      env:  # people's come last\n")
)


def test_editing_a_job_changes_owned_lines_only() -> None:
    """A new release changes the owned lines of a hand-edited TFJob and no other byte."""
    new = replace(
        TRAINING,
        release="001234567890",
        image=ImageReference("registry.example.com/digits", Digest.of(b"new")),
        variables={**TRAINING.variables, "MLGITOPS_OUTPUT_URI": "pvc://mlgitops-store/models/digits/001234567890"},
    )
    edited = owned.edit_tfjob(HAND_EDITED.encode(), "t", new)
    lines = changed(HAND_EDITED.encode(), edited)
    assert owned.read_tfjob(edited, "t") == new
    assert len(lines) == 2 + 2 * 2
    assert {line.partition(":")[0] for line in lines} == {"name", "mlgitops.dev/release", "image", "value"}
    assert owned.edit_tfjob(edited, "t", TRAINING) == HAND_EDITED.encode()


def test_variables_come_and_go_with_the_data_inputs() -> None:
    """A variable that the tool no longer sets is removed, a new one added, and people's variables stay."""
    new = replace(TRAINING, variables={"MLGITOPS_OUTPUT_URI": "pvc://s/o", "IMAGES_URI": "pvc://s/i"})
    edited = owned.edit_tfjob(HAND_EDITED.encode(), "t", new)
    assert owned.read_tfjob(edited, "t") == new
    for role in yaml.safe_load(edited)["spec"]["tfReplicaSpecs"].values():
        found = {one["name"]: one["value"] for one in role["template"]["spec"]["containers"][0]["env"]}
        assert found == {**new.variables, "TF_CPP_MIN_LOG_LEVEL": "2"}


def test_fields_that_people_removed_come_back() -> None:
    """Labels and annotations that somebody deleted are written again with their mapping."""
    service = yaml.safe_load(RENDERED["inferenceservice.yaml"]())
    del service["metadata"]["labels"], service["metadata"]["annotations"]
    edited = owned.edit_service(yaml.safe_dump(service).encode(), "s", SERVICE)
    assert owned.read_service(edited, "s") == SERVICE


def test_the_canary_inherits_what_people_changed() -> None:
    """Resources and comments that people put into the champion's file are in the canary's."""
    stable = RENDERED["inferenceservice.yaml"]().replace(b"minReplicas: 1", b"minReplicas: 4  # Black Friday")
    canary = owned.derive_canary(stable, "s", CANARY)
    assert b"minReplicas: 4  # Black Friday" in canary
    assert owned.read_service(canary, "s") == CANARY
    assert owned.edit_service(canary, "s", SERVICE) == stable


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 100), st.integers(0, 999), st.integers(0, 9))
def test_weights_always_add_up_to_100(weight, rollout, step) -> None:
    """Whatever the canary gets, the baseline gets the rest, and going back restores the bytes."""
    route = (GOLDEN / "route.yaml").read_bytes()
    fields = replace(ROUTE, canary_weight_percent=weight, cohort=f"{rollout}-{step}")
    edited = owned.edit_route(route, "r", fields)
    assert owned.read_route(edited, "r") == fields
    assert owned.edit_route(edited, "r", ROUTE) == route


def test_a_label_tolerance_is_written_and_never_compared() -> None:
    """What a router needs to judge a regression's labels reaches a new and an old route; without it the line stays."""
    fields = replace(ROUTE, label_tolerance=0.5)
    scaffold, edited = render.render_route(fields), owned.edit_route(render.render_route(ROUTE), "r", fields)
    for data in (scaffold, edited, owned.edit_route(edited, "r", ROUTE)):
        assert yaml.safe_load(data)["metadata"]["annotations"]["mlgitops.dev/label-tolerance"] == "0.5"
    assert owned.differences_route(render.render_route(ROUTE), "r", fields) == ()
    assert owned.differences_route(scaffold, "r", replace(ROUTE, label_tolerance=2)) == ()


def test_other_rules_of_a_route_stay_as_they_are() -> None:
    """A rule that people added before the scaffolded one keeps its weights."""
    route = yaml.safe_load(RENDERED["route.yaml"]())
    route["spec"]["rules"].insert(0, {"backendRefs": [{"name": "digits-predictor", "port": 80, "weight": 1}]})
    edited = owned.edit_route(yaml.safe_dump(route).encode(), "r", replace(ROUTE, canary_weight_percent=10))
    rules = yaml.safe_load(edited)["spec"]["rules"]
    assert rules[0] == route["spec"]["rules"][0]
    assert [one["weight"] for one in rules[1]["backendRefs"]] == [90, 10]


@pytest.mark.parametrize(
    ("old", "new", "pointer"),
    [
        ('image: "registry.example.com/digits@', 'image: "evil.example.com/digits@', "image"),
        ('mlgitops.dev/release: "3f2a9c1d07be"', 'mlgitops.dev/release: "ffffffffffff"', "mlgitops.dev/release"),
        ("pvc://mlgitops-store/data/", "pvc://mlgitops-store/other/", "value"),
    ],
)
def test_a_foreign_change_is_told(old: str, new: str, pointer: str) -> None:
    """An owned field that somebody else changed is named with its line; and reading such a job is refused."""
    data = RENDERED["tfjob.yaml"]().replace(old.encode(), new.encode(), 1)
    assert data != RENDERED["tfjob.yaml"]()
    found = owned.differences_tfjob(data, "t", TRAINING)
    assert len(found) == 1
    assert pointer in found[0].pointer
    written = new.rsplit('"', maxsplit=1)[-1].split("@", maxsplit=1)[0]
    assert any(one in str(found[0].found) for one in (written, "ffffffffffff"))
    assert (
        data.decode().splitlines()[found[0].line - 1]
        != (GOLDEN / "tfjob.yaml").read_text().splitlines()[found[0].line - 1]
    )


def test_roles_that_disagree_are_refused() -> None:
    """A job whose roles have different images is nobody's release, so reading it is an error with the place."""
    data = RENDERED["tfjob.yaml"]().replace(b"registry.example.com/digits@", b"other.example.com/digits@", 1)
    with pytest.raises(InvalidInput) as caught:
        owned.read_tfjob(data, "tfjob.yaml")
    assert caught.value.problems[0].line


def test_hand_set_weights_are_foreign() -> None:
    """Weights that people set are told as differences, and weights that do not add up to 100 are refused."""
    data = RENDERED["route.yaml"]().replace(b"weight: 0", b"weight: 30")
    assert [one.found for one in owned.differences_route(data, "r", ROUTE)] == [30]
    with pytest.raises(InvalidInput, match="add up to 100"):
        owned.read_route(data, "r")


def test_traffic_fields_of_kserve_are_foreign() -> None:
    """canaryTrafficPercent in the service's file is a foreign change: the tool never writes it."""
    data = RENDERED["inferenceservice.yaml"]().replace(b"minReplicas: 1", b"canaryTrafficPercent: 10")
    assert [one.pointer for one in owned.differences_service(data, "s", SERVICE)] == [
        "spec.predictor.canaryTrafficPercent"
    ]


@pytest.mark.parametrize(
    "data",
    [b"", b"kind: ConfigMap\n", b"kind: HTTPRoute\n---\nkind: HTTPRoute\n", b"kind: HTTPRoute\nspec: {}\n", b"- 1\n"],
)
def test_files_that_are_something_else_are_refused(data: bytes) -> None:
    """A file without exactly one object of the kind, or without the owned place, is refused and never guessed at."""
    with pytest.raises(InvalidInput):
        owned.edit_route(data, "r", ROUTE)


@pytest.mark.parametrize(
    "data",
    [
        b"kind: Kustomization\nresources:\n  - a.yaml # first\n# end\n",
        b"kind: Kustomization\nresources:\n- a.yaml\n- b.yaml",
        b"kind: Kustomization\r\nresources: [a.yaml, b.yaml]\r\nnamespace: x\r\n",
        b"kind: Kustomization\nresources: []\n",
        b"kind: Kustomization\nresources: # none yet\n  []\n",
    ],
)
def test_unlisting_undoes_listing(data: bytes) -> None:
    """Listing a resource and unlisting it gives back the same bytes; both change nothing the second time."""
    listed = owned.list_resource(data, "k", "tfjob.yaml")
    assert owned.listed_resources(listed, "k")[-1] == "tfjob.yaml"
    assert owned.list_resource(listed, "k", "tfjob.yaml") == listed
    assert owned.unlist_resource(listed, "k", "tfjob.yaml") == data
    assert owned.unlist_resource(data, "k", "tfjob.yaml") == data


def test_a_rollout_is_asked_for_in_four_lines() -> None:
    """A promotion changes only the lines of number, release, plan and plan digest."""
    before = RENDERED["rollout.yaml"]()
    new = RolloutFields(number=4, release="3f2a9c1d07be", plan="quick", plan_digest=str(Digest.of(b"quick")))
    after = owned.edit_rollout(before, "r", new)
    assert [line.partition(":")[0] for line in changed(before, after)] == ["number", "release", "plan", "planDigest"]
    assert load_rollout(after, "r") == new


def test_a_scaffold_is_recognised_until_somebody_edits_it() -> None:
    """A job with other owned values is still the tool's scaffold; with a comment or a value of people's it is not."""
    more = replace(TRAINING, release="001234567890", variables={"MLGITOPS_OUTPUT_URI": "a", "IMAGES_URI": "b"})
    job = owned.edit_tfjob(RENDERED["tfjob.yaml"](), "t", more)
    assert render.is_scaffold(job, "t", configuration(), CLAIM)
    assert not render.is_scaffold(job.replace(b"backoffLimit: 3", b"backoffLimit: 5"), "t", configuration(), CLAIM)
    assert not render.is_scaffold(job + b"# ask before you change this\n", "t", configuration(), CLAIM)
    assert not render.is_scaffold(job, "t", configuration(1), CLAIM)
