"""The demo's pushes are what they claim: better, worse, skewed, and data only."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlgitops.adapters.builder.requirements import check_lock, installed_versions
from mlgitops.adapters.files import directory_files
from mlgitops.core.errors import NotFound
from mlgitops.core.loading import load_model
from mlgitops.demo.models import PUSHES, write_model_repository, write_traffic

pytest.importorskip("sklearn")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model_repository(tmp_path / "digits", 1)
    return tmp_path / "digits"


def test_the_first_push_is_a_whole_model_repository(repository: Path) -> None:
    """Its configuration is valid, its lock is what is installed, and everything that it declares is there."""
    configuration = load_model((repository / "mlgitops.yaml").read_bytes(), "mlgitops.yaml")
    declared = (*configuration.inputs, *(one.path for one in configuration.data), configuration.evaluation.data)
    assert all((repository / path).is_file() for path in declared)
    assert {name: role.replicas for name, role in configuration.training.roles.items()} == {"Chief": 1, "Worker": 1}
    assert configuration.evaluation.specification["batchSize"] == 64
    check_lock((repository / "requirements.txt").read_bytes(), "requirements.txt", installed_versions())


def test_its_own_tests_pass_and_can_fail(repository: Path) -> None:
    """The model repository's tests pass on its data, and fail on data that is wrong."""
    command = [sys.executable, "-m", "unittest", "discover", "-s", "tests"]
    assert subprocess.run(command, cwd=repository, check=False, capture_output=True).returncode == 0
    with np.load(repository / "data" / "train.npz") as data:
        np.savez(repository / "data" / "evaluation.npz", x=data["x"], y=data["y"])
    assert subprocess.run(command, cwd=repository, check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize("push", [2, 3, 4, 6])
def test_every_later_push_changes_one_thing(repository: Path, push: int) -> None:
    """A code push changes the training script and nothing else, the data push the training set and nothing else."""
    before = directory_files(repository)
    message = write_model_repository(repository, push)
    after = directory_files(repository)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == ({"data/train.npz"} if push == 6 else {"train.py"})
    assert message == PUSHES[push].message


def test_writing_again_gives_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    """The same push is the same data everywhere, so that it is recognised."""
    write_model_repository(tmp_path / "again", 1)
    assert directory_files(tmp_path / "again") == directory_files(repository)


def test_no_image_is_in_two_sets(repository: Path, tmp_path: Path) -> None:
    """What is sent to production was seen in no training and no evaluation, and more data contains the first."""
    write_traffic(tmp_path / "traffic.npz")
    first = _images(repository / "data" / "train.npz")
    write_model_repository(repository, 6)
    sets = [
        _images(path)
        for path in (repository / "data/train.npz", repository / "data/evaluation.npz", tmp_path / "traffic.npz")
    ]
    assert [len(one) for one in sets] == [997, 400, 400]
    assert len(set().union(*sets)) == 1797
    assert first < sets[0]


def _images(path: Path) -> set[bytes]:
    with np.load(path) as data:
        return {image.tobytes() for image in data["x"]}


def test_there_is_no_push_5() -> None:
    """The fifth push is a `git revert`, which has no files."""
    with pytest.raises(NotFound):
        write_model_repository(Path("/nonexistent"), 5)


@pytest.mark.tensorflow
def test_the_models_are_what_the_demo_needs(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is better, the third worse, the fourth right in batches and wrong alone, the sixth no worse."""
    write_traffic(tmp_path / "traffic.npz")
    pushes = {}
    for push in (1, 2, 3, 4):
        write_model_repository(repository, push)
        pushes[push] = _train(repository, tmp_path / str(push), monkeypatch)
    write_model_repository(repository, 2)
    write_model_repository(repository, 6)
    pushes[6] = _train(repository, tmp_path / "6", monkeypatch)
    evaluation, traffic = repository / "data" / "evaluation.npz", tmp_path / "traffic.npz"
    offline = {push: _accuracy(model, evaluation, 64) for push, model in pushes.items()}
    online = {push: _accuracy(model, traffic, 1) for push, model in pushes.items()}
    assert 0.8 < offline[1] < 0.95
    assert offline[2] > max(0.95, offline[1] + 0.03)
    assert 0.8 < offline[3] < offline[2] - 0.05
    assert offline[4] > offline[2] - 0.02
    assert online[4] < online[2] - 0.2
    assert online[2] > 0.94
    assert offline[6] > offline[2] - 0.01
    assert online[6] > online[2]


def _train(repository: Path, output: Path, monkeypatch: pytest.MonkeyPatch):
    """Train in this process, without workers, and return the served signature."""
    import tensorflow as tf

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("MLGITOPS_DATA_URI", str(repository / "data" / "train.npz"))
    monkeypatch.setenv("MLGITOPS_OUTPUT_URI", str(output))
    monkeypatch.setenv("MLGITOPS_TERMINATION_LOG", str(output.with_suffix(".result")))
    runpy.run_path(str(repository / "train.py"), run_name="__main__")
    loaded = tf.saved_model.load(str(output / "1"))
    return loaded, loaded.signatures["serving_default"]


def _accuracy(model, path: Path, batch_size: int) -> float:
    import tensorflow as tf

    with np.load(path) as data:
        x, y = data["x"], data["y"]
    batches = [tf.constant(x[start : start + batch_size]) for start in range(0, len(x), batch_size)]
    answers = np.concatenate([model[1](x=batch)["probabilities"].numpy().argmax(axis=1) for batch in batches])
    return float(np.mean(answers == y))
