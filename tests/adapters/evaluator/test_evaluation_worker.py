"""Evaluating real SavedModels: what is refused before loading, what is measured, what the server answers."""

import json
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from mlgitops.adapters.evaluator import worker
from mlgitops.adapters.evaluator.artifact import Refused, version_of
from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
from mlgitops.adapters.files import directory_digest
from mlgitops.core.configuration import Gate
from mlgitops.core.errors import InvalidInput
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.schemas import schema
from mlgitops.ports.evaluator import EvaluationRequest

EXAMPLES, FEATURES, CLASSES = 240, 6, 3


def save(folder: Path, weights, *, body=None, width=FEATURES, name: str = "x"):
    """Write a linear classifier; `body` may do something else to the inputs first."""
    import tensorflow as tf

    module = tf.Module()
    module.weights = tf.Variable(weights, dtype=tf.float32)

    def serve(**inputs):
        values = body(inputs[name]) if body else inputs[name]
        return {"probabilities": tf.nn.softmax(values @ module.weights)}

    signature = tf.function(serve).get_concrete_function(**{name: tf.TensorSpec([None, width], tf.float32, name=name)})
    tf.saved_model.save(module, str(folder / "1"), signatures={"serving_default": signature})
    (folder / "metadata.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def weights():
    return 3 * np.eye(FEATURES, CLASSES, dtype=np.float32)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, weights):
    return save(tmp_path_factory.mktemp("models") / "good", weights)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, weights):
    return save(tmp_path_factory.mktemp("models") / "bad", weights[::-1].copy())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory):
    generator = np.random.default_rng(5)
    x = generator.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    file = tmp_path_factory.mktemp("data") / "evaluation.npz"
    np.savez(file, x=x, y=x[:, :CLASSES].argmax(axis=1), hour=np.arange(EXAMPLES) % 24)
    return file


def evaluate(candidate, data, scratch, *, champion=None, digest=None, **specification):
    """Evaluate in this process, without a server."""
    return worker.evaluate(
        {
            "key": "test",
            "candidate": {"uri": "pvc://store/candidate", "path": str(candidate), "digest": digest},
            "champion": {"uri": "pvc://store/champion", "path": str(champion), "digest": None} if champion else None,
            "data": {"uri": "pvc://store/data", "path": str(data)},
            "source": None,
            "specification": {"task": "classification", **specification},
            "server": None,
        },
        scratch,
    )


@pytest.mark.tensorflow
def test_whole_evaluation_in_its_own_process(tmp_path: Path, good, bad, data) -> None:
    """Candidate and champion are evaluated on the same examples and the candidate answers a real request."""
    one = EmbeddedEvaluator(tmp_path / "home", Path)
    request = EvaluationRequest(
        key="release-1",
        candidate_uri=str(bad),
        candidate_digest=str(directory_digest(bad)),
        champion_uri=str(good),
        champion_digest=str(directory_digest(good)),
        data_uri=str(data),
        specification={"task": "classification", "slices": [{"name": "night", "key": "hour", "values": [0, 1, 23]}]},
    )
    deadline = time.monotonic() + 200
    while (outcome := one.evaluate(request)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert outcome is not None
    assert (outcome.error, outcome.refused) == ("", ())
    report = outcome.report
    assert report is not None
    jsonschema.Draft202012Validator(schema("evaluation-report")).validate(report)
    assert report["probe"]["status"] == 200
    assert report["probe"]["shape"] == [CLASSES]
    assert report["champion"]["metrics"]["accuracy"]["value"] == 1
    assert report["candidate"]["slices"]["night"]["examples"] == EXAMPLES / 8
    assert report["candidate"]["predictionsDigest"] != report["champion"]["predictionsDigest"]
    worse, low = judge_gates(
        report, [Gate(metric="accuracy", maximum_loss=0.02), Gate(metric="accuracy", minimum=0.9, slice="night")]
    )
    assert not worse.passed
    assert "worse than the champion's" in worse.reason
    assert not low.passed


@pytest.mark.tensorflow
def test_report_says_digest_and_is_repeatable(tmp_path: Path, good, data) -> None:
    """Without a digest beforehand the report tells it; the same evaluation gives the same numbers."""
    first, second = (evaluate(good, data, tmp_path)["report"]["candidate"] for _ in range(2))
    assert first["digest"] == str(directory_digest(good))
    assert first["metrics"] == second["metrics"]
    assert first["predictionsDigest"] == second["predictionsDigest"]


@pytest.mark.tensorflow
def test_other_bytes_are_refused(tmp_path: Path, good, data) -> None:
    """A model whose files are not those of the release is refused before it is loaded."""
    result = evaluate(good, data, tmp_path, digest="sha256:" + "0" * 64)
    assert result["report"] is None
    assert "expected sha256:0000" in result["refused"][0]


@pytest.mark.tensorflow
def test_file_writing_model_is_refused_before_it_runs(tmp_path: Path, weights, data) -> None:
    """A model that would write a file is refused by name of the operation, and the file is not written."""
    import tensorflow as tf

    target = tmp_path / "written"

    def body(values):
        with tf.control_dependencies([tf.io.write_file(str(target), "x")]):
            return tf.identity(values)

    model = save(tmp_path / "model", weights, body=body)
    target.unlink(missing_ok=True)
    result = evaluate(model, data, tmp_path)
    assert "WriteFile (1)" in result["refused"][0]
    assert not target.exists()


@pytest.mark.tensorflow
def test_initialiser_that_reads_files_is_refused(tmp_path: Path, weights, data) -> None:
    """What would run at load, before any request, is found as well."""
    import tensorflow as tf

    module = tf.Module()
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a\nb\n")
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(vocabulary),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        -1,
    )
    signature = tf.function(lambda x: {"y": module.table.lookup(x)}).get_concrete_function(
        x=tf.TensorSpec([None], tf.string, name="x")
    )
    tf.saved_model.save(module, str(tmp_path / "model" / "1"), signatures={"serving_default": signature})
    assert "InitializeTableFromTextFileV2" in evaluate(tmp_path / "model", data, tmp_path)["refused"][0]


@pytest.mark.tensorflow
def test_checkpoint_operations_outside_the_saver_are_refused(tmp_path: Path, weights, data) -> None:
    """SaveV2 is allowed where every export has it and refused in a signature, where it could write any file."""
    import tensorflow as tf

    def body(values):
        saved = tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "any"), tensor_names=["a"], shape_and_slices=[""], tensors=[values]
        )
        with tf.control_dependencies([saved]):
            return tf.identity(values)

    refused = evaluate(save(tmp_path / "model", weights, body=body), data, tmp_path)["refused"]
    assert "SaveV2 (1)" in refused[0]
    assert "RestoreV2" not in refused[0]


@pytest.mark.tensorflow
def test_python_functions_are_refused(tmp_path: Path, weights, data) -> None:
    """A graph that calls Python is refused: it would run code of whoever loads it."""
    import tensorflow as tf

    model = save(
        tmp_path / "model",
        weights,
        body=lambda values: tf.ensure_shape(tf.numpy_function(lambda one: one, [values], tf.float32), [None, FEATURES]),
    )
    assert "PyFunc" in evaluate(model, data, tmp_path)["refused"][0]


@pytest.mark.tensorflow
def test_clean_keras_export_is_accepted(tmp_path: Path, data) -> None:
    """What Keras exports, with normalisation and dropout, has nothing that is refused."""
    import keras

    layers = [keras.Input((FEATURES,), name="x"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)]
    model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)])
    model.export(str(tmp_path / "model" / "1"), format="tf_saved_model", verbose=False)
    result = evaluate(tmp_path / "model", data, tmp_path)
    assert result["refused"] == []
    assert result["report"]["candidate"]["scores"] == "logits"


@pytest.mark.tensorflow
def test_second_form_of_the_graph_is_refused(tmp_path: Path, weights, data) -> None:
    """A text graph beside the scanned one could be loaded instead by another server."""
    model = save(tmp_path / "model", weights)
    (model / "1" / "saved_model.pbtxt").write_text("")
    assert "saved_model.pbtxt" in evaluate(model, data, tmp_path)["refused"][0]


@pytest.mark.tensorflow
def test_garbage_is_refused(tmp_path: Path, data) -> None:
    """A file that is no protobuf is a refusal with a reason, not a crash."""
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / "saved_model.pb").write_bytes(b"\xff" * 100)
    assert "no SavedModel" in evaluate(tmp_path / "model", data, tmp_path)["refused"][0]


@pytest.mark.tensorflow
def test_not_a_number_is_refused(tmp_path: Path, weights, data) -> None:
    """A model that answers NaN is refused whatever its other answers are."""
    import tensorflow as tf

    model = save(
        tmp_path / "model", weights, body=lambda values: tf.where(values > 3, tf.constant(float("nan")), values)
    )
    assert "answers are NaN or infinite" in evaluate(model, data, tmp_path)["refused"][0]


@pytest.mark.tensorflow
def test_candidate_must_accept_what_the_champion_accepted(tmp_path: Path, weights, good, data) -> None:
    """An input under another name breaks the champion's clients, so the candidate is refused."""
    model = save(tmp_path / "model", weights, name="pixels")
    result = evaluate(model, data, tmp_path, champion=good)
    assert any("input x of the champion" in one for one in result["refused"])
    assert result["report"]["compatibility"]["accepted"] is False


@pytest.mark.tensorflow
def test_broken_champion_is_told_and_does_not_refuse(tmp_path: Path, good, data) -> None:
    """A champion that cannot be evaluated is no fault of the candidate; limits against it fail all the same."""
    (tmp_path / "champion").mkdir()
    result = evaluate(good, data, tmp_path, champion=tmp_path / "champion")
    assert result["refused"] == []
    assert "1/saved_model.pb" in result["report"]["champion"]["error"]
    assert not judge_gates(result["report"], [Gate(metric="accuracy", maximum_loss=0.5)])[0].passed


@pytest.mark.tensorflow
def test_wrong_width_is_refused(tmp_path: Path, data) -> None:
    """A signature that does not fit the evaluation set is refused with both shapes."""
    result = evaluate(save(tmp_path / "model", np.eye(9, 3, dtype=np.float32), width=9), data, tmp_path)
    assert "[None, 9]" in result["refused"][0]


@pytest.mark.tensorflow
def test_own_command_is_marked(tmp_path: Path, good, data) -> None:
    """A user's command gets predictions and labels; its metrics are marked as its own."""
    script = (
        "import json, os, numpy; d = numpy.load(os.environ['MLGITOPS_PREDICTIONS']);"
        "print('words'); print(json.dumps({'profit': int((d['predictions'].argmax(1) == d['labels']).sum())}))"
    )
    result = evaluate(good, data, tmp_path, command=["python", "-c", script])
    assert result["report"]["selfReported"] == {
        "selfReported": True,
        "command": ["python", "-c", script],
        "metrics": {"profit": EXAMPLES},
        "error": None,
    }


@pytest.mark.tensorflow
@pytest.mark.parametrize("script", ["raise SystemExit(3)", "print('[1]')", "print('{\"a\": NaN}')", "pass"])
def test_own_command_that_fails_reports_nothing(tmp_path: Path, good, data, script: str) -> None:
    """A command that fails or prints no finite numbers has no metrics, and gates on them fail."""
    report = evaluate(good, data, tmp_path, command=["python", "-c", script])["report"]
    assert report["selfReported"]["metrics"] == {}
    assert report["selfReported"]["error"]
    assert not judge_gates(report, [Gate(metric="a", minimum=0)])[0].passed


@pytest.mark.parametrize("missing", ["x", "y", "hour"])
def test_missing_array_is_no_answer(tmp_path: Path, missing: str) -> None:
    """An evaluation set without a named array is an error that names what it has, not a refusal of the model."""
    arrays = {"x": np.zeros((3, FEATURES)), "y": np.zeros(3, dtype=int), "hour": np.zeros(3)}
    del arrays[missing]
    np.savez(tmp_path / "set.npz", allow_pickle=False, **arrays)
    slices = [{"name": "night", "key": "hour", "values": [0]}]
    result = evaluate(tmp_path, tmp_path / "set.npz", tmp_path, slices=slices)
    assert f"no array named {missing}" in result["error"]
    assert result["refused"] == []


def test_hostile_evaluation_set_is_no_answer(tmp_path: Path) -> None:
    """Pickled objects in an evaluation set are not loaded."""
    np.savez(tmp_path / "set.npz", x=np.array([{}, {}], dtype=object), y=np.zeros(2))
    assert "plain arrays" in evaluate(tmp_path, tmp_path / "set.npz", tmp_path)["error"]
    (tmp_path / "set.npz").write_bytes(b"PK\x03\x04 no archive")
    assert "no .npz file" in evaluate(tmp_path, tmp_path / "set.npz", tmp_path)["error"]


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([], "found no folders"),
        (["v1/saved_model.pb"], "found v1"),
        (["0.1/saved_model.pb"], "found 0.1"),
        (["01/saved_model.pb"], "found 01"),
        (["saved_model.pb"], "saved_model.pb itself"),
        (["1/variables/variables.index"], "found 1"),
        (["1/saved_model.pb", "2/saved_model.pb"], "several versions"),
    ],
)
def test_layouts_that_no_server_finds_are_refused(tmp_path: Path, paths, reason: str) -> None:
    """The model must be in exactly one folder with a whole number for a name."""
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    with pytest.raises(InvalidInput, match=reason):
        version_of(tmp_path)


def test_result_file_is_json_without_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's result never carries NaN, which JSON does not have."""
    monkeypatch.setattr(worker, "evaluate", lambda _request, _scratch: {"report": {"a": float("nan"), "b": [1.5]}})
    (tmp_path / "request.json").write_text("{}")
    worker.main([str(tmp_path / "request.json")])
    assert json.loads((tmp_path / "result.json").read_text()) == {"report": {"a": None, "b": [1.5]}}


def test_refused_carries_every_reason() -> None:
    """All reasons of a refusal are kept apart."""
    assert Refused("a", "b").reasons == ("a", "b")
