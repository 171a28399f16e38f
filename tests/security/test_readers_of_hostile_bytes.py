"""Every reader of what others wrote, fed with any bytes: a value or a refusal, soon, and nothing else.

`make test` gives each some dozens of inputs, `make test-long` some hundreds, always the same ones.
"""

import ast
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from mlgitops.adapters.cluster import kustomize
from mlgitops.adapters.metrics.scraper import parse
from mlgitops.adapters.repository import trees
from mlgitops.adapters.repository.commits import clean_person, parse_trailers, render_message
from mlgitops.adapters.repository.location import parse_location
from mlgitops.adapters.serving import protocol
from mlgitops.adapters.serving.outcomes import parse_label, predictions
from mlgitops.adapters.serving.protocol_json import parse_object
from mlgitops.adapters.serving.routing import Configuration
from mlgitops.core.configuration import canonical
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.ledger import Ledger
from mlgitops.core.loaders.source import path_fault
from mlgitops.core.loading import (
    load_environments,
    load_model,
    load_rollout,
    read_environment_names,
    read_promotion,
)
from mlgitops.core.manifest.edit import SetScalar, edit
from mlgitops.core.manifest.lint.tree import lint_tree
from mlgitops.core.manifest.owned import edit_route, listed_resources, read_route, read_service, read_tfjob
from mlgitops.core.manifest.read import read_documents
from mlgitops.core.notebook import convert
from mlgitops.core.release import Release
from mlgitops.core.rollout import Rollout
from mlgitops.ports.repository import Person
from tests.security.hostile import hostile, only_plain, survives
from tests.support.values import proposal, submission
from tests.support.world import CONFIGURATION, ENVIRONMENTS
from tests.unit.test_notebook import code, markdown, notebook

GOLDEN = Path(__file__).parent.parent / "golden"
MANIFESTS = [path.read_bytes() for path in sorted(GOLDEN.glob("*.yaml"))]
ROLLOUT = (GOLDEN / "rollout.yaml").read_bytes()
NOTEBOOK = notebook(markdown(["# Digits\n"]), code(["import math\n", "x = 1"]), code("%ls", "skip"))
EXPOSITION = b"""\
# TYPE mlgitops_router_info gauge
mlgitops_router_info{epoch="a1"} 1
# TYPE mlgitops_requests_total counter
mlgitops_requests_total{environment="p",model="d",cohort="1-0",arm="canary",release="r",outcome="failed"} 3
# TYPE mlgitops_request_seconds histogram
mlgitops_request_seconds_bucket{environment="p",model="d",cohort="1-0",arm="canary",release="r",le="0.1"} 3
"""
V1 = b'{"instances": [[1, 2.5], [3, 4]], "signature_name": "serving_default"}'
V2 = b'{"id": "a", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}'
BYTES = b'{"instances": [[{"b64": "YQ=="}], ["a"]]}'
SPECS = [protocol.TensorSpec(name="x", datatype=one, shape=(None, 2)) for one in ("FP32", "INT64", "BOOL")]
ANSWERS = [
    b'{"predictions": [[0.1, 0.9], [1, 0]]}',
    b'{"outputs": [{"name": "y", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]}]}',
]
ROUTES = [b'{"routes": [{"environment": "p", "model": "d", "cohort": "1-0", "backends": [], "tolerance": null}]}']


def ledger_of(files: dict[str, bytes]) -> Ledger:
    return Ledger(files.get, lambda folder: sorted(one for one in files if one.startswith(folder + "/")), "a" * 40)


def read_ledger(data: bytes) -> object:
    files = {
        "ledger.yaml": data,
        "models/digits/releases/0123456789ab.yaml": data,
        "models/digits/last-submitted": data,
        "environments/production/digits/state.yaml": data,
        "environments/staging/digits/rollouts/00001.yaml": data,
        "environments/staging/digits/decisions/00001.json": data,
    }
    ledger = ledger_of(files)
    reads: list[Callable[[], object]] = [
        lambda: ledger.release("digits", "0123456789ab"),
        lambda: ledger.last_submitted("digits"),
        lambda: ledger.state("production", "digits"),
        lambda: ledger.state("staging", "digits"),
        lambda: ledger.decision("staging", "digits", "00001"),
    ]
    for read in reads:
        with contextlib.suppress(MlgitopsError):
            read()
    return None


def ledger_files() -> list[bytes]:
    release, rollout = Release(submission=submission()), Rollout(proposal=proposal())
    state = {"generation": 1, "decidedOn": "", "lastRollout": 0, "projections": {}, "resumedAt": ""}
    approvals = [{"rollout": 1, "release": "r", "plan_digest": "p", "by": "Ada", "at": "2026-11-30T12:00:00Z"}]
    values = [release.to_mapping(), rollout.to_mapping(), {**state, "approvals": approvals}]
    return [yaml.safe_dump(one).encode() for one in values] + [b'{"metrics": [1, NaN]}']


def built(data: bytes) -> object:
    folder = "environments/production/digits"
    files = {f"{folder}/kustomization.yaml": data, f"{folder}/inferenceservice.yaml": data}
    kustomization = b"resources: [inferenceservice.yaml]\nnamespace: production\n"
    with contextlib.suppress(MlgitopsError):
        kustomize.build({**files, f"{folder}/kustomization.yaml": kustomization}.get, folder)
    return kustomize.build(files.get, folder)


def linted(data: bytes) -> object:
    folder = "environments/production/digits"
    names = ("kustomization.yaml", "inferenceservice.yaml", "route.yaml", "rollout.yaml", "generation")
    files = {f"{folder}/{name}": data for name in names} | {"environments.yaml": ENVIRONMENTS.encode()}
    files["environments/training/digits/tfjob.yaml"] = data
    return list(lint_tree(files.get, files))


def manifest(data: bytes) -> object:
    for read in (read_tfjob, read_service, read_route, listed_resources):
        with contextlib.suppress(MlgitopsError):
            read(data, "file.yaml")
    with contextlib.suppress(MlgitopsError):
        edit_route(data, "file.yaml", read_route((GOLDEN / "route.yaml").read_bytes(), "route.yaml"))
    return None


def spliced(data: bytes) -> object:
    """Edit a value, and see that only it changed."""
    before = [one.value for one in read_documents(data, "file.yaml")]
    if not isinstance(before[0], dict) or not before[0]:
        return None
    key = next(iter(before[0]))
    after = read_documents(edit(data, "file.yaml", [SetScalar(pointer=(key,), value="new")]), "file.yaml")
    assert [one.value for one in after] == [{**before[0], key: "new"}, *before[1:]]
    return None


def values_of(data: bytes) -> object:
    documents = read_documents(data, "file.yaml")
    assert all(only_plain(one.value) for one in documents)
    assert all(canonical(one.value) for one in documents)
    return documents


def script(data: bytes) -> object:
    written = convert(data, "train.ipynb")
    ast.parse(written.encode())  # as the interpreter reads the file, encoding cookies and all
    return written


def requested(data: bytes) -> object:
    refused: tuple[type[Exception], ...] = (protocol.RequestError,)
    for spec in SPECS:
        with contextlib.suppress(*refused):
            protocol.read_v1(data, [spec], "serving_default")
        with contextlib.suppress(*refused):
            protocol.read_v2(data, [spec], [spec])
    text = protocol.TensorSpec(name="x", datatype="BYTES", shape=None)
    with contextlib.suppress(*refused):
        protocol.read_v1(data, [text], "serving_default")
    with contextlib.suppress(*refused):
        protocol.read_v2(data, [text], [text])
    return None


def answered(data: bytes) -> object:
    for regression in (False, True):
        predictions(data, "/v1/models/d:predict", regression=regression)
        predictions(data, "/v2/models/d/infer", regression=regression)
    with contextlib.suppress(ValueError):
        parse_label(parse_object(data).get("label"))
    return None


def routed(data: bytes) -> object:
    with contextlib.suppress(ValueError):
        return Configuration.from_bytes(data)
    return None


def committed(data: bytes) -> object:
    text = data.decode(errors="surrogateescape")
    person = clean_person(Person(name=text, email=text))
    assert person == clean_person(person)
    if text.strip():
        with contextlib.suppress(MlgitopsError):
            message = render_message(text, {"Mlgitops-Generation": text})
            message.encode()
            assert set(parse_trailers(message)) == {"Mlgitops-Generation"}
            assert parse_trailers(render_message(text, {})) == {}
    return None


def located(data: bytes) -> object:
    found = parse_location(data.decode(errors="replace"))
    assert not found.host.startswith("-")
    return found


def placed(data: bytes) -> object:
    text = data.decode(errors="surrogateescape")
    if path_fault(text) is None:
        assert ".." not in text.split("/")
        assert not text.startswith(("/", "-"))
    if trees.path_fault(text) is None:
        assert ".." not in text.split("/")
        assert not text.startswith("/")
    with contextlib.suppress(MlgitopsError):
        trees.check_paths({text: b""})
    return None


READERS: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
    "mlgitops.yaml": (load_model.__wrapped__, [CONFIGURATION.encode()]),
    "environments.yaml": (load_environments.__wrapped__, [ENVIRONMENTS.encode()]),
    "names of environments": (read_environment_names.__wrapped__, [ENVIRONMENTS.encode()]),
    "rollout.yaml": (lambda data: load_rollout.__wrapped__(data, "rollout.yaml"), [ROLLOUT]),
    "promotion": (read_promotion.__wrapped__, [ROLLOUT]),
    "documents": (values_of, [*MANIFESTS, ENVIRONMENTS.encode()]),
    "splices": (spliced, MANIFESTS),
    "manifests": (manifest, MANIFESTS),
    "kustomizations": (built, MANIFESTS),
    "lint": (linted, MANIFESTS),
    "ledger": (read_ledger, ledger_files()),
    "notebooks": (script, [NOTEBOOK]),
    "requests": (requested, [V1, V2, BYTES]),
    "answers and labels": (answered, ANSWERS),
    "routes": (routed, ROUTES),
    "expositions": (lambda data: parse(data.decode(errors="replace")), [EXPOSITION]),
    "commit messages": (committed, [b"subject\n\nbody\n\nA: b\n"]),
    "locations": (located, [b"https://u:p@host:443/a.git?x=1#frag", b"git@host:a/b.git", b"ssh://-oProxy=x/a"]),
    "paths": (placed, [b"a/b.yaml", b"a/../../b", b".git/config"]),
}


def feed(name: str, examples: int) -> None:
    """Feed one reader with so many inputs, the same ones at each run."""
    read, seeds = READERS[name]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
    )
    @given(data=hostile(seeds))
    def one(data: bytes) -> None:
        survives(read, data)

    one()


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_a_value_or_a_refusal(name: str) -> None:
    """Whatever bytes a reader is given, it answers with a value or in words, within its time, and builds no object."""
    feed(name, 40)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_a_value_or_a_refusal_for_longer(name: str) -> None:
    """The same holds for many more inputs."""
    feed(name, 500)
