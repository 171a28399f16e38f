"""A push becomes a release: the same content the same one, with its cause, tested before anything is built."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.adapters.source.checkout import Checkout
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app import deciding
from mlgitops.app.context import Context, look
from mlgitops.app.evaluating import evaluation_request
from mlgitops.app.submitting import Submitted, Workshop, submit, told
from mlgitops.core.errors import DigestMismatch, InvalidInput, MlgitopsError
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.release import Failed, ReleasePhase, Submission
from mlgitops.ports.source import SourceCommit
from tests.support.memory import edited
from tests.support.world import world_of

CONFIGURATION = """\
apiVersion: mlgitops.dev/v1
kind: Model
metadata: {name: digits}
inputs: [train.py]
data:
  - path: data/train.csv
requirements: requirements.txt
test:
  command: [python, check.py]
training:
  script: train.py
evaluation:
  data: data/evaluation.npz
  task: classification
"""
FILES = {
    "mlgitops.yaml": CONFIGURATION,
    "train.py": "print('training')\n",
    "check.py": "",
    "requirements.txt": "",
    "data/train.csv": "1,2\n",
    "data/evaluation.npz": "evaluation",
    "README.md": "a model",
}


class Pushes:
    """Pushes files to a world."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context: Context = world_of(folder)[0]
        self.count = 0
        self.files = dict(FILES)
        self.dry_run = False

    def push(self, **changes: str) -> Submitted:
        self.count += 1
        self.files |= {name.replace("__", "/").replace("_dot_", "."): text for name, text in changes.items()}
        source = self.folder / f"source-{self.count}"
        for name, text in self.files.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        commit = SourceCommit(revision=f"{self.count:040x}", author="Ada <ada@example.org>", subject="a push")
        workshop = Workshop(
            source=Checkout(source, commit),
            builder=EmbeddedBuilder(self.folder / "registry"),
            store=FolderStore(self.folder / "store", "mlgitops-store"),
        )
        return submit(self.context, workshop, dry_run=self.dry_run)


@pytest.fixture
def pushes(tmp_path: Path) -> Pushes:
    return Pushes(tmp_path)


def test_a_push_names_image_and_data_by_digest(pushes: Pushes) -> None:
    """A submission says by digest what it is made of, and its variables give the job the URIs."""
    submission = pushes.push().release.submission
    assert "@sha256:" in submission.image
    assert submission.variables["MLGITOPS_DATA_URI"].startswith("pvc://mlgitops-store/data/digits/")
    assert submission.cause == ("first",)


def test_what_decides_nothing_makes_no_release(pushes: Pushes) -> None:
    """Another README, or another commit of the same content, is the release that is there already."""
    first = pushes.push()
    again = pushes.push(README_dot_md="a better README")
    assert (again.new, again.release.name) == (False, first.release.name)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"train_dot_py": "print('more')\n"}, ("code",)),
        ({"data__train_dot_csv": "1,2\n3,4\n"}, ("data",)),
        ({"mlgitops_dot_yaml": CONFIGURATION.replace("script: train.py", "script: train.py\n  backoffLimit: 1")},
         ("specification",)),
        ({"train_dot_py": "1\n", "data__train_dot_csv": "5\n"}, ("code", "data")),
    ],
)  # fmt: skip
def test_the_cause_is_what_differs_from_the_push_before(
    pushes: Pushes, changes: dict[str, str], cause: tuple[str, ...]
) -> None:
    """Code, data and specification are told apart."""
    pushes.push()
    assert pushes.push(**changes).release.submission.cause == cause


def test_failing_tests_submit_nothing(pushes: Pushes) -> None:
    """A push whose tests fail leaves no release and no image, and says why."""
    with pytest.raises(MlgitopsError, match=r"tests failed.*\n.*no digits"):
        pushes.push(check_dot_py="raise SystemExit('no digits')")
    assert look(pushes.context).ledger.models() == ()
    assert not (pushes.folder / "registry").exists()


def test_tests_run_without_credentials(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model repository's own code does not see the caller's environment."""
    monkeypatch.setenv("REGISTRY_TOKEN", "planted-secret")
    pushes.push(check_dot_py="import os\nassert 'planted-secret' not in str(os.environ)\n")


def test_tests_cannot_change_what_is_built(pushes: Pushes) -> None:
    """What a test writes is not what is trained on, evaluated on, or put into the image."""
    check = "for name in ('train.py', 'data/train.csv', 'data/evaluation.npz'):\n    open(name, 'w').write('else')\n"
    submission = pushes.push(check_dot_py=check).release.submission
    store = FolderStore(pushes.folder / "store", "mlgitops-store")
    assert store.path(submission.variables["MLGITOPS_DATA_URI"]).read_text() == "1,2\n"
    assert store.path(submission.evaluation_uri).read_text() == "evaluation"
    assert (pushes.folder / "source-1" / "train.py").read_text() == FILES["train.py"]


def test_what_changes_after_it_was_identified_is_not_built(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is not what the release is named by is refused, and nothing is recorded or built."""

    def meddle(self: Checkout, command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        del command, timeout_seconds
        (self.directory / "train.py").write_text("else")
        return 0, ""

    monkeypatch.setattr(Checkout, "run", meddle)
    with pytest.raises(DigestMismatch, match="code of 000000000000"):
        pushes.push()
    assert look(pushes.context).ledger.models() == ()
    assert not (pushes.folder / "registry").exists()


def test_a_command_of_the_evaluation_finds_the_inputs(pushes: Pushes) -> None:
    """Where the evaluation runs a command, the store has the files that enter the image, and no others."""
    assert pushes.push().release.submission.source_uri == ""
    command = "task: classification\n  command: [python, train.py]"
    release = pushes.push(
        mlgitops_dot_yaml=CONFIGURATION.replace("task: classification", command), train_dot_py="print(2)\n"
    ).release
    uri = evaluation_request(release, None).source_uri
    assert uri is not None
    folder = FolderStore(pushes.folder / "store", "mlgitops-store").path(uri)
    assert {one.name: one.read_text() for one in folder.iterdir()} == {"train.py": "print(2)\n", "requirements.txt": ""}


def test_a_submission_of_an_older_ledger_is_read(pushes: Pushes) -> None:
    """A submission written before evaluations had a source is one without."""
    submission = pushes.push().release.submission
    values = submission.to_mapping()
    del values["source_uri"]
    assert Submission.from_mapping(values) == submission


def test_a_missing_input_is_named(pushes: Pushes) -> None:
    """What the configuration declares and the commit lacks is said by name."""
    with pytest.raises(InvalidInput, match=r"absent\.py"):
        pushes.push(mlgitops_dot_yaml=CONFIGURATION.replace("inputs: [train.py]", "inputs: [train.py, absent.py]"))


def notebook(code: str, count: int) -> str:
    cell = {"cell_type": "code", "source": code, "metadata": {}, "outputs": [], "execution_count": count}
    kernel = {"kernelspec": {"language": "python", "name": "python3", "display_name": "Python 3"}}
    return json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


def test_a_notebook_that_only_ran_again_is_the_same_release(pushes: Pushes) -> None:
    """A notebook is converted at every build; its outputs and counts decide nothing, its code does."""
    text = CONFIGURATION.replace("inputs: [train.py]", "inputs: [train.ipynb]").replace(
        "script: train.py", "notebook: train.ipynb"
    )
    del pushes.files["train.py"]
    first = pushes.push(mlgitops_dot_yaml=text, train_dot_ipynb=notebook("print(1)", 1))
    assert not pushes.push(train_dot_ipynb=notebook("print(1)", 7)).new
    changed = pushes.push(train_dot_ipynb=notebook("print(2)", 8))
    assert changed.new
    assert changed.release.name != first.release.name
    with pytest.raises(InvalidInput, match="is committed"):
        pushes.push(train_dot_py="committed")


def test_a_release_that_ended_badly_says_how_to_train_again(pushes: Pushes) -> None:
    """Whoever pushes what failed is told why it failed, and the attempt that trains it again; what goes on is not."""
    release = pushes.push().release
    failed = replace(
        release, phase=ReleasePhase.FAILED, history=(Failed(at=pushes.context.clock.now(), reason="accuracy is 0.2"),)
    )
    assert "accuracy is 0.2; `mlgitops train --attempt 2`" in told(Submitted(release=failed, new=False))
    assert "--attempt" not in told(Submitted(release=release, new=False))


GATES = "task: classification\n  gates: [{metric: accuracy, minimum: 0.5}]"


def newest_message(pushes: Pushes) -> str:
    revision = pushes.context.repository.snapshot(LEDGER).revision
    assert revision is not None
    return next(iter(pushes.context.repository.history(revision))).message


def test_a_push_that_changes_what_judges_revises_the_release(pushes: Pushes) -> None:
    """Changed gates or another evaluation set make no release: the one that is there is judged by them, and says so."""
    first = pushes.push()
    again = pushes.push(mlgitops_dot_yaml=CONFIGURATION.replace("task: classification", GATES), check_dot_py="x")
    assert (again.new, again.release.name) == (False, first.release.name)
    assert (again.revised, again.unheeded) == (("gates",), ())
    assert "changed in this push: gates; its model is evaluated by that" in told(again)
    assert "Evaluated anew: gates." in newest_message(pushes)
    other = pushes.push(data__evaluation_dot_npz="other")
    assert other.revised == ("evaluation set",)
    content = other.release.judged_by
    assert FolderStore(pushes.folder / "store", "mlgitops-store").path(content.evaluation_uri).read_text() == "other"
    assert "minimum: 0.5" in content.configuration
    assert other.release.submission == first.release.submission
    assert pushes.push().revised == ()
    assert len(look(pushes.context).ledger.release("digits", first.release.name).history) == 2


def test_a_push_says_what_changes_nothing(pushes: Pushes) -> None:
    """A changed serving section or test makes no release and changes nothing, and the push says where to change it."""
    pushes.push()
    serving = CONFIGURATION.replace("python, check.py", "python, train.py") + "serving: {minReplicas: 2}\n"
    again = pushes.push(mlgitops_dot_yaml=serving)
    assert (again.revised, again.unheeded) == ((), ("serving", "test"))
    assert "the next canary is made of it" in told(again)
    pushes.push(train_dot_py="print(2)\n", mlgitops_dot_yaml=CONFIGURATION)
    pushes.push(train_dot_py=FILES["train.py"], mlgitops_dot_yaml=serving)
    assert "Not taken up by this release: serving, test." in newest_message(pushes)


def test_what_was_stopped_is_not_judged_anew(pushes: Pushes) -> None:
    """A release that a person stopped stays what it is, whatever gates a later push brings."""
    release = pushes.push().release
    deciding.abort(pushes.context, "digits", release.name, reason="wrong data")
    again = pushes.push(mlgitops_dot_yaml=CONFIGURATION.replace("task: classification", GATES))
    assert (again.revised, again.unheeded, again.release.phase) == ((), ("gates",), ReleasePhase.ABORTED)
    assert "`mlgitops train --attempt 2`" in told(again)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_regression_that_labels_cannot_judge_is_refused(pushes: Pushes, dry_run: bool) -> None:
    """Where a plan judges labels, a new regression says how far off an answer may be; with that it is taken."""
    pushes.dry_run = dry_run
    with pytest.raises(InvalidInput) as caught:
        pushes.push(mlgitops_dot_yaml=CONFIGURATION.replace("classification", "regression"))
    (problem,) = caught.value.problems
    assert problem.pointer == "evaluation.labelTolerance"
    assert "plan quick of production" in problem.message
    assert not look(pushes.context).ledger.models()
    text = CONFIGURATION.replace("classification", "regression\n  labelTolerance: 0.5")
    assert pushes.push(mlgitops_dot_yaml=text).new


@pytest.mark.parametrize("other", ["- {kind: labels, effect: 3}", "environments:"])
def test_a_tolerance_is_asked_for_only_where_it_counts(pushes: Pushes, other: str) -> None:
    """A plan without labels, or counts from elsewhere, need no tolerance."""
    data = pushes.context.repository.snapshot(MAIN).read("environments.yaml") or b""
    to = "" if "labels" in other else "metrics: {source: command}\nenvironments:"
    assert other.encode() in data
    edited(pushes.context.repository, MAIN, {"environments.yaml": data.replace(other.encode(), to.encode(), 1)})
    assert pushes.push(mlgitops_dot_yaml=CONFIGURATION.replace("classification", "regression")).new


def test_a_regression_of_an_older_ledger_goes_on(pushes: Pushes) -> None:
    """A release that was taken before the plan judged labels is recognised, whatever is asked of new ones."""
    data = pushes.context.repository.snapshot(MAIN).read("environments.yaml") or b""
    without = data.replace(b"- {kind: labels, effect: 3}", b"")
    edited(pushes.context.repository, MAIN, {"environments.yaml": without})
    text = CONFIGURATION.replace("classification", "regression")
    first = pushes.push(mlgitops_dot_yaml=text)
    edited(pushes.context.repository, MAIN, {"environments.yaml": data})
    assert pushes.push(README_dot_md="other").release.name == first.release.name
