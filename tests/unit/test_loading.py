"""Loading mlgitops.yaml, environments.yaml and rollout.yaml."""

import contextlib
import json
from datetime import UTC, datetime, time
from typing import Any

import pytest

from mlgitops.core.configuration import MetricRule, Step
from mlgitops.core.errors import InvalidInput
from mlgitops.core.loading import load_environments, load_model, load_rollout
from mlgitops.core.names import Digest
from mlgitops.core.schemas import schema

MODEL = """\
apiVersion: mlgitops.dev/v1
kind: Model
metadata:
  name: digits
inputs: [src]
data:
  - path: data/train.npz
training:
  script: train.py
evaluation:
  data: data/evaluation.npz
  task: classification
"""
ENVIRONMENTS = """\
apiVersion: mlgitops.dev/v1
kind: Environments
environments:
  - name: production
    plan: standard
plans:
  - name: standard
    steps:
      - {weight: 10, seconds: 60}
      - {weight: 50, seconds: 60}
    metrics:
      - {kind: errors, effect: 2}
"""


def model(old: str = "", new: str = ""):
    assert old in MODEL
    return load_model(MODEL.replace(old, new, 1).encode() if old else MODEL.encode())


def environments(old: str = "", new: str = ""):
    assert old in ENVIRONMENTS
    return load_environments(ENVIRONMENTS.replace(old, new, 1).encode() if old else ENVIRONMENTS.encode())


def problems(load, *change):
    with pytest.raises(InvalidInput) as caught:
        load(*change)
    found = caught.value.problems
    assert all(one.line and one.column for one in found), found
    assert all(one.mend for one in found), found
    return {one.pointer: one for one in found}


def test_defaults_of_a_model() -> None:
    """A short mlgitops.yaml gets the documented defaults."""
    found = model()
    assert found.inputs == ("src", "requirements.txt", "train.py")
    assert (found.data[0].path, found.data[0].variable) == ("data/train.npz", "MLGITOPS_DATA_URI")
    assert (found.requirements, found.image_repository, found.test_command) == ("requirements.txt", "digits", ())
    assert found.training.command == ("python", "train.py")
    assert list(found.training.roles) == ["Chief"]
    assert found.evaluation.specification == {
        "task": "classification",
        "inputs": "x",
        "labels": "y",
        "signature": "serving_default",
        "batchSize": 64,
        "slices": [],
        "command": None,
        "timeoutSeconds": 300,
        "memoryMegabytes": 4096,
        "confidence": 0.95,
    }
    assert found.serving == {"minReplicas": 1}


def test_an_output_and_a_tolerance_reach_the_evaluation() -> None:
    """`output` and `labelTolerance` are what mlgitops.yaml says, and are absent when it says nothing."""
    text = "task: regression\n  output: price\n  labelTolerance: 0.5"
    found = model("task: classification", text).evaluation.specification
    assert (found["output"], found["labelTolerance"]) == ("price", 0.5)


def test_data_beside_the_evaluation_set_is_no_part_of_it() -> None:
    """A name that only begins like the evaluation set's folder is another folder."""
    assert model("path: data/train.npz", "path: dat").evaluation.data == "data/evaluation.npz"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("['.']", (".",)),
        ("[train.py, requirements.txt]", ("train.py", "requirements.txt")),
        ("[src/, src]", ("src", "requirements.txt", "train.py")),
    ],
)
def test_the_script_and_the_requirements_are_always_inputs(inputs: str, expected) -> None:
    """A change of the script or of the lock makes a new release even where `inputs` forgets them."""
    assert model("[src]", inputs).inputs == expected


def test_what_a_docker_engine_builds_with_decides_what_is_trained() -> None:
    """The Dockerfile is an input, and arguments, target and platform are another specification; others keep theirs."""
    image = "image: {builder: docker, repository: localhost/x, dockerfile: docker/file%s}\ntraining:"
    plain, one, same, other = (
        load_model(MODEL.replace("training:", image % words if image else "training:").encode(), "mlgitops.yaml")
        for image, words in (("", ""), (image, ""), (image, ", arguments: {}"), (image, ", arguments: {A: b}"))
    )
    assert "docker/file" in one.inputs
    assert plain.specification == plain.training.to_mapping()
    assert one.specification == same.specification
    assert len({json.dumps(each.specification, sort_keys=True) for each in (plain, one, other)}) == 3


def test_a_notebook_becomes_a_script_of_its_name() -> None:
    """A notebook trains as the script it is converted to, with the arguments."""
    training = model("script: train.py", "notebook: nb/train.ipynb\n  arguments: [--epochs, '3']").training
    assert (training.notebook, training.command) == ("nb/train.ipynb", ("python", "nb/train.py", "--epochs", "3"))


def test_roles_in_short_and_in_full() -> None:
    """`replicas` is short for `roles`, and resources of the training are those of every role without its own."""
    text = """script: train.py
  resources: {limits: {memory: 2Gi, cpu: 2}}
  roles:
    chief: {}
    worker: {replicas: 2, restartPolicy: ExitCode, resources: {limits: {nvidia.com/gpu: 1}}}
    ps: {replicas: 1}"""
    roles = model("script: train.py", text).training.roles
    assert {name: role.replicas for name, role in roles.items()} == {"Chief": 1, "Worker": 2, "PS": 1}
    assert roles["Chief"].resources == {"limits": {"memory": "2Gi", "cpu": "2"}}
    assert roles["Worker"].resources == {"limits": {"nvidia.com/gpu": "1"}}
    short = model("script: train.py", "script: train.py\n  replicas: {chief: 1, worker: 3}").training.roles
    assert {name: role.replicas for name, role in short.items()} == {"Chief": 1, "Worker": 3}


def test_a_number_and_its_text_are_the_same_specification() -> None:
    """`cpu: 1` and `cpu: "1"` give the same training, so that rewriting one trains nothing again."""
    texts = [
        model("script: train.py", f"script: train.py\n  resources: {{limits: {{cpu: {one}}}}}") for one in ("1", "'1'")
    ]
    assert texts[0].training.to_mapping() == texts[1].training.to_mapping()


def test_values_of_environments() -> None:
    """environments.yaml fills environments, plans and freeze windows."""
    text = """name: production
    approvals: 1
    automatic: false
    probationSeconds: 60
    freezeWindows:
      - {name: weekend, days: [saturday, sunday], after: "06:00"}
      - {name: holidays, start: "2026-12-20T00:00:00+01:00", end: "2027-01-04T00:00:00Z"}
    gates:
      - {metric: accuracy, minimum: 0.9}"""
    found = environments("name: production", text).environments[0]
    assert (found.namespace, found.approvals, found.automatic, found.probation_seconds) == ("production", 1, False, 60)
    assert found.plan.steps == (Step(weight_percent=10, seconds=60), Step(weight_percent=50, seconds=60))
    assert found.plan.metrics == (MetricRule(kind="errors", effect=2),)
    assert (found.freeze_windows[0].days, found.freeze_windows[0].after) == ((5, 6), time(6))
    assert found.freeze_windows[1].start == datetime(2026, 12, 19, 23, tzinfo=UTC)
    assert found.freeze_windows[0].covers(datetime(2026, 11, 28, 6, tzinfo=UTC))
    assert found.gates[0].minimum == 0.9


def test_a_rollout_file() -> None:
    """A rollout.yaml without model and environment loads; a release that YAML could take for a number is quoted."""
    lines = ("number: 3", 'release: "001234567890"', "plan: p", f'planDigest: "{Digest.of(b"x")}"')
    text = "apiVersion: mlgitops.dev/v1\nkind: Rollout\n" + "\n".join(lines)
    assert load_rollout(text.encode(), "r").release == "001234567890"
    with pytest.raises(InvalidInput):
        load_rollout(text.replace('"001234567890"', "001234567890").encode(), "r")


BAD_MODELS = {
    "name with capitals": ("name: digits", "name: Digits", "metadata.name"),
    "name too long": ("name: digits", f"name: {'a' * 37}", "metadata.name"),
    "name in Cyrillic": ("name: digits", "name: digit\u0455", "metadata.name"),
    "name with a line end": ("name: digits", 'name: "digits\\n"', "metadata.name"),
    "input upwards": ("[src]", "[a/../../x]", "inputs[0]"),
    "input absolute": ("[src]", "[/etc]", "inputs[0]"),
    "input like an option": ("[src]", "[--upload-pack=x]", "inputs[0]"),
    "input with a backslash": ("[src]", "['..\\\\x']", "inputs[0]"),
    "input in .git": ("[src]", "[.GIT/config]", "inputs[0]"),
    "data with NUL": ("path: data/train.npz", 'path: "a\\0b"', "data[0].path"),
    "data upwards": ("path: data/train.npz", "path: ../train.npz", "data[0].path"),
    "reserved variable": ("path: data/train.npz", "path: a\n    variable: LD_PRELOAD", "data[0].variable"),
    "own variable": ("path: data/train.npz", "path: a\n    variable: MLGITOPS_OUTPUT_URI", "data[0].variable"),
    "two data without variables": ("\ndata:", "\ndata:\n  - path: b", "data[0]"),
    "data twice": ("\ndata:", "\ndata:\n  - {path: data/train.npz/, variable: A}", "data[1].path"),
    "variable twice": (
        "  - path: data/train.npz",
        "  - {path: a, variable: A}\n  - {path: b, variable: A}",
        "data[1].variable",
    ),
    "a push to nowhere": ("training:", "image: {push: true}\ntraining:", "image.push"),
    "a push to no registry": (
        "training:",
        "image: {push: true, repository: team/digits}\ntraining:",
        "image.repository",
    ),
    "a Docker Engine without a registry": ("training:", "image: {builder: docker}\ntraining:", "image.builder"),
    "a Docker Engine that does not push": (
        "training:",
        "image: {builder: docker, push: false, repository: localhost/x}\ntraining:",
        "image.push",
    ),
    "a Dockerfile that nobody reads": ("training:", "image: {dockerfile: Dockerfile}\ntraining:", "image.dockerfile"),
    "a Dockerfile from elsewhere": (
        "training:",
        "image: {builder: docker, dockerfile: ../x, repository: localhost/x}\ntraining:",
        "image.dockerfile",
    ),
    "an argument that is no name": (
        "training:",
        "image: {builder: docker, repository: localhost/x, arguments: {a-b: x}}\ntraining:",
        "image.arguments.a-b",
    ),
    "no script": ("script: train.py", "backoffLimit: 1", "training"),
    "script and notebook": ("script: train.py", "script: train.py\n  notebook: a.ipynb", "training"),
    "script of another kind": ("train.py", "train.sh", "training.script"),
    "arguments beside a command": (
        "script: train.py",
        "command: [python, x.py]\n  arguments: [a]",
        "training.arguments",
    ),
    "command like an option": ("script: train.py", "command: [-c, x]", "training.command[0]"),
    "replicas and roles": (
        "script: train.py",
        "script: train.py\n  replicas: {chief: 1}\n  roles: {chief: {}}",
        "training.replicas",
    ),
    "two chiefs": (
        "script: train.py",
        "script: train.py\n  roles: {chief: {replicas: 2}}",
        "training.roles.chief.replicas",
    ),
    "nobody trains": ("script: train.py", "script: train.py\n  replicas: {ps: 1}", "training.replicas"),
    "chief and AllWorkers": (
        "script: train.py",
        "script: train.py\n  successPolicy: AllWorkers\n  replicas: {chief: 1, worker: 1}",
        "training.successPolicy",
    ),
    "TF_CONFIG": (
        "script: train.py",
        "script: train.py\n  environment: {TF_CONFIG: x}",
        "training.environment.TF_CONFIG",
    ),
    "PYTHONPATH": (
        "script: train.py",
        "script: train.py\n  environment: {PYTHONPATH: x}",
        "training.environment.PYTHONPATH",
    ),
    "variable of the data": (
        "data:\n  - path: data/train.npz\ntraining:",
        "data:\n  - {path: a, variable: A}\ntraining:\n  environment: {A: x}",
        "training.environment.A",
    ),
    "variable that is no name": (
        "script: train.py",
        "script: train.py\n  environment: {a-b: x}",
        "training.environment.a-b",
    ),
    "a number as a variable's value": (
        "script: train.py",
        "script: train.py\n  environment: {EPOCHS: 5}",
        "training.environment.EPOCHS",
    ),
    "a folder of the node": (
        "script: train.py",
        "script: train.py\n  volumes: [{name: a, mountPath: /a, hostPath: {path: /}}]",
        "training.volumes[0].hostPath",
    ),
    "a volume of nothing": (
        "script: train.py",
        "script: train.py\n  volumes: [{name: a, mountPath: /a}]",
        "training.volumes[0]",
    ),
    "a volume over the image": (
        "script: train.py",
        "script: train.py\n  volumes: [{name: a, mountPath: //app/x, emptyDir: {}}]",
        "training.volumes[0].mountPath",
    ),
    "a volume upwards": (
        "script: train.py",
        "script: train.py\n  volumes: [{name: a, mountPath: /a/../etc, emptyDir: {}}]",
        "training.volumes[0].mountPath",
    ),
    "name of a canary": ("name: digits", "name: digits-canary", "metadata.name"),
    "evaluation set that is trained on": ("path: data/train.npz", "path: data/evaluation.npz", "evaluation.data"),
    "evaluation set in the training data": ("path: data/train.npz", "path: data/", "evaluation.data"),
    "signature that is not served": ("task: c", "signature: predict\n  task: c", "evaluation.signature"),
    "output that is no name": ("task: c", "output: ''\n  task: c", "evaluation.output"),
    "tolerance of classes": ("task: c", "labelTolerance: 1\n  task: c", "evaluation.labelTolerance"),
    "tolerance of nothing": (
        "task: classification",
        "labelTolerance: 0\n  task: regression",
        "evaluation.labelTolerance",
    ),
    "evaluation set of another kind": ("evaluation.npz", "evaluation.csv", "evaluation.data"),
    "gate without a limit": ("task: c", "gates: [{metric: accuracy}]\n  task: c", "evaluation.gates[0]"),
    "gate that nothing passes": (
        "task: c",
        "gates: [{metric: a, minimum: 1, maximum: 0}]\n  task: c",
        "evaluation.gates[0].minimum",
    ),
    "gate for no slice": (
        "task: c",
        "gates: [{metric: a, minimum: 1, slice: s}]\n  task: c",
        "evaluation.gates[0].slice",
    ),
    "cost without a limit": ("task: c", "gates: [{metric: gpu_hours}]\n  task: c", "evaluation.gates[0]"),
    "loss of a cost": (
        "task: c",
        "gates: [{metric: size_megabytes, maximumLoss: 1}]\n  task: c",
        "evaluation.gates[0].maximumLoss",
    ),
    "ratio of a metric": (
        "task: c",
        "gates: [{metric: accuracy, maximumRatio: 1}]\n  task: c",
        "evaluation.gates[0].maximumRatio",
    ),
    "cost of a slice": (
        "task: c",
        "slices: [{name: s, key: k, values: [1]}]\n  gates: [{metric: gpu_hours, maximum: 1, slice: s}]\n  task: c",
        "evaluation.gates[0].slice",
    ),
    "misspelt key": ("script: train.py", "scirpt: train.py\n  script: train.py", "training.scirpt"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models_are_refused_at_their_place(case) -> None:
    """What cannot be accepted in mlgitops.yaml is refused with its pointer, place and mend."""
    old, new, pointer = BAD_MODELS[case]
    assert pointer in problems(model, old, new)


QUERY = '{environment="$environment",model="$model",cohort=~"$cohort"}'


def test_where_counts_come_from() -> None:
    """The source of counts, and what a Prometheus server is asked, are read; the rest has its defaults."""
    found = environments(
        "environments:\n",
        f"metrics:\n  source: prometheus\n  prometheus: {{requests: 'answers_total{QUERY}', sameProcess: [replica], "
        "lookbackSeconds: 900}\nenvironments:\n",
    ).metrics
    assert (found.source, found.prometheus.requests) == ("prometheus", f"answers_total{QUERY}")
    assert (found.prometheus.same_process, found.prometheus.lookback_seconds) == (("replica",), 900)
    assert found.prometheus.labelled == f"mlgitops_labelled_total{QUERY}"
    assert environments().metrics.source == "engine"


def _asks(query: str) -> str:
    return f"metrics: {{prometheus: {{requests: '{query}'}}}}\nenvironments:\n"


BAD_ENVIRONMENTS = {
    "a query of every model": (
        "environments:\n",
        _asks('a_total{environment="$environment",cohort=~"$cohort"}'),
        "metrics.prometheus.requests",
    ),
    "a rate": ("environments:\n", _asks(f"rate(a_total{QUERY}[5m])"), "metrics.prometheus.requests"),
    "a sum": ("environments:\n", _asks(f"sum(a_total{QUERY})"), "metrics.prometheus.requests"),
    "an address": (
        "environments:\n",
        "metrics: {prometheus: {address: http://x}}\nenvironments:\n",
        "metrics.prometheus.address",
    ),
    "no such plan": ("plan: standard", "plan: standart", "environments[0].plan"),
    "the name training": ("name: production", "name: training", "environments[0].name"),
    "an environment twice": (
        "environments:",
        "environments:\n  - {name: production, namespace: b, plan: standard}",
        "environments[1].name",
    ),
    "a namespace twice": (
        "environments:",
        "environments:\n  - {name: staging, namespace: production, plan: standard}",
        "environments[1].name",
    ),
    "a plan twice": (
        "plans:",
        "plans:\n  - {name: standard, steps: [{weight: 1, seconds: 1}], metrics: [{kind: errors, effect: 2}]}",
        "plans[1].name",
    ),
    "weights that fall": ("weight: 50", "weight: 10", "plans[0].steps[1].weight"),
    "no baseline left": ("weight: 50", "weight: 100", "plans[0].steps[1].weight"),
    "no step": (
        "steps:\n      - {weight: 10, seconds: 60}\n      - {weight: 50, seconds: 60}",
        "steps: []",
        "plans[0].steps",
    ),
    "a step without time": ("weight: 50, seconds: 60", "weight: 50, seconds: 0", "plans[0].steps[1].seconds"),
    "alpha of one half": ("- name: standard", "- name: standard\n    alpha: 0.5", "plans[0].alpha"),
    "effect within the margin": ("effect: 2", "effect: 2, margin: 2", "plans[0].metrics[0].effect"),
    "a margin below 1": ("effect: 2", "effect: 2, margin: 0.9", "plans[0].metrics[0].margin"),
    "a metric twice": (
        "metrics:",
        "metrics:\n      - {kind: errors, effect: 3}",
        "plans[0].metrics[1].kind",
    ),
    "too short a life": (
        "- name: standard",
        "- name: standard\n    maximumAgeSeconds: 120",
        "plans[0].maximumAgeSeconds",
    ),
    "a window of nothing": (
        "name: production",
        "name: production\n    freezeWindows: [{name: x}]",
        "environments[0].freezeWindows[0]",
    ),
    "a window without an offset": (
        "name: production",
        'name: production\n    freezeWindows: [{name: x, start: "2026-12-20T00:00:00", end: "2027-01-01T00:00:00Z"}]',
        "environments[0].freezeWindows[0].start",
    ),
    "a window backwards": (
        "name: production",
        'name: production\n    freezeWindows: [{name: x, start: "2027-12-20T00:00:00Z", end: "2027-01-01T00:00:00Z"}]',
        "environments[0].freezeWindows[0].end",
    ),
    "a window over midnight": (
        "name: production",
        'name: production\n    freezeWindows: [{name: x, days: [monday], after: "22:00", before: "06:00"}]',
        "environments[0].freezeWindows[0]",
    ),
    "a gate without a limit": (
        "name: production",
        "name: production\n    gates: [{metric: accuracy}]",
        "environments[0].gates[0]",
    ),
}


@pytest.mark.parametrize("case", BAD_ENVIRONMENTS)
def test_bad_environments_are_refused_at_their_place(case) -> None:
    """What cannot be accepted in environments.yaml is refused with its pointer, place and mend."""
    old, new, pointer = BAD_ENVIRONMENTS[case]
    assert pointer in problems(environments, old, new)


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    """One run names every problem, of the schema and beyond it, sorted by line, with the nearest known name."""
    text = MODEL.replace("kind: Model", "kind: Modle").replace("[src]", "[../x]").replace("training:", "trainning:")
    with pytest.raises(InvalidInput) as caught:
        load_model(text.encode(), "a/mlgitops.yaml")
    found = caught.value.problems
    assert [one.line for one in found] == sorted(one.line or 0 for one in found)
    assert {one.pointer for one in found} == {"kind", "inputs[0]", "trainning", None}
    assert [one.mend for one in found if one.pointer == "trainning"] == ["did you mean training?"]
    assert {one.path for one in found} == {"a/mlgitops.yaml"}


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_numbers_that_are_not_finite_are_refused(value: str) -> None:
    """NaN and infinity never reach a limit, where NaN would pass every comparison."""
    with pytest.raises(InvalidInput):
        model("task: c", f"gates: [{{metric: a, minimum: {value}}}]\n  task: c")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"text", b"apiVersion: 1\nkind: []\n", b"{}", b"training: 5\ninputs: 7\n"]
)
@pytest.mark.parametrize("load", [load_model, load_environments, lambda data: load_rollout(data, "r")])
def test_documents_of_another_shape_are_refused(load, data: bytes) -> None:
    """A file that is no mapping, or whose parts have other types, is refused without a traceback."""
    with pytest.raises(InvalidInput):
        load(data)


@pytest.mark.parametrize("name", ["model", "environments"])
def test_documents_with_any_part_replaced_never_crash(name: str) -> None:
    """Whatever stands where a mapping, list or scalar is expected, the answer is a value or InvalidInput."""
    load = {"model": load_model, "environments": load_environments}[name]

    def replaced(node, path=()):
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            former = node[key]
            others: tuple[Any, ...] = (None, "x", [{}], {"a": []})
            for other in others:
                node[key] = other
                yield (*path, key)
            node[key] = former
            yield from replaced(former, (*path, key))

    document = schema(name)["examples"][-1]
    document = json.loads(json.dumps(document))
    for _ in replaced(document):
        with contextlib.suppress(InvalidInput):
            load(json.dumps(document).encode())


def test_values_of_variables_are_not_repeated_in_problems() -> None:
    """A secret that somebody wrote as a variable's value is not in the error."""
    text = MODEL.replace("script: train.py", "script: train.py\n  environment: {TF_CONFIG: hunter2, A: [hunter2]}")
    with pytest.raises(InvalidInput) as caught:
        load_model(text.encode())
    assert "hunter2" not in str(caught.value) + "".join(one.mend or "" for one in caught.value.problems)
