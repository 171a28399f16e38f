"""Who a process is, where its data is, and what it reports: all without TensorFlow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlgitops import training
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.training.artifact import Artifact, artifact_digest
from mlgitops.training.loop import parse_line
from mlgitops.training.result import LIMIT_BYTES, fit_message
from mlgitops.training.task import parse_task

CHIEF_AND_WORKERS = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}


def configuration(cluster, kind, index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief", "workers"),
    [
        (CHIEF_AND_WORKERS, "chief", 0, True, 3),
        (CHIEF_AND_WORKERS, "worker", 0, False, 3),
        ({"worker": ["a:1", "b:1"]}, "worker", 0, True, 2),
        ({"worker": ["a:1", "b:1"]}, "worker", 1, False, 2),
        ({"master": ["a:1"], "worker": ["b:1"]}, "master", 0, True, 2),
        (CHIEF_AND_WORKERS, "evaluator", 0, False, 3),
    ],
)
def test_one_replica_is_the_chief(cluster, kind: str, index: int, chief: bool, workers: int) -> None:
    """The chief is the role of that name, else worker 0, as the operator decides success."""
    found = parse_task(configuration(cluster, kind, index))
    assert (found.chief, found.workers) == (chief, workers)
    assert found.distributed is (kind != "evaluator")


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_a_process_alone_is_its_own_chief(text: str | None) -> None:
    """Without TF_CONFIG a script runs by itself and writes what it yields."""
    found = parse_task(text)
    assert found.chief
    assert not found.distributed


@pytest.mark.parametrize("text", ["[1]", "no json", '{"cluster": 3}', configuration({"worker": ["a:1"]}, "worker", 4)])
def test_broken_configurations_are_refused(text) -> None:
    """TF_CONFIG that cannot be meant is an error that names it."""
    with pytest.raises(InvalidInput, match="TF_CONFIG"):
        parse_task(text)


def test_uris_resolve_to_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is where MLGITOPS_MOUNTS says, else where a pod mounts it; files are themselves."""
    assert str(training.resolve("pvc://store/data/a b")) == "/mnt/store/data/a b"
    assert str(training.resolve("file:///data/a%20b")) == "/data/a b"
    assert str(training.resolve("/plain")) == "/plain"
    monkeypatch.setenv("MLGITOPS_MOUNTS", json.dumps({"store": "/srv/store"}))
    assert str(training.resolve("pvc://store/data")) == "/srv/store/data"


@pytest.mark.parametrize("uri", ["pvc://store/../etc", "pvc:///x", "s3://bucket/x", "file://host/x"])
def test_hostile_uris_are_refused(uri: str) -> None:
    """No URI leaves its claim, and unknown schemes are named."""
    with pytest.raises(InvalidInput):
        training.resolve(uri)


def test_data_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing variable and missing data are told apart before any training starts."""
    with pytest.raises(InvalidInput, match="MLGITOPS_DATA_URI is not set"):
        training.data_path()
    monkeypatch.setenv("MLGITOPS_DATA_URI", str(tmp_path / "nothing"))
    with pytest.raises(NotFound):
        training.data_path()
    (tmp_path / "nothing").touch()
    assert training.data_path() == tmp_path / "nothing"


def history(epochs):
    return [{"epoch": one + 1, "loss": 1 / (one + 1), "accuracy": one / epochs} for one in range(epochs)]


def test_short_results_are_whole() -> None:
    """A result that fits is reported with all of its history."""
    found = fit_message({"metrics": {"accuracy": 0.9}}, history(10))
    assert found == {"metrics": {"accuracy": 0.9}, "history": history(10)}


@pytest.mark.parametrize("epochs", [100, 500, 5000])
def test_long_results_are_thinned_out(epochs: int) -> None:
    """Within 4,096 bytes the first and last epochs stay, and the message says that it is cut."""
    found = fit_message({"metrics": {"accuracy": 0.9}}, history(epochs))
    assert len(json.dumps(found, separators=(",", ":")).encode()) <= LIMIT_BYTES
    assert found["truncated"] is True
    assert (found["history"][0]["epoch"], found["history"][-1]["epoch"]) == (1, epochs)
    assert found["metrics"] == {"accuracy": 0.9}


def test_metrics_are_never_dropped_silently() -> None:
    """Metrics that alone exceed the limit are an error, not a shorter result."""
    with pytest.raises(InvalidInput, match="fewer metrics"):
        fit_message({"metrics": {f"metric-{one}": 0.123456 for one in range(500)}}, [])


def artifact(tmp_path: Path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"model")
    return Artifact(uri="pvc://store/models/a", digest=str(artifact_digest(tmp_path)), path=tmp_path)


def test_report_writes_the_termination_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is one JSON object with metrics, artifact and history; NaN becomes null and is named."""
    monkeypatch.setenv("MLGITOPS_TERMINATION_LOG", str(tmp_path / "log"))
    one = artifact(tmp_path)
    training.report({"accuracy": float(np.float32(0.5)), "loss": float("nan")}, history=history(1), artifact=one)
    assert json.loads((tmp_path / "log").read_text()) == {
        "metrics": {"accuracy": 0.5, "loss": None},
        "nonFinite": ["loss"],
        "artifact": {"uri": "pvc://store/models/a", "digest": one.digest},
        "history": history(1),
    }


def test_only_the_chief_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's call writes nothing, so the chief's result stands."""
    monkeypatch.setenv("MLGITOPS_TERMINATION_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("TF_CONFIG", configuration(CHIEF_AND_WORKERS, "worker", 1))
    assert training.report({"accuracy": 1.0}, artifact=artifact(tmp_path)) is None
    assert not (tmp_path / "log").exists()


def test_report_without_an_export_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result needs a model."""
    monkeypatch.setenv("MLGITOPS_OUTPUT_URI", str(tmp_path / "output"))
    with pytest.raises(InvalidInput, match="export"):
        training.report({"accuracy": 1.0})


def test_digest_is_that_of_the_store(tmp_path: Path) -> None:
    """Training, store and servers name the same files by the same digest."""
    from mlgitops.adapters.files import directory_digest

    artifact(tmp_path)
    assert artifact_digest(tmp_path) == directory_digest(tmp_path)


def test_failures_end_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that is foreseen ends the script with status 1 and its reason, not with a traceback."""
    monkeypatch.setenv("MLGITOPS_TERMINATION_LOG", str(tmp_path / "log"))

    def main():
        raise training.NonFiniteLoss(epoch=3, step=7, loss=float("nan"))

    with pytest.raises(SystemExit) as ended:
        training.run(main)
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("Error: the loss became nan in epoch 3 at step 7")
    assert "epoch 3" in json.loads((tmp_path / "log").read_text())["error"]


def test_progress_lines_are_read_back() -> None:
    """A line of the log that tells of an epoch is told from every other line."""
    assert parse_line('{"mlgitops":{"epoch":2,"loss":0.5}}') == {"epoch": 2, "loss": 0.5}
    assert [parse_line(one) for one in ("epoch 2", '{"mlgitops":', '{"mlgitops":{}}', '{"a":1}')] == [None] * 4


def test_import_needs_no_tensorflow() -> None:
    """Importing the library loads neither TensorFlow nor numpy."""
    code = (
        "import sys, mlgitops.training; print([one for one in ('tensorflow', 'keras', 'numpy') if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"
