"""What an environment folder may hold, and what it is built to."""

import textwrap

import pytest

from mlgitops.adapters.cluster.kustomize import build, folders
from mlgitops.core.errors import InvalidInput

FOLDER = "environments/training/digits"
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: digits-0123456789ab
  labels: {app: digits}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: tensorflow
              image: digits
"""
POD = ("spec", "tfReplicaSpecs", "Worker", "template", "spec")


def reader(kustomization, **files):
    """Return what reads a folder of a snapshot."""
    texts = {"kustomization": kustomization, **files}
    found = {f"{FOLDER}/{name}.yaml": textwrap.dedent(text).encode() for name, text in texts.items()}
    return found.get


def problems(kustomization, namespace: str = "training", **files):
    """Return why a folder is refused."""
    with pytest.raises(InvalidInput) as caught:
        build(reader(kustomization, **files), FOLDER, namespace=namespace)
    return caught.value.problems


def test_listed_files_are_built_with_namespace_labels_and_annotations() -> None:
    """Objects get the kustomization's namespace, labels and annotations, and nothing else changes."""
    kustomization = """
        apiVersion: kustomize.config.k8s.io/v1beta1
        kind: Kustomization
        namespace: training
        labels: [{pairs: {team: vision}}]
        commonAnnotations: {note: kept}
        resources: [tfjob.yaml]
    """
    (job,) = build(reader(kustomization, tfjob=JOB), FOLDER)
    assert job["metadata"] == {
        "name": "digits-0123456789ab",
        "namespace": "training",
        "labels": {"app": "digits", "team": "vision"},
        "annotations": {"note": "kept"},
    }
    assert job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == "digits"


def test_a_folder_may_list_nothing() -> None:
    """Between attempts the kustomization lists no job, and that is no error."""
    assert build(reader("namespace: training\nresources: []\n", tfjob=JOB), FOLDER) == []


@pytest.mark.parametrize(
    "field", ["patches", "bases", "helmCharts", "generators", "components", "images", "namePrefix"]
)
def test_other_fields_are_refused_with_their_place(field: str) -> None:
    """A field that would change the result in a way nobody looks at here is refused by name and line."""
    (problem,) = problems(f"namespace: training\n{field}: [x]\n")
    assert (problem.line, problem.pointer) == (2, field)
    assert "not honoured" in problem.message
    assert "resources" in problem.mend


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.test/base.yaml",
        "../staging/tfjob.yaml",
        "/etc/passwd.yaml",
        "sub/tfjob.yaml",
        "github.com/o/r?ref=v1",
        "..",
        "tfjob.json",
        "5",
    ],
)
def test_only_files_of_the_folder_can_be_listed(resource: str) -> None:
    """Remote bases, other folders and whatever is no YAML file are refused before anything is read."""
    (problem,) = problems(f"resources:\n  - {resource}\n", tfjob=JOB)
    assert (problem.line, problem.pointer) == (2, "resources[0]")


def test_absent_and_repeated_files_are_told_together() -> None:
    """Every wrong line of the list is told at once."""
    found = problems("resources: [absent.yaml, tfjob.yaml, ./tfjob.yaml]\n", tfjob=JOB)
    assert [problem.message for problem in found] == [
        "there is no file absent.yaml in this folder",
        "tfjob.yaml is listed twice",
    ]


def test_another_kind_in_a_listed_file_is_refused() -> None:
    """A ClusterRoleBinding hidden behind the job in the same file is refused, with its own line."""
    smuggled = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n"
    (problem,) = problems("resources: [tfjob.yaml]\n", tfjob=f"{JOB}---\n{smuggled}")
    assert "ClusterRoleBinding of rbac.authorization.k8s.io/v1 is not allowed here" in problem.message
    assert problem.line == 16


def test_serving_kinds_do_not_belong_to_training() -> None:
    """An environment holds the kinds of its own purpose: no InferenceService in training."""
    service = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: digits}\n"
    assert "not allowed here" in problems("resources: [service.yaml]\n", service=service)[0].message
    files = {
        "environments/production/digits/kustomization.yaml": b"resources: [service.yaml]",
        "environments/production/digits/service.yaml": service.encode(),
    }
    assert build(files.get, "environments/production/digits")[0]["kind"] == "InferenceService"


def test_another_namespace_is_refused_wherever_it_is_written() -> None:
    """Neither the kustomization nor an object can reach another namespace than the environment's."""
    assert problems("namespace: kube-system\nresources: []\n")[0].pointer == "namespace"
    job = JOB.replace("metadata:\n", "metadata:\n  namespace: kube-system\n")
    assert problems("resources: [tfjob.yaml]\n", tfjob=job)[0].pointer == "metadata.namespace"


@pytest.mark.parametrize(
    ("where", "extra"),
    [
        ("spec.volumes[0].hostPath", "volumes: [{name: host, hostPath: {path: /}}]"),
        ("spec.volumes[0].secret", "volumes: [{name: secret, secret: {secretName: x}}]"),
        ("spec.hostNetwork", "hostNetwork: true"),
        ("spec.serviceAccountName", "serviceAccountName: admin"),
        ("spec.initContainers", "initContainers: [{name: init, image: x}]"),
        ("spec.containers[0].securityContext.privileged", "securityContext: {privileged: true}"),
        ("spec.containers[0].securityContext.procMount", "securityContext: {procMount: Unmasked}"),
        ("spec.securityContext.sysctls", "securityContext: {sysctls: [{name: a, value: b}]}"),
        ("spec.containers[0].securityContext.capabilities.add", "securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
        ("spec.containers[0].env[0].valueFrom", "env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}]"),
        ("spec.containers[0].envFrom", "envFrom: [{secretRef: {name: a}}]"),
        ("spec.containers[0].lifecycle", "lifecycle: {}"),
        ("spec.containers[0].resources.limits.memory", "resources: {limits: {memory: lots}}"),
    ],
)  # fmt: skip
def test_a_pod_that_asks_for_more_is_refused(where: str, extra: str) -> None:
    """Host folders, secrets, privileges and every field that is not honoured are refused with their line."""
    indent = " " * (14 if "containers[0]" in where else 10)
    (problem,) = problems("resources: [tfjob.yaml]\n", tfjob=f"{JOB}{indent}{extra}\n")
    assert problem.pointer == f"spec.tfReplicaSpecs.Worker.template.{where}"
    assert problem.line == 14


def test_a_job_is_there_once() -> None:
    """The same name in two files is refused: it would be one object with two meanings."""
    found = problems("resources: [a.yaml, b.yaml]\n", a=JOB, b=JOB)
    assert "TFJob digits-0123456789ab is there twice" in found[0].message


def test_malformed_files_are_refused_with_their_place() -> None:
    """A file that is no YAML, or a kustomization that is no mapping, is refused without a traceback."""
    assert problems("resources: [tfjob.yaml]\n", tfjob="a: 1\na: 2\n")[0].path == f"{FOLDER}/tfjob.yaml"
    assert "mapping" in problems("- x\n")[0].message
    assert "mapping" in problems("resources: [tfjob.yaml]\n", tfjob="- x\n")[0].message
    with pytest.raises(InvalidInput, match="no kustomization"):
        build(lambda path: None, FOLDER)


def test_an_environments_folders_are_found_by_their_kustomizations() -> None:
    """The folders of an environment are those directly below it that have a kustomization."""
    paths = [
        "environments/training/digits/kustomization.yaml",
        "environments/training/digits/tfjob.yaml",
        "environments/training/other/deep/kustomization.yaml",
        "environments/training/kustomization.yaml",
        "environments/staging/digits/kustomization.yaml",
    ]
    assert folders(paths, "training") == ["environments/training/digits"]
