"""A model is data: nothing of it runs before it was read, and what runs then has nobody to talk to."""

import json
import pickle
import socket
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mlgitops.adapters.evaluator.artifact import Refused, inspect
from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
from mlgitops.adapters.files import directory_digest
from mlgitops.adapters.isolation import can_leave_network
from mlgitops.adapters.serving import server
from mlgitops.core.errors import DigestMismatch, InvalidInput
from mlgitops.ports.evaluator import EvaluationRequest

WAIT_SECONDS = 60.0
ROOT = Path(__file__).parents[2]
REACHES = """
    import json, pathlib, socket, subprocess, sys
    sys.path.insert(0, ROOT)
    request = pathlib.Path(sys.argv[1])
    def reached(port):
        with socket.socket() as one:
            one.settimeout(2)
            return one.connect_ex(("127.0.0.1", port)) == 0
    outside = reached(PORT)
    with socket.create_server(("127.0.0.1", 0)) as own:  # the model server that is probed listens there
        inside = reached(own.getsockname()[1])
    inherited = subprocess.run([sys.executable, "-c", OTHER], capture_output=True).returncode
    report = {"outside": outside, "inside": inside, "inherited": inherited}
    answer = {"report": report, "error": "", "refused": []}
    (request.parent / "result.json").write_text(json.dumps(answer))
"""


def evaluated(folder: Path, script: str):
    worker = folder / "worker.py"
    worker.write_text(textwrap.dedent(script))
    one = EmbeddedEvaluator(folder / "home", lambda uri: Path(uri[7:]), worker=(sys.executable, str(worker)))
    asked = EvaluationRequest(
        key="first",
        candidate_uri="file:///candidate",
        candidate_digest=None,
        champion_uri=None,
        champion_digest=None,
        data_uri="file:///data.npz",
        specification={"task": "classification"},
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if outcome := one.evaluate(asked):
            return outcome
        time.sleep(0.05)
    return pytest.fail("no outcome in time")


def test_an_evaluation_has_nobody_to_talk_to(tmp_path: Path) -> None:
    """A model, or a metric command, reaches no server of this machine or elsewhere; only what it started itself."""
    if not can_leave_network():
        pytest.skip("this machine gives no process a network of its own")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        other = f"import socket; raise SystemExit(socket.socket().connect_ex(('127.0.0.1', {port})))"
        script = REACHES.replace("PORT", str(port)).replace("OTHER", repr(other)).replace("ROOT", repr(str(ROOT)))
        report = evaluated(tmp_path, script).report
    assert report is not None
    assert (report["outside"], report["inside"]) == (False, True)
    assert report["inherited"] != 0


class Attack:
    """What a pickle may be."""

    def __reduce__(self):
        return print, ("owned",)


def model(folder: Path, **files: bytes) -> dict[str, object]:
    (folder / "1" / "assets").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"")
    for name, data in files.items():
        (folder / "1" / "assets" / name.replace("_", ".")).write_bytes(data)
    return {"uri": "pvc://store/model", "path": str(folder), "digest": None}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["vocabulary_txt", "model_pkl"])
def test_a_pickle_is_refused_whatever_it_is_called(tmp_path: Path, name: str, protocol: int) -> None:
    """A file that runs code where it is read is refused by name, before anything of the model is looked at."""
    given = model(tmp_path, **{name: pickle.dumps(Attack(), protocol)})
    with pytest.raises(Refused, match=rf"run code when they are read.*1/assets/{name.replace('_', '.')}"):
        inspect(given)


@pytest.mark.parametrize("name", ["model_keras", "model_h5", "MODEL_JOBLIB"])
def test_keras_files_are_refused(tmp_path: Path, name: str) -> None:
    """Keras files, which may hold Python, are refused by name wherever they lie."""
    with pytest.raises(Refused, match="run code when they are read"):
        inspect(model(tmp_path, **{name: b"x"}))


@pytest.mark.tensorflow
def test_assets_that_only_look_like_it_pass(tmp_path: Path) -> None:
    """A vocabulary, also one that begins like a pickle, is no pickle."""
    with pytest.raises(Refused, match=r"saved_model\.pb"):  # this far, and no further: it is empty
        inspect(model(tmp_path, vocabulary_txt=b"a\nb\n", other_bin=b"\x80\x04 is how it begins"))


def test_bytes_that_change_while_they_are_loaded_are_not_served(tmp_path: Path) -> None:
    """A model that was good when its digest was taken and is another one when it was read is not served."""
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"good")
    expected = directory_digest(folder)

    def loader(artifact: Path, _version: int | None):
        (artifact / "1" / "saved_model.pb").write_bytes(b"evil")
        return object(), "1"

    with pytest.raises(DigestMismatch):
        server.load(folder, expected, 1, loader)


@pytest.mark.tensorflow
def test_the_server_reads_operations_itself(tmp_path: Path) -> None:
    """A model that nobody evaluated, named by a manifest that a person wrote, is refused before it is loaded."""
    import tensorflow as tf

    from mlgitops.adapters.serving.savedmodel import load

    target = tmp_path / "written"
    module = tf.Module()

    def serve(x):
        with tf.control_dependencies([tf.io.write_file(str(target), "x")]):
            return {"y": tf.identity(x)}

    signature = tf.function(serve).get_concrete_function(tf.TensorSpec([None, 1], tf.float32, name="x"))
    tf.saved_model.save(module, str(tmp_path / "model" / "1"), signatures={"serving_default": signature})
    target.unlink(missing_ok=True)
    with pytest.raises(InvalidInput, match="WriteFile"):
        load(tmp_path / "model", None)
    assert not target.exists()


def test_an_evaluation_without_a_network_is_found_by_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a machine cannot cut evaluations off, `doctor` says so."""
    from mlgitops.local import machine

    monkeypatch.setattr(machine, "can_leave_network", lambda: False)
    (found,) = [one for one in machine.examine_machine(tmp_path) if one.check == "isolation"]
    assert found.outcome == "warning"
    assert json.dumps(found.to_mapping())
