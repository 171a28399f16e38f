"""Training with real TensorFlow: a chief and a worker, restarts, and inputs shared out among workers."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgitops import training
from mlgitops.core.errors import InvalidInput
from mlgitops.training.loop import parse_line

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import sys, time
import numpy as np
from mlgitops import training

EPOCHS, PAUSE = int(sys.argv[1]), float(sys.argv[2])

def build():
    import tensorflow as tf

    class Linear(tf.Module):
        def __init__(self):
            self.weights = tf.Variable(tf.zeros([4, 3]))

        def __call__(self, x):
            time.sleep(0)
            return tf.nn.softmax(x @ self.weights)

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
        def serving_default(self, x):
            return {"probabilities": self(x / 10.0)}

    return Linear()

def main():
    x = np.random.default_rng(0).normal(size=(101, 4)).astype("f4")
    y = x[:, :3].argmax(1)
    if PAUSE:
        import mlgitops.training.loop as loop
        taken = loop._run_epoch
        loop._run_epoch = lambda *given: (time.sleep(PAUSE), taken(*given))[1]
    trained = training.fit(
        build, training.arrays(x, y, batch_size=20, seed=1), epochs=EPOCHS, optimizer="sgd",
        loss="sparse_categorical_crossentropy", metrics={"accuracy": "sparse_categorical_accuracy"},
    )
    artifact = training.export(trained.model, history=trained.history, parameters={"epochs": EPOCHS})
    training.report(trained.last, history=trained.history, artifact=artifact)

if __name__ == "__main__":
    training.run(main)
"""
LIMIT_SECONDS = 150


def port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


class Job:
    """A job's processes and what they leave behind."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "train.py").write_text(textwrap.dedent(SCRIPT))

    def start(self, name, *arguments, configuration=None):
        environment = {
            **os.environ,
            "MLGITOPS_OUTPUT_URI": "pvc://store/models/a",
            "MLGITOPS_CHECKPOINT_URI": "pvc://store/checkpoints/a",
            "MLGITOPS_MOUNTS": json.dumps({"store": str(self.folder / "store")}),
            "MLGITOPS_TERMINATION_LOG": str(self.folder / f"{name}.result"),
            "MLGITOPS_IMAGE": "example.org/a@sha256:" + "0" * 64,
            **({"TF_CONFIG": json.dumps(configuration)} if configuration else {}),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(self.folder / "train.py"), *map(str, arguments)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def epochs(self, name):
        log = self.folder / f"{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [found["epoch"] for line in lines if (found := parse_line(line))]

    def result(self, name):
        return json.loads((self.folder / f"{name}.result").read_text())

    @property
    def model(self):
        return self.folder / "store" / "models" / "a"


@pytest.fixture
def job(tmp_path: Path):
    return Job(tmp_path)


def end(*processes):
    try:
        return [one.wait(LIMIT_SECONDS) for one in processes]
    finally:
        for one in processes:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


def test_chief_and_worker_train_together(job) -> None:
    """Two processes train one model; the chief alone exports and reports, and its signature serves."""
    import tensorflow as tf

    cluster = {"chief": [f"127.0.0.1:{port()}"], "worker": [f"127.0.0.1:{port()}"]}
    processes = [
        job.start(kind, 3, 0, configuration={"cluster": cluster, "task": {"type": kind, "index": 0}})
        for kind in ("chief", "worker")
    ]
    assert end(*processes) == [0, 0], (job.folder / "chief.log").read_text()[-2000:]
    assert (job.epochs("chief"), job.epochs("worker")) == ([1, 2, 3], [])
    assert not (job.folder / "worker.result").exists()
    result = job.result("chief")
    assert result["artifact"]["uri"] == "pvc://store/models/a"
    assert result["metrics"]["accuracy"] == result["history"][-1]["accuracy"]
    metadata = json.loads((job.model / "metadata.json").read_text())
    assert metadata["framework"]["version"] == tf.__version__
    assert (metadata["parameters"], metadata["workers"]) == ({"epochs": 3}, 2)
    assert metadata["image"].startswith("example.org/a@sha256:")
    assert sorted(path.name for path in job.model.iterdir()) == ["1", "metadata.json"]
    served = tf.saved_model.load(str(job.model / "1")).signatures["serving_default"]
    answer = served(x=tf.zeros([2, 4]))["probabilities"].numpy()
    assert np.allclose(answer, 1 / 3)


def test_restart_goes_on_where_it_stopped(job) -> None:
    """A training that is killed does only the epochs that are left, and reports the whole history."""
    first = job.start("first", 5, 0.7)
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(job.epochs("first")) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = job.epochs("first")
    leftover = job.model / ".partial-dead"
    leftover.mkdir(parents=True)
    (leftover / "saved_model.pb").touch()
    assert end(job.start("second", 5, 0)) == [0]
    # An epoch may have been saved without being told of.
    assert job.epochs("second") in (list(range(len(done) + 1, 6)), list(range(len(done) + 2, 6)))
    assert [one["epoch"] for one in job.result("second")["history"]] == [1, 2, 3, 4, 5]
    assert not leftover.exists()


def collect(given, workers, epoch=0):
    """All examples that count in one epoch, by worker, and the number of batches of each."""
    found, batches = [], []
    for index in range(workers):
        share = training.pipeline.Share(epoch=epoch, index=index, workers=workers)
        rows = list(given.dataset(share, workers).as_numpy_iterator())
        batches.append(len(rows))
        found.append([int(label) for _, labels, weights in rows for label in labels[weights > 0]])
    return found, batches


@pytest.mark.parametrize(("examples", "workers", "batch"), [(17, 2, 4), (17, 3, 5), (2, 3, 8), (16, 1, 16), (1, 2, 1)])
def test_each_example_counts_once_and_steps_are_equal(examples: int, workers: int, batch: int) -> None:
    """Over all workers an epoch has every example once, and no worker takes more steps than another."""
    given = training.arrays(np.arange(examples)[:, np.newaxis], np.arange(examples), batch_size=batch, seed=3)
    found, batches = collect(given, workers)
    assert sorted(itertools.chain(*found)) == list(range(examples))
    assert set(batches) == {given.steps(workers, workers)}


def test_order_follows_seed_and_epoch() -> None:
    """The same seed gives the same order in every process; epochs and seeds differ."""

    def order(seed, epoch):
        given = training.arrays(np.arange(50)[:, np.newaxis], np.arange(50), seed=seed)
        return collect(given, 1, epoch)[0]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def records(folder: Path, examples, compression: str = ""):
    import tensorflow as tf

    options = tf.io.TFRecordOptions(compression_type=compression)
    for part in range(2):
        with tf.io.TFRecordWriter(str(folder / f"part-{part}.tfrecord"), options) as writer:
            for one in range(part, examples, 2):
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[one, one])),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[one])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return folder


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_shared_out(tmp_path: Path, compression: str) -> None:
    """TFRecord files are counted, and every record counts once over all workers."""
    form = {"x": ((2,), "float32"), "y": ((), "int64")}
    given = training.tfrecords(
        records(tmp_path, 13, compression), form, label="y", batch_size=4, seed=2, compression=compression
    )
    assert given.examples == 13
    found, batches = collect(given, 2)
    assert sorted(itertools.chain(*found)) == list(range(13))
    assert len(set(batches)) == 1


def test_cut_records_are_refused(tmp_path: Path) -> None:
    """A file that ends within a record is refused before training, not in its middle."""
    file = records(tmp_path, 4) / "part-1.tfrecord"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InvalidInput, match="cut off"):
        training.tfrecords(tmp_path, {"x": ((2,), "float32"), "y": ((), "int64")}, label="y")


def keras_model():
    import keras

    return keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2)])


def test_keras_models_train_here_and_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Keras model with a custom signature is trained, replaced safely when exported twice, and served as told."""
    import tensorflow as tf

    monkeypatch.setenv("MLGITOPS_OUTPUT_URI", str(tmp_path / "output"))
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("f4")
    trained = training.fit(
        keras_model,
        training.arrays(x, (x[:, 0] > 0).astype("i4")),
        epochs=2,
        optimizer=tf.keras.optimizers.Adam(0.1),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        validation=training.arrays(x, x[:, 0] > 0),
    )
    assert [sorted(one) for one in trained.history] == [["epoch", "loss", "seconds", "val_loss"]] * 2
    assert trained.history[1]["loss"] < trained.history[0]["loss"]
    first = training.export(trained.model, history=trained.history)
    second = training.export(
        trained.model, signature=lambda x: {"doubled": 2 * trained.model(x)}, inputs={"x": ((None, 3), "float32")}
    )
    assert first is not None
    assert second is not None
    assert first.digest != second.digest
    served = tf.saved_model.load(str(Path(second.path) / "1")).signatures["serving_default"]
    assert np.allclose(served(x=tf.constant(x))["doubled"], 2 * trained.model(x), atol=1e-5)


def test_loss_that_is_no_number_ends_training() -> None:
    """A NaN in the data stops training with epoch and step."""
    x = np.full((8, 3), np.nan, dtype="f4")
    with pytest.raises(training.NonFiniteLoss, match="epoch 1 at step 1"):
        training.fit(keras_model, training.arrays(x, np.zeros((8, 2))), epochs=1, loss="mse")


@pytest.mark.parametrize(("loss", "optimizer"), [("no_such_loss", "adam"), ("mse", "no_such_optimizer"), (3, "adam")])
def test_misspelt_names_are_refused(loss: Any, optimizer: str) -> None:
    """An unknown loss or optimizer is an error that names it."""
    with pytest.raises(InvalidInput, match=r"no_such|3"):
        training.fit(
            keras_model, training.arrays(np.zeros((8, 3)), np.zeros(8)), epochs=1, loss=loss, optimizer=optimizer
        )


def test_parameter_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with parameter servers is refused clearly instead of hanging."""
    from mlgitops.training.task import strategy

    cluster = {"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    with pytest.raises(InvalidInput, match="parameter servers"):
        strategy.__wrapped__()
