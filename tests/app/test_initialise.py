"""`init` writes what a model repository needs, asks where something is not clear, and overwrites nothing."""

import json
import zipfile
from pathlib import Path

import pytest

from mlgitops.app import initialise as module
from mlgitops.app.initialise import initialise_environment, initialise_model
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.loading import load_environments, load_model

INSTALLED = {
    "tensorflow": ["tensorflow-cpu==2.21.0"],
    "keras": ["keras==3.15.1"],
    "numpy": ["numpy==2.4.6"],
    "pandas": ["pandas==3.0.0"],
    "pytest": ["pytest==9.2.0"],
}


def arrays(path: Path, **members: str) -> None:
    """Write an .npz with nothing but headers: member names and their type, like `<i8`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, kind in members.items():
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (1,), }}\n".encode()
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "Digit Reader"
    folder.mkdir()
    (folder / "train.py").write_text("import numpy as np\nimport layers\nfrom mlgitops import training\n")
    (folder / "layers.py").write_text("import os\nimport pandas.io\n")
    arrays(folder / "data" / "train.npz", x="<f4", y="<i8")
    arrays(folder / "data" / "evaluation.npz", x="<f4", y="<i8")
    return folder


def start(folder: Path, **options):
    return initialise_model(folder, installed=INSTALLED, **options)


def questions(folder: Path, **options) -> list[str]:
    before = sorted(path for path in folder.rglob("*"))
    with pytest.raises(InvalidInput) as caught:
        start(folder, **options)
    assert sorted(path for path in folder.rglob("*")) == before
    assert all(problem.mend for problem in caught.value.problems)
    return [str(problem) for problem in caught.value.problems]


def test_a_clear_repository_needs_no_questions(repository: Path) -> None:
    """What is unambiguous is found: script, what it imports, data, evaluation set, task, versions."""
    files = start(repository)
    assert set(files) == {"mlgitops.yaml", "requirements.txt"}
    assert all((repository / name).read_bytes() == content for name, content in files.items())
    configuration = load_model(files["mlgitops.yaml"], "mlgitops.yaml")
    assert configuration.name == "digit-reader"
    assert set(configuration.inputs) == {
        "layers.py",
        "requirements.txt",
        "train.py",
    }
    assert [one.path for one in configuration.data] == ["data/train.npz"]
    assert configuration.evaluation.data == "data/evaluation.npz"
    assert configuration.evaluation.specification["task"] == "classification"
    locked = [line for line in files["requirements.txt"].decode().splitlines() if not line.startswith("#")]
    assert locked == ["keras==3.15.1", "numpy==2.4.6", "pandas==3.0.0", "tensorflow-cpu==2.21.0"]


def test_a_dry_run_writes_nothing(repository: Path) -> None:
    """What would be written is told, and the folder stays as it is."""
    before = sorted(repository.rglob("*"))
    assert set(start(repository, dry_run=True)) == {"mlgitops.yaml", "requirements.txt"}
    assert sorted(repository.rglob("*")) == before


def test_a_configuration_is_never_overwritten(repository: Path) -> None:
    """A second run changes nothing and says that the file is there."""
    (repository / "mlgitops.yaml").write_text("mine")
    assert "is there already" in questions(repository)[0]
    assert (repository / "mlgitops.yaml").read_text() == "mine"


def test_a_link_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    """A dangling link in place of the file is no way to write elsewhere."""
    (repository / "mlgitops.yaml").symlink_to(tmp_path / "elsewhere")
    questions(repository)
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_is_there_is_kept(repository: Path) -> None:
    """A person's requirements are used as they are."""
    (repository / "requirements.txt").write_text("numpy==1\n")
    assert set(start(repository)) == {"mlgitops.yaml"}
    assert (repository / "requirements.txt").read_text() == "numpy==1\n"


def test_a_file_that_appears_meanwhile_is_kept(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file written by somebody else in between survives, and nothing of ours stays."""
    original = module.discover  # type: ignore[attr-defined]  # where this module looks it up

    def interfere(*arguments, **options):
        found = original(*arguments, **options)
        (repository / "requirements.txt").write_text("theirs")
        return found

    monkeypatch.setattr(module, "discover", interfere)
    with pytest.raises(InvalidInput, match="appeared meanwhile"):
        start(repository)
    assert (repository / "requirements.txt").read_text() == "theirs"
    assert not (repository / "mlgitops.yaml").exists()


def test_several_scripts_are_a_question(repository: Path) -> None:
    """Two scripts that could train are both named, with the option that decides."""
    (repository / "train.py").rename(repository / "first.py")
    (repository / "second.py").write_text("")
    (asked,) = questions(repository)
    assert "first.py" in asked
    assert "second.py" in asked
    assert "layers.py" in asked
    assert load_model(start(repository, script="second.py")["mlgitops.yaml"], "m").training.command[-1] == "second.py"


def test_all_questions_at_once(tmp_path: Path) -> None:
    """An empty folder is told everything that it lacks."""
    asked = questions(tmp_path, name="1")
    assert len(asked) == 3
    assert "model name" in asked[0]


def test_several_evaluation_sets_are_a_question(repository: Path) -> None:
    """Which set judges a model is never guessed."""
    arrays(repository / "data" / "test.npz", x="<f4", y="<i8")
    assert "which of these is the evaluation set" in questions(repository)[0]


def test_several_data_files_are_a_question(repository: Path) -> None:
    """Which data trains a model is never guessed where an evaluation set lies among them."""
    arrays(repository / "data" / "more.npz", x="<f4", y="<i8")
    assert "which of these is trained on" in questions(repository)[0]
    configuration = load_model(start(repository, data="data/train.npz")["mlgitops.yaml"], "m")
    assert [one.path for one in configuration.data] == ["data/train.npz"]


def test_a_folder_of_data_is_one_input(repository: Path) -> None:
    """Several files in a folder of their own are meant together."""
    for number in range(3):
        (repository / "data" / "train" / f"{number}.tfrecord").parent.mkdir(exist_ok=True)
        (repository / "data" / "train" / f"{number}.tfrecord").write_bytes(b"")
    (repository / "data" / "train.npz").unlink()
    assert [one.path for one in load_model(start(repository)["mlgitops.yaml"], "m").data] == ["data/train"]


def test_labels_that_are_fractions_mean_regression(repository: Path) -> None:
    """The task follows from the labels' type, under whatever of the usual names they are kept."""
    arrays(repository / "data" / "evaluation.npz", features="<f4", target="<f8")
    evaluation = load_model(start(repository)["mlgitops.yaml"], "m").evaluation
    assert evaluation.specification["task"] == "regression"
    assert (evaluation.specification["inputs"], evaluation.specification["labels"]) == ("features", "target")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip"])
def test_spoilt_evaluation_sets_are_refused(repository: Path, content: bytes) -> None:
    """A file that is no .npz is named, without a traceback."""
    (repository / "data" / "evaluation.npz").write_bytes(content)
    assert "is no .npz file" in questions(repository)[0]


def test_unclear_arrays_are_refused(repository: Path) -> None:
    """Arrays under names that say nothing are a question."""
    arrays(repository / "data" / "evaluation.npz", a="<f4", b="<i8")
    assert "a, b" in questions(repository)[0]


def test_a_notebook_trains(repository: Path) -> None:
    """A notebook is accepted where there is no script, and follows the same rules as at the build."""
    (repository / "train.py").unlink()
    (repository / "layers.py").unlink()
    cell = {"cell_type": "code", "metadata": {}, "source": "import numpy\nfrom mlgitops import training"}
    whole = {"nbformat": 4, "metadata": {}, "cells": [cell]}
    (repository / "train.ipynb").write_text(json.dumps(whole))
    configuration = load_model(start(repository)["mlgitops.yaml"], "m")
    assert configuration.training.notebook == "train.ipynb"
    assert "train.ipynb" in configuration.inputs


def test_a_notebook_that_cannot_be_converted_is_told_now(repository: Path) -> None:
    """Magic lines are found at `init`, not at the first push."""
    cell = {"cell_type": "code", "metadata": {}, "source": "!pip install x"}
    (repository / "n.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": [cell]}))
    assert "cell 1, line 1" in questions(repository, notebook="n.ipynb")[0]


def test_what_cannot_be_locked_is_told(repository: Path) -> None:
    """A module that is not installed here has no version to lock."""
    (repository / "train.py").write_text("import absent_module\n")
    assert "absent_module" in questions(repository)[0]


def test_tests_that_are_there_are_run(repository: Path) -> None:
    """A folder of tests becomes the test command, by the runner that is installed."""
    (repository / "tests").mkdir()
    (repository / "tests" / "test_data.py").write_text("")
    command = load_model(start(repository, dry_run=True)["mlgitops.yaml"], "m").test_command
    assert command == ("python", "-m", "pytest", "-q", "tests")
    without = {name: lines for name, lines in INSTALLED.items() if name != "pytest"}
    files = initialise_model(repository, installed=without, dry_run=True)
    assert load_model(files["mlgitops.yaml"], "m").test_command == (
        "python",
        "-m",
        "unittest",
        "discover",
        "-s",
        "tests",
    )


@pytest.mark.parametrize("path", ["../x.py", "/etc/passwd", "absent.py", ".", "a/../train.py"])
def test_hostile_options_are_refused(repository: Path, path: str) -> None:
    """An option cannot name a file outside the repository."""
    assert questions(repository, script=path)


def test_script_and_notebook_exclude_each_other(repository: Path) -> None:
    """One thing trains."""
    (repository / "n.ipynb").write_text("{}")
    assert "exclude" in questions(repository, script="train.py", notebook="n.ipynb")[0]


def test_odd_file_names_survive_yaml(repository: Path) -> None:
    """A file name that YAML would read as something else is quoted."""
    (repository / "data" / "train.npz").rename(repository / "data" / "train: #1's.npz")
    (repository / "train.py").rename(repository / "1e3.py")
    configuration = load_model(start(repository, script="1e3.py")["mlgitops.yaml"], "m")
    assert configuration.data[0].path == "data/train: #1's.npz"
    assert configuration.training.command == ("python", "1e3.py")


def test_a_script_that_is_no_python_is_told_with_its_line(repository: Path) -> None:
    """A syntax error is found at `init`."""
    (repository / "train.py").write_text("x = 1\ny = = 2\n")
    assert questions(repository)[0].startswith("train.py:2")


def test_a_folder_is_needed(tmp_path: Path) -> None:
    """A place that does not exist is told as such."""
    with pytest.raises(NotFound):
        start(tmp_path / "absent")


def test_the_environment_template_is_valid() -> None:
    """The first commit of an environment repository holds a production environment with a standard plan."""
    files = initialise_environment()
    assert {"environments.yaml", "README.md"} <= files.keys()
    configuration = load_environments(files["environments.yaml"], "environments.yaml")
    production = configuration.environment("production")
    assert production is not None
    assert production.plan.name == "standard"
    assert [step.weight_percent for step in production.plan.steps] == [10, 50, 95]
