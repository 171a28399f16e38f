"""Lint rules: each refuses its bad object and passes the good one."""

import copy
import json
from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.core.loading import load_environments
from mlgitops.core.manifest import owned, render
from mlgitops.core.manifest.lint import ALLOW_PREFIX, RULES, lint_objects, lint_tree
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.manifest.read import read_documents

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FILES = ("tfjob.yaml", "inferenceservice.yaml", "inferenceservice-canary.yaml", "route.yaml")
CONTAINER = ("spec", "tfReplicaSpecs", "Worker", "template", "spec", "containers", 0)
POD = CONTAINER[:-2]
WORKER = ("spec", "tfReplicaSpecs", "Worker")
POLICY = ("spec", "runPolicy")
PREDICTOR = ("spec", "predictor")
MODE = ("metadata", "annotations", "serving.kserve.io/deploymentMode")
GONE = object()


GOOD = {name: yaml.safe_load((GOLDEN / name).read_bytes()) for name in (*FILES, "tfjob-gpu.yaml")}


def load(name):
    return copy.deepcopy(GOOD[name])


def put(value, path, new):
    """Return a copy with `new` at `path`; GONE removes what is there."""
    value = copy.deepcopy(value)
    node = value
    for key in path[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    if new is GONE:
        del node[path[-1]]
    else:
        node[path[-1]] = new
    return value


def lint(*values, previous=None, today=None):
    def documents(objects):
        return [one for value in objects for one in read_documents(json.dumps(value).encode(), "object.yaml")]

    before = None if previous is None else documents(previous)
    return lint_objects(documents(values), previous=before, today=today)


def rules(problems, *severities):
    return {one.rule for one in problems if one.severity in (severities or ("error", "warning", "info"))}


def edited(name, *changes):
    value = load(name)
    for path, new in changes:
        value = put(value, path, new)
    return value


JOB, SERVICE, CANARY, ROUTE = FILES
BAD = {
    "tfjob-container": (JOB, (CONTAINER, {"name": "main"})),
    "tfjob-role": (JOB, (("spec", "tfReplicaSpecs", "worker"), {"replicas": 1})),
    "tfjob-chief": (JOB, (("spec", "tfReplicaSpecs", "Chief", "replicas"), 2)),
    "tfjob-replicas": (JOB, ((*WORKER, "replicas"), 0)),
    "tfjob-image": (JOB, ((*CONTAINER, "image"), "registry.example.com/digits:latest")),
    "tfjob-restart-policy": (JOB, ((*WORKER, "restartPolicy"), "onFailure")),
    "tfjob-clean-pod-policy": (JOB, ((*POLICY, "cleanPodPolicy"), "running")),
    "tfjob-success-policy": (JOB, (("spec", "successPolicy"), "allWorkers")),
    "tfjob-deadline": (JOB, ((*POLICY, "activeDeadlineSeconds"), 0)),
    "tfjob-ttl": (JOB, ((*POLICY, "ttlSecondsAfterFinished"), 60)),
    "tfjob-name": (JOB, (("metadata", "name"), "digits-ffffffffffff")),
    "tfjob-variable": (JOB, ((*CONTAINER, "env"), [{"name": "TF_CONFIG", "value": "{}"}])),
    "pod-host": (JOB, ((*POD, "volumes"), [{"name": "a", "hostPath": {"path": "/"}}])),
    "generate-name": (JOB, (("metadata", "generateName"), "digits-")),
    "allow-annotation": (JOB, (("metadata", "annotations", ALLOW_PREFIX + "nothing"), "why not")),
    "tfjob-no-deadline": (JOB, ((*POLICY, "activeDeadlineSeconds"), GONE)),
    "tfjob-no-backoff-limit": (JOB, ((*POLICY, "backoffLimit"), GONE)),
    "tfjob-clean-all": (JOB, ((*POLICY, "cleanPodPolicy"), "All")),
    "tfjob-restart-never": (JOB, ((*WORKER, "restartPolicy"), GONE)),
    "tfjob-restart-always": (JOB, ((*WORKER, "restartPolicy"), "Always")),
    "tfjob-exit-code-memory": (
        JOB,
        ((*WORKER, "restartPolicy"), "ExitCode"),
        ((*CONTAINER, "resources", "limits", "memory"), "8Gi"),
    ),
    "tfjob-first-worker": (JOB, (("spec", "tfReplicaSpecs", "Chief"), GONE), ((*WORKER, "replicas"), 2)),
    "tfjob-sidecar": (JOB, ((*WORKER, "template", "metadata", "annotations"), {})),
    "tfjob-suspend": (JOB, ((*POLICY, "suspend"), True)),
    "pod-resources": (JOB, ((*CONTAINER, "resources"), GONE)),
    "pod-service-account-token": (JOB, ((*POD, "automountServiceAccountToken"), GONE)),
    "pod-root": (JOB, ((*POD, "securityContext", "runAsNonRoot"), False)),
    "service-name": (SERVICE, (("metadata", "name"), "9digits")),
    "service-canary-percent": (SERVICE, ((*PREDICTOR, "canaryTrafficPercent"), 10)),
    "service-canary-spec": (SERVICE, (("spec", "canary"), [{"trafficPercent": 10, "predictor": {"name": "b"}}])),
    "service-canary-mode": (SERVICE, (MODE, "RawDeployment"), (("spec", "canary"), [])),
    "service-canary-shape": (SERVICE, (("spec", "canary"), [{"trafficPercent": 101, "predictor": {"name": "b"}}])),
    "service-mutable-uri": (SERVICE, ((*PREDICTOR, "model", "storageUri"), "s3://models/digits/latest")),
    "service-uri": (SERVICE, ((*PREDICTOR, "model", "storageUri"), "pvc://store/models/3f2a9c1d07be/1")),
    "service-model-name": (SERVICE, ((*PREDICTOR, "model", "name"), "digits")),
    "service-pythonpath": (SERVICE, ((*PREDICTOR, "model", "env"), [{"name": "PYTHONPATH", "value": "/x"}])),
    "service-deployment-strategy": (SERVICE, (MODE, "Knative"), ((*PREDICTOR, "deploymentStrategy"), {})),
    "service-artifact-digest": (SERVICE, (("metadata", "annotations", "mlgitops.dev/artifact-digest"), "sha256:1")),
    "service-replicas": (SERVICE, ((*PREDICTOR, "minReplicas"), 3), ((*PREDICTOR, "maxReplicas"), 2)),
    "service-mode": (SERVICE, (MODE, GONE)),
    "service-scale-to-zero": (SERVICE, ((*PREDICTOR, "minReplicas"), 0)),
    "service-protocol": (SERVICE, ((*PREDICTOR, "model", "protocolVersion"), "v2")),
    "service-old-form": (SERVICE, ((*PREDICTOR, "tensorflow"), {})),
    "service-max-replicas": (
        SERVICE,
        ((*PREDICTOR, "minReplicas"), 4),
        ((*PREDICTOR, "maxReplicas"), 1),
        (("spec", "canary"), [{"trafficPercent": 50, "predictor": {"name": "b"}}]),
    ),
    "route-weights": (ROUTE, (("spec", "rules", 0, "backendRefs", 0, "weight"), 90)),
    "route-cohort": (ROUTE, (("metadata", "annotations"), {})),
}


@pytest.mark.parametrize("rule", BAD)
def test_each_rule_refuses_its_bad_object(rule) -> None:
    """The object that breaks a rule is refused by that rule, with place and mend; the good one is not."""
    name, *changes = BAD[rule]
    assert rule not in rules(lint(load(name)))
    found = [one for one in lint(edited(name, *changes)) if one.rule == rule]
    assert found
    assert all(one.severity == RULES[rule].severity and one.mend and one.line for one in found)


def test_what_the_tool_writes_passes_its_own_lint() -> None:
    """Scaffolds and the canary derived from one have neither errors nor warnings."""
    problems = lint(*(load(name) for name in FILES), load("tfjob-gpu.yaml"))
    assert rules(problems, "error") == set()
    # The second example asks for GPUs alone: no memory limit, which is worth a warning.
    assert rules(problems, "warning") == {"pod-resources"}
    assert rules(lint(*(load(name) for name in FILES)), "warning") == set()


TREE_RULES = {name for name in RULES if name.startswith("tree-")}
CHANGE_RULES = {
    *("big-bang", "service-mode-changed", "service-predictor-renamed", "service-canary-first", "service-canary-open"),
}


def test_every_rule_has_a_test() -> None:
    """No rule is in the table without a bad object above or below."""
    assert set(RULES) == {*BAD, *TREE_RULES, *CHANGE_RULES, "tfjob-deprecated"}
    assert set(TREE_CASES) == TREE_RULES
    assert rules(lint(load(JOB)), "info") == {"tfjob-deprecated"}


def test_every_rule_says_what_why_and_mend() -> None:
    """Documentation is generated from the table, so each rule explains itself."""
    assert all(one.what and one.why.endswith(".") and one.mend for one in RULES.values())


EXCUSE = "cluster without GitOps, until 2027-01-31"


def excused(text):
    path = ("metadata", "annotations", ALLOW_PREFIX + "tfjob-ttl")
    return put(edited(JOB, BAD["tfjob-ttl"][1]), path, text)


def test_a_reason_and_an_end_in_the_object_allow_a_rule() -> None:
    """An annotation with a reason and an end turns the error into an info that says both."""
    allowed = lint(excused(EXCUSE), today=date(2027, 1, 31))
    assert rules(allowed, "error") == set()
    assert [one.message for one in allowed if one.rule == "tfjob-ttl"] == [
        "the job would delete itself (allowed: cluster without GitOps, until 2027-01-31)"
    ]


@pytest.mark.parametrize(
    "text", [" ", "because", "until 2027-01-31", "because, until never", "because until 2027-13-01", 1]
)
def test_an_excuse_without_reason_or_end_allows_nothing(text) -> None:
    """Without a reason, or without a day on which it ends, an annotation allows nothing and is an error itself."""
    assert rules(lint(excused(text)), "error") == {"tfjob-ttl", "allow-annotation"}


def test_an_excuse_ends() -> None:
    """On the day after its last one an annotation allows nothing any more."""
    assert rules(lint(excused(EXCUSE), today=date(2027, 2, 1)), "error") == {"tfjob-ttl", "allow-annotation"}


def test_a_change_cannot_excuse_itself() -> None:
    """Where a change is reviewed, an annotation counts only if it was there before, word for word."""
    new, changed = lint(excused(EXCUSE), previous=[]), lint(excused(EXCUSE), previous=[excused("x until 2027-01-01")])
    for told in (new, changed):
        assert "tfjob-ttl" in rules(told, "error")
        assert any("the change that needs it cannot allow it" in one.message for one in told)
    assert "tfjob-ttl" not in rules(lint(excused(EXCUSE), previous=[excused(EXCUSE)]), "error")


@pytest.mark.parametrize("rule", ["pod-host", "tfjob-variable", "service-pythonpath"])
def test_safety_cannot_be_allowed(rule: str) -> None:
    """A rule that protects others cannot be switched off by whoever writes the manifest."""
    name, *changes = BAD[rule]
    value = edited(name, *changes, (("metadata", "annotations", ALLOW_PREFIX + rule), "please"))
    assert {rule, "allow-annotation"} <= rules(lint(value), "error")


URI = (*PREDICTOR, "model", "storageUri")
NEW_URI = "pvc://mlgitops-store/models/001234567890"


def test_a_new_model_for_everybody_is_refused() -> None:
    """Another storageUri without a canary is an error; what the canary serves already, or a split, is none."""
    before = load(SERVICE)
    assert "big-bang" in rules(lint(put(before, URI, NEW_URI), previous=[before]), "error")
    assert "big-bang" not in rules(lint(put(before, URI, NEW_URI), previous=[before, load(CANARY)]))
    knative = put(put(put(before, URI, NEW_URI), MODE, "Knative"), (*PREDICTOR, "canaryTrafficPercent"), 10)
    assert rules(lint(knative, previous=[put(before, MODE, "Knative")]), "error") == set()
    assert "big-bang" not in rules(lint(before, previous=[before]))


def test_changes_that_kserve_refuses_are_refused_before_it_does() -> None:
    """Another mode, or another predictor name with the same model, is an error; the legacy spelling is no change."""
    before = load(SERVICE)
    assert "service-mode-changed" in rules(lint(put(before, MODE, "Knative"), previous=[before]), "error")
    assert "service-mode-changed" not in rules(lint(before, previous=[put(before, MODE, "RawDeployment")]))
    renamed = put(before, (*PREDICTOR, "name"), "b")
    assert "service-predictor-renamed" in rules(lint(renamed, previous=[before]), "error")
    assert "service-predictor-renamed" not in rules(lint(put(renamed, URI, NEW_URI), previous=[before]))


def test_canaries_of_knative_mode() -> None:
    """A percent on a new service, and a change while a canary is open, are warned of."""
    open_canary = edited(SERVICE, (MODE, "Knative"), ((*PREDICTOR, "canaryTrafficPercent"), 10))
    assert "service-canary-first" in rules(lint(open_canary, previous=[load(ROUTE)]), "warning")
    changed = put(open_canary, (*PREDICTOR, "timeout"), 5)
    assert "service-canary-open" in rules(lint(changed, previous=[open_canary]), "warning")
    assert "service-canary-open" not in rules(lint(open_canary, previous=[open_canary]))


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "Knative", "tensorflow"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_objects_of_any_shape_are_answered(name, data) -> None:
    """Whatever stands anywhere in an object, lint answers with problems and never crashes."""
    value = load(name)
    path: list[str | int] = []
    node = value
    while isinstance(node, dict | list) and node and (not path or data.draw(st.integers(0, 9))):
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        path.append(key)
        node = node[key]
    lint(put(value, path, data.draw(anything)), previous=[value])
    lint(value, previous=[put(value, path, data.draw(anything))])


# --- the whole repository -----------------------------------------------------------------------------------------

CONFIGURATION = b"""\
apiVersion: mlgitops.dev/v1
kind: Environments
environments:
  - {name: production, plan: standard}
plans:
  - name: standard
    steps: [{weight: 10, seconds: 60}]
    metrics: [{kind: errors, effect: 2}]
"""
PLAN = load_environments(CONFIGURATION).environments[0].plan
LIVE, TRAIN = "environments/production/digits", "environments/training/digits"


def tree(**changes):
    """Return the files of a good repository, with changes; None removes."""
    rollout = RolloutFields(number=3, release="3f2a9c1d07be", plan="standard", plan_digest=str(PLAN.digest))
    files = {
        "README.md": b"# environments\n",
        "environments.yaml": CONFIGURATION,
        f"{TRAIN}/tfjob.yaml": (GOLDEN / JOB).read_bytes(),
        f"{TRAIN}/kustomization.yaml": render.render_kustomization("training"),
        f"{LIVE}/rollout.yaml": render.render_rollout(rollout, model="digits", environment="production"),
        f"{LIVE}/generation": b"7\n",
        f"{LIVE}/inferenceservice.yaml": (GOLDEN / SERVICE).read_bytes(),
        f"{LIVE}/route.yaml": (GOLDEN / ROUTE).read_bytes(),
        f"{LIVE}/kustomization.yaml": (GOLDEN / "kustomization.yaml").read_bytes(),
    }
    files |= changes
    return {path: data for path, data in files.items() if data is not None}


def lint_files(files, previous=None):
    return lint_tree(files.get, files, previous=previous.get if previous else None)


def replaced(path, old, new):
    data = tree()[path]
    assert old in data
    return {path: data.replace(old, new)}


TREE_CASES = {
    "tree-place": {"environments/prod/digits/route.yaml": b"a: b\n"},
    "tree-kustomization": replaced(f"{LIVE}/kustomization.yaml", b"resources:", b"patches: []\nresources:"),
    "tree-resource": replaced(f"{LIVE}/kustomization.yaml", b"- route.yaml", b"- https://example.com/route.yaml"),
    "tree-unlisted": {f"{LIVE}/extra.yaml": b"a: b\n"},
    "tree-kind": replaced(f"{LIVE}/route.yaml", b"kind: HTTPRoute", b"kind: ClusterRoleBinding"),
    "tree-namespace": replaced(f"{LIVE}/route.yaml", b"namespace: production", b"namespace: kube-system"),
    "tree-name": replaced(f"{LIVE}/inferenceservice.yaml", b"  name: digits\n", b"  name: other\n"),
    "tree-duplicate": {
        f"{LIVE}/again.yaml": (GOLDEN / ROUTE).read_bytes(),
        **replaced(f"{LIVE}/kustomization.yaml", b"- route.yaml", b"- route.yaml\n  - again.yaml"),
    },
    "tree-rollout": replaced(f"{LIVE}/rollout.yaml", b"model: digits", b"model: other"),
    "tree-blind-plan": replaced(
        "environments.yaml", b"plan: standard}", b"plan: standard, expectedRequestsPerSecond: 1}"
    ),
    "tree-plan": replaced(f"{LIVE}/rollout.yaml", str(PLAN.digest).encode(), b"sha256:" + b"0" * 64),
}


def test_a_good_repository_passes() -> None:
    """A repository as the tool writes it has neither errors nor warnings."""
    assert rules(lint_files(tree()), "error", "warning") == set()


@pytest.mark.parametrize("rule", TREE_CASES)
def test_each_rule_of_the_tree_refuses_its_bad_file(rule) -> None:
    """The file that breaks a rule of the tree is named by that rule, with its path and mend."""
    found = [one for one in lint_files(tree(**TREE_CASES[rule])) if one.rule == rule]
    assert found
    assert all(one.path and one.mend and one.severity == RULES[rule].severity for one in found)


@pytest.mark.parametrize(
    "files",
    [
        {"environments.yaml": None},
        {"environments.yaml": b"kind: [\n"},
        {f"{LIVE}/kustomization.yaml": None},
        {f"{LIVE}/kustomization.yaml": b"[]\n"},
        {f"{LIVE}/route.yaml": b"a: 1\na: 2\n"},
        {f"{LIVE}/route.yaml": b"[]\n"},
        {f"{LIVE}/rollout.yaml": b"kind: Rollout\n"},
        {f"{LIVE}/generation": b"seven\n"},
        {"environments/production/Digits/route.yaml": b"a: b\n"},
        {f"{LIVE}/base/route.yaml": b"a: b\n"},
        {"environments/notes.txt": b"a\n"},
    ],
)
def test_broken_repositories_are_told_and_read_on(files) -> None:
    """A file that is missing, unreadable or misplaced is an error with its path; the rest is linted all the same."""
    problems = lint_files(tree(**files) | replaced(f"{TRAIN}/tfjob.yaml", b"backoffLimit: 3", b"suspend: true"))
    assert any(one.severity == "error" and one.path for one in problems)
    assert "tfjob-suspend" in rules(problems)


def test_changes_of_the_tree_are_compared_with_before() -> None:
    """With the repository before the change, a new model without a canary is refused there too."""
    files = tree(**replaced(f"{LIVE}/inferenceservice.yaml", b"models/3f2a9c1d07be", b"models/001234567890"))
    assert "big-bang" in rules(lint_files(files, previous=tree()), "error")
    assert "big-bang" not in rules(lint_files(files))


def test_a_rollout_of_the_tool_passes_step_by_step() -> None:
    """The files of an open rollout, canary and weights included, pass like those between rollouts."""
    stable = (GOLDEN / SERVICE).read_bytes()
    canary = owned.derive_canary(stable, "s", owned.read_service((GOLDEN / CANARY).read_bytes(), "c"))
    fields = owned.RouteFields(model="digits", namespace="production", canary_weight_percent=50, cohort="3-2")
    files = tree(
        **{
            f"{LIVE}/inferenceservice-canary.yaml": canary,
            f"{LIVE}/route.yaml": owned.edit_route((GOLDEN / ROUTE).read_bytes(), "r", fields),
            f"{LIVE}/kustomization.yaml": owned.list_resource(
                (GOLDEN / "kustomization.yaml").read_bytes(), "k", "inferenceservice-canary.yaml"
            ),
        }
    )
    assert rules(lint_files(files, previous=tree()), "error", "warning") == set()
