"""What a client of one model server may rely on, whatever server it is."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.loopback import Answer, call
from tests.contract.serving.serving_kit import Engine, service

Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def ask(shared: Engine) -> Ask:
    uri, digest = shared.model(favours=1, fails_above=1000, nan_above=500)
    shared.apply("staging", service("digits", uri, digest))
    shared.until_ready("staging")
    port = json.loads((shared.home / "observation.json").read_text())["environments"]["staging"]["models"]["digits"][
        "baseline"
    ]["port"]

    def asked(method: str, path: str, value: Any = None) -> Answer:
        body = value if isinstance(value, bytes) else None if value is None else json.dumps(value).encode()
        return call(port, method, path, service="server", body=body, timeout_seconds=20)

    return asked


def tensor(**changes: Any) -> dict[str, Any]:
    one = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0], **changes}
    return {"inputs": [one]}


V1 = "/v1/models/digits:predict"
V2 = "/v2/models/digits/infer"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/models", {"models": ["digits"]}),
        ("/v1/models/digits", {"name": "digits", "ready": True}),
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/digits/ready", {"name": "digits", "ready": True}),
    ],
)
def test_health_and_readiness_are_told(ask: Ask, path: str, expected: Any) -> None:
    """Every health address of both protocols answers in its protocol's words."""
    answer = ask("GET", path)
    assert (answer.status, json.loads(answer.body)) == (200, expected)


def test_v2_metadata_describes_the_signature(ask: Ask) -> None:
    """A client learns names, datatypes and shapes of the signature from the model's metadata."""
    value = json.loads(ask("GET", "/v2/models/digits").body)
    assert value["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert value["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}]


@pytest.mark.parametrize("rows", [[[1, 2]], [[1, 2], [3, 4]], [{"x": [1, 2]}]])
def test_v1_answers_one_prediction_per_instance(ask: Ask, rows: Any) -> None:
    """V1 answers every instance, given as values or by input name, in order."""
    answer = ask("POST", V1, {"instances": rows})
    assert json.loads(answer.body) == {"predictions": [[0.0, 1.0, 0.0]] * len(rows)}


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
def test_v2_answers_with_shape_and_datatype(ask: Ask, data: Any) -> None:
    """V2 takes flat and nested data, and gives the client's id, shapes and datatypes back."""
    answer = ask("POST", V2, {"id": "mine", **tensor(shape=[2, 2], data=data)})
    value = json.loads(answer.body)
    assert value["id"] == "mine"
    assert value["outputs"] == [
        {"name": "scores", "shape": [2, 3], "datatype": "FP32", "data": [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]}
    ]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (V1, b"{", 400),
        (V1, b"\xff\xfe", 400),
        (V1, b'{"instances": [[NaN, 1]]}', 400),
        (V1, b'{"instances": [[1e999, 1]]}', 400),
        (V1, b"[" * 100_000, 400),
        (V1, [], 400),
        (V1, {}, 400),
        (V1, {"instances": []}, 400),
        (V1, {"instances": [[1]]}, 400),
        (V1, {"instances": [[1, 2], [3]]}, 400),
        (V1, {"instances": [["1", "2"]]}, 400),
        (V1, {"instances": [[None, 2]]}, 400),
        (V1, {"instances": [[1e300, 2]]}, 400),
        (V1, {"instances": [{"y": [1, 2]}]}, 400),
        (V1, {"instances": [{"x": [1, 2]}, 3]}, 400),
        (V1, {"instances": [[1, 2]], "signature_name": "other"}, 400),
        (V1, b" " * (16 * 1024 * 1024 + 1), 413),
        ("/v1/models/other:predict", {"instances": [[1, 2]]}, 404),
        (V2, tensor(datatype="FP64"), 400),
        (V2, tensor(shape=[2, 2]), 400),
        (V2, tensor(shape=[-1, 2]), 400),
        (V2, tensor(shape=[2, 1]), 400),
        (V2, tensor(name="y"), 400),
        (V2, {"inputs": [*tensor()["inputs"], *tensor()["inputs"]]}, 400),
        (V2, {**tensor(), "outputs": [{"name": "nope"}]}, 400),
        (V2, {**tensor(), "id": 5}, 400),
        ("/v2/models/other/infer", tensor(), 404),
        ("/v3", {}, 404),
    ],
)
def test_malformed_requests_get_the_protocols_error(ask: Ask, path: str, body: Any, status: int) -> None:
    """A request at fault is answered with 4xx and a JSON error that says why, never with 500."""
    answer = ask("POST", path, body)
    assert answer.status == status
    assert json.loads(answer.body)["error"]


def test_refused_requests_are_not_the_models_failures(ask: Ask) -> None:
    """The server counts a malformed request as refused and a raised error as failed."""

    def counts() -> dict[str, float]:
        text = ask("GET", "/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith("mlgitops_server_requests_total")]
        return {
            part: math.fsum(float(x.rsplit(" ", 1)[1]) for x in lines if part in x) for part in ("refused", "failed")
        }

    before = counts()
    ask("POST", V1, {"instances": [[1]]})
    ask("POST", V1, {"instances": [[2000, 2]]})
    after = counts()
    assert (after["refused"] - before["refused"], after["failed"] - before["failed"]) == (1, 1)


@pytest.mark.parametrize(("value", "word"), [(2000, "ordered to fail"), (600, "NaN")])
def test_a_fault_of_the_model_is_500(ask: Ask, value: float, word: str) -> None:
    """A raised error and an output that is not finite are the model's fault, told as JSON."""
    answer = ask("POST", V1, {"instances": [[value, 2]]})
    assert answer.status == 500
    assert word in json.loads(answer.body)["error"]


def test_a_server_binds_the_loopback_interface_only(ask: Ask, shared: Engine) -> None:
    """Nobody outside this machine reaches a model server or the router."""
    del ask
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{shared.controller.router_port:04X}"
    addresses = {row[1].split(":")[0] for row in listening if row[1].endswith(f":{port}") and row[3] == "0A"}
    assert addresses == {"0100007F"}
