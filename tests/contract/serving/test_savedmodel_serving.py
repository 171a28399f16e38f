"""A real SavedModel behind the real server."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.files import directory_digest
from mlgitops.adapters.loopback import call

pytestmark = pytest.mark.tensorflow

EXPORT = """
import sys
import tensorflow as tf
class Model(tf.Module):
    def __init__(self):
        self.weights = tf.Variable([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(self, x):
        scores = x @ self.weights
        # As a model that normalises by its input's spread does: zeros have none.
        return {"scores": scores / tf.reduce_max(tf.abs(x)), "class": tf.argmax(scores, axis=1)}
model = Model()
tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    subprocess.run([sys.executable, "-c", EXPORT, str(folder / "1")], check=True, capture_output=True)
    return folder


def command(folder: Path, digest: str, ready: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "mlgitops.adapters.serving.server", "--model", "digits", "--release", "aaaaaaaaaaaa"),
        *("--artifact-dir", str(folder), "--artifact-digest", digest, "--ready-file", str(ready)),
    ]


def test_a_savedmodel_answers_both_protocols_and_ends_when_told(artifact: Path, tmp_path: Path) -> None:
    """The documented command serves a SavedModel, says its port and digest, and ends with exit code 0 on SIGTERM."""
    digest, ready = directory_digest(artifact).value, tmp_path / "ready"
    process = subprocess.Popen(command(artifact, digest, ready), stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        said = json.loads(ready.read_text())
        assert (said["ready"], said["artifact_digest"], said["version"]) == (True, digest, "1")
        body = b'{"instances": [[4, 1], [1, 4]]}'
        answer = call(said["port"], "POST", "/v1/models/digits:predict", service="server", body=body)
        assert json.loads(answer.body) == {
            "predictions": [{"class": 0, "scores": [1.0, 0.25, 0.0]}, {"class": 1, "scores": [0.25, 1.0, 0.0]}]
        }
        body = b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 4]}]}'
        answer = call(said["port"], "POST", "/v2/models/digits/infer", service="server", body=body)
        assert {"name": "class", "shape": [1], "datatype": "INT64", "data": [1]} in json.loads(answer.body)["outputs"]
        answer = call(
            said["port"], "POST", "/v1/models/digits:predict", service="server", body=b'{"instances": [[0, 0]]}'
        )
        assert (answer.status, "NaN" in answer.body.decode()) == (500, True)
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_a_layout_without_an_integer_version_is_refused(artifact: Path, tmp_path: Path) -> None:
    """TensorFlow Serving would wait for ever; this server says what is missing and exits with 3."""
    folder = tmp_path / "artifact"
    (folder / "v1").mkdir(parents=True)
    (folder / "v1" / "saved_model.pb").write_bytes((artifact / "1" / "saved_model.pb").read_bytes())
    ready = tmp_path / "ready"
    done = subprocess.run(
        command(folder, directory_digest(folder).value, ready), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "<integer>/saved_model.pb" in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads(ready.read_text())["reason"] in done.stderr


def test_other_bytes_are_refused_before_they_are_loaded(artifact: Path, tmp_path: Path) -> None:
    """A model whose digest is not the promised one is not loaded: exit code 1 and both digests."""
    ready, wrong = tmp_path / "ready", "sha256:" + "0" * 64
    done = subprocess.run(command(artifact, wrong, ready), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert wrong in done.stderr
    assert directory_digest(artifact).value in done.stderr
    assert json.loads(ready.read_text())["ready"] is False
