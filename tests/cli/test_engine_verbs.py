"""Verbs that need the engine's folder, and `train` in an ordinary clone."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.schemas import schema
from mlgitops.local.source import checkout_of
from mlgitops.local.wiring import CLAIM, STORE
from mlgitops.ports.repository import Change, Person
from tests.cli.conftest import Desk
from tests.support.inbox import inbox
from tests.support.registry import PASSWORD, USER, fake_registry
from tests.support.world import CONFIGURATION, ENVIRONMENTS

TESTED = CONFIGURATION + "test:\n  command: [python, test.py]\n"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def engine(desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch):
    """Return the desk of a folder in which an engine was started once."""
    place = desk("calm")
    monkeypatch.delenv("MLGITOPS_ENVIRONMENT_REPOSITORY")
    home = place.folder / ".mlgitops"
    home.mkdir()
    shutil.move(place.repository, home / "environment.git")
    place.repository = home / "environment.git"
    return place


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return an ordinary clone of a model repository, with files that nobody committed."""
    folder = tmp_path / "digits"
    (folder / "data").mkdir(parents=True)
    files = {
        "mlgitops.yaml": TESTED,
        "train.py": "print('train')\n",
        "requirements.txt": "numpy==2.0.0\n",
        "test.py": "import sys\nprint('\\x1b[31m::error::expected 3, found 4')\nsys.exit(1)\n",
        "data/train.npz": "x",
        "data/evaluation.npz": "y",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "train.py").write_text("print('not committed')\n")
    (folder / "stray.txt").write_text("nor this")
    return folder


def fits(values, definition: str) -> bool:
    checker = Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema("output")["$defs"]})
    return checker.is_valid(values)


def test_train_in_a_clone_foretells_the_release(engine, clone: Path) -> None:
    """A dry run names the release of the commit, whatever lies uncommitted in the working tree, and writes nothing."""
    before = engine.refs()
    told = engine.json("train", "--repository", str(clone), "--dry-run")
    assert told.code == 0, told.err
    assert fits(told.values, "train")
    assert told.values["revision"] == git(clone, "rev-parse", "HEAD")
    (clone / "train.py").write_text("print('something else')\n")
    assert engine.json("train", "--repository", str(clone / "data"), "--dry-run").values == told.values
    assert engine.refs() == before


def test_train_whose_tests_fail_is_a_no(engine, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing tests end with 10 and their last words, which forge nothing; no release is submitted."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    before = engine.refs()
    told = engine("train", "--repository", str(clone))
    assert told.code == 10, told.err
    assert "its tests failed (1)" in told.err
    assert "expected 3, found 4" in told.err
    assert "\x1b" not in told.err
    assert [line[:9] for line in told.err.splitlines() if line.lstrip().startswith("::")] == ["::error::"]
    assert engine.refs() == before


def test_train_pushes_and_names_what_the_registry_has(engine, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused login and a registry in trouble end with their exit codes; the rerun submits the registry's digest."""
    with fake_registry() as (host, registry):
        registry.login = "basic"
        pushed = CONFIGURATION.replace("repository: digits", f"repository: {host}/team/digits\n  push: true")
        (clone / "mlgitops.yaml").write_text(pushed)
        (clone / "requirements.txt").write_text("")
        git(clone, "commit", "-qam", "push")
        before = engine.refs()
        told = engine("train", "--repository", str(clone))
        assert (told.code, engine.refs()) == (1, before), told.err
        assert f"docker login {host}" in told.err
        for name, value in {"": host, "_USER": USER, "_PASSWORD": PASSWORD}.items():
            monkeypatch.setenv(f"MLGITOPS_REGISTRY{name}", value)
        registry.answers = [("POST", 507, b"", {})]
        told = engine("train", "--repository", str(clone))
        assert (told.code, engine.refs()) == (5, before), told.err
        assert "no space left there" in told.err
        told = engine("train", "--repository", str(clone))
        assert told.code == 0, told.err
        assert PASSWORD not in told.err + told.out
        (digest,) = [name for name in registry.manifests if name.startswith("sha256:")]
        words = ["git", "-C", str(engine.repository), "grep", "-h", "sha256:", LEDGER]
        ledger = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert f"{host}/team/digits@{digest}" in ledger


def test_train_elsewhere_says_what_is_missing(engine, tmp_path: Path) -> None:
    """Where there is no repository or no such commit, train ends with 3."""
    assert engine("train", "--repository", str(tmp_path / "nowhere")).code == 3
    outside = engine("train", "--revision", "--output=/tmp/x")
    assert outside.code == 3
    assert "Traceback" not in outside.err


def test_checkout_reads_the_commit_alone(clone: Path, tmp_path: Path) -> None:
    """Uncommitted changes, stray files and git's own filters and hooks play no part in what is built."""
    git(clone, "config", "filter.evil.smudge", "touch /tmp/mlgitops-smudged; cat")
    (clone / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    source = checkout_of(clone, None, tmp_path / "source")
    assert source.read("train.py") == b"print('train')\n"
    assert source.read("stray.txt") is None
    assert not Path("/tmp/mlgitops-smudged").exists()
    assert source.commit.subject == "first"
    with pytest.raises(InvalidInput):
        checkout_of(clone, "--all", tmp_path / "other")


def test_checkout_reads_worktrees_and_shallow_clones(clone: Path, tmp_path: Path) -> None:
    """A linked working tree and a clone of depth one are repositories, too; an older commit can be named."""
    first = git(clone, "rev-parse", "HEAD")
    git(clone, "commit", "-qam", "second")
    git(clone, "worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    assert checkout_of(tmp_path / "linked", None, tmp_path / "a").commit.subject == "second"
    assert checkout_of(clone, first[:10], tmp_path / "b").commit.subject == "first"
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), str(tmp_path / "shallow"))
    assert checkout_of(tmp_path / "shallow", None, tmp_path / "c").commit.subject == "second"
    git(tmp_path, "clone", "-q", "--bare", str(clone), str(tmp_path / "bare.git"))
    assert checkout_of(tmp_path / "bare.git", None, tmp_path / "d").commit.subject == "second"


def test_gc_deletes_what_no_rollback_needs(engine) -> None:
    """Only the refused release's model goes; the champion's and the last-good one's stay, whatever --keep says."""
    store = FolderStore(engine.folder / ".mlgitops" / STORE, CLAIM)
    for name in engine.stages.names[:3]:
        folder = engine.folder / ".mlgitops" / STORE / "models" / "digits" / name
        folder.mkdir(parents=True)
        (folder / "model").write_text("bytes")
    rehearsed = engine.json("gc", "--keep", "1", "--dry-run")
    assert fits(rehearsed.values, "gc")
    assert len(store.paths("models/digits")) == 3
    told = engine.json("gc", "--keep", "1")
    assert fits(told.values, "gc")
    assert [one["release"] for one in told.values["deleted"]] == [one["release"] for one in rehearsed.values["deleted"]]
    left = {one.rpartition("/")[2] for one in store.paths("models/digits")}
    assert {engine.stages.names[0], engine.stages.names[1]} <= left


def test_reconcile_tells_what_cannot_be_found_out(engine) -> None:
    """Where the engine does not run, reconcile ends with 5, names the problem, and writes nothing."""
    engine("hold", "--reason", "audit")
    engine("resume")
    before = engine.refs()
    rehearsed = engine.json("reconcile", "--dry-run")
    assert fits(rehearsed.values, "reconcile")
    assert rehearsed.values["dryRun"] is True
    assert engine.refs() == before
    assert engine("rollback").code == 0
    told = engine.json("reconcile")
    assert fits(told.values, "reconcile")
    assert told.code == max((one["exitCode"] for one in told.values["problems"]), default=0)
    assert told.code == 5
    assert engine("reconcile", "--model", "digit").code == 1


def test_reconcile_tells_people(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconcile sends what was decided since, tells what could not be sent, and its exit code is that of the pass."""
    pytest.importorskip("apprise", reason="the extra `notify`")
    repository = open_repository(str(engine.repository), identity=Person(name="t", email="t@x"), cache=engine.folder)
    main = repository.snapshot(MAIN)
    told = "notifications:\n- {name: chat, variable: MLGITOPS_NOTIFY_CHAT}\n"
    changed = (main.read("environments.yaml") or b"") + told.encode()
    repository.update(MAIN, main.revision, [Change(message="tell people", files={"environments.yaml": changed})])
    without = engine.json("reconcile")
    assert "notifications" not in without.values
    with inbox() as found:
        monkeypatch.setenv("MLGITOPS_NOTIFY_CHAT", f"json://127.0.0.1:{found.port}/t0ken-0f-a-chat")
        engine("reconcile")
        found.status = 500
        engine("hold", "--reason", "<!channel>")
        failed = engine.json("reconcile")
        assert failed.code == without.code
        assert fits(failed.values, "reconcile")
        assert failed.values["notifications"]["sent"] == 0
        assert "MLGITOPS_NOTIFY_CHAT" in failed.values["notifications"]["problems"][0]
        assert "t0ken" not in failed.out + failed.err
        found.status = 200
        assert engine.json("reconcile").values["notifications"] == {"sent": 1, "problems": []}
        assert engine.json("reconcile").values["notifications"] == {"sent": 0, "problems": []}
        (letter,) = found.letters
        assert letter["title"].endswith("held")
        assert "‹!channel›" in letter["message"]


def test_logs_of_a_training_that_is_not_there(engine, clone: Path) -> None:
    """Where nothing was written yet, logs ends with 1 and says so."""
    told = engine("logs", "abcd")
    assert told.code == 1
    assert "no release named 'abcd'" in told.err
    assert clone.exists()


def test_init_and_lint_speak_data(tmp_path: Path, desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """init and lint print data by the schema; init with --dry-run leaves the folder as it is."""
    place = desk("calm")
    folder = tmp_path / "checkout"
    (folder / "environments").mkdir(parents=True)
    (folder / "environments.yaml").write_text(ENVIRONMENTS)
    monkeypatch.chdir(folder)
    told = place.json("lint")
    assert told.code == 0, told.out
    assert fits(told.values, "lint")
    (tmp_path / "model" / "data").mkdir(parents=True)
    assert fits(place.json("init", str(tmp_path / "model")).values, "error")
    assert not list((tmp_path / "model").glob("*.yaml"))


def test_a_dockerfile_is_written_once(engine, clone: Path) -> None:
    """`init --dockerfile` tells what it wrote, writes nothing the second time, and mixes with no other task."""
    words = ("init", "--dockerfile", str(clone))
    assert engine.json(*words, "--dry-run").values["files"] == [".dockerignore", "Dockerfile"]
    assert not (clone / "Dockerfile").exists()
    told = engine(*words)
    assert (told.code, told.out.splitlines()) == (0, ["wrote Dockerfile", "wrote .dockerignore"])
    assert "it is current already" in engine(*words).out
    for other in (("--codeowners",), ("--name", "x")):
        assert engine(*words, *other).code == 2
