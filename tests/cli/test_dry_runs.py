"""--dry-run wherever something is written: every verb is one that writes and has it, or one that reads."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from mlgitops.adapters.cluster.state import Lock
from mlgitops.cli.tree import cli
from tests.cli.conftest import Desk
from tests.cli.test_every_verb import FIVE, ONE, TWO, fits, typed
from tests.support.world import CONFIGURATION

READS = {
    *("completion", "doctor", "explain", "history", "lint", "logs", "simulate", "status", "trace"),
    *("models list", "models show", "models card"),
}
WRITES = {
    # verb: (stage, words, code, what is said); numbers are releases
    "abort": ("busy", ["abort", FIVE, "--reason", "a mistake"], 0, "release(digits)"),
    "approve": ("busy", ["approve"], 0, "approve(digits)"),
    "demo": ("calm", ["demo", "--directory", "there"], 0, "push 2: feat: widen"),
    "gc": ("busy", ["gc", "--keep", "1"], 0, "bytes would be freed"),
    "hold": ("calm", ["hold", "--reason", "audit"], 0, "hold(digits)"),
    "init": ("calm", ["init", "digits"], 0, "would write"),
    "local up": ("calm", ["local", "up", "--directory", "digits", "--home", "other"], 0, "start an engine"),
    "promote": ("calm", ["promote", ONE], 0, "promote(digits)"),
    "reconcile": ("calm", ["reconcile"], 0, "dry run"),
    "reject": ("busy", ["reject", TWO, "--reason", "wrong labels"], 0, "release(digits)"),
    "report": ("busy", ["report"], 0, "it would write"),
    "resume": ("held", ["resume"], 0, "resume(digits)"),
    "rollback": ("calm", ["rollback"], 0, "rollout(digits)"),
    "train": ("calm", ["train", "--repository", "digits"], 0, "would be submitted"),
}
TRAIN = "from mlgitops import training\n\ntraining.run(print)\n"


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return every command that can be typed, by its words."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for one in command.list_commands(context):
        below = command.get_command(context, one)
        assert below is not None
        yield from leaves(below, f"{name} {one}".strip())


def everything(folder: Path) -> dict[str, str]:
    """Return every path below a folder with a digest of what is there."""
    found = {}
    for one in sorted(folder.rglob("*")):
        kind = str(one.readlink()) if one.is_symlink() else "folder" if one.is_dir() else ""
        found[str(one)] = kind or hashlib.sha256(one.read_bytes()).hexdigest()
    return found


@pytest.fixture
def place(desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Desk]:
    """Return what opens a stage as the home of an engine that ran, beside a model repository."""

    def opened(stage: str) -> Desk:
        place = desk("calm" if stage == "held" else stage)
        monkeypatch.delenv("MLGITOPS_ENVIRONMENT_REPOSITORY")
        home = place.folder / ".mlgitops"
        for name in ("metrics", "serving", "cluster"):
            (home / name).mkdir(parents=True)
        shutil.move(place.repository, home / "environment.git")
        place.repository = home / "environment.git"
        if stage == "held":
            assert place("hold", "--reason", "audit").code == 0
        model = place.folder / "digits"
        (model / "data").mkdir(parents=True)
        files = {"mlgitops.yaml": CONFIGURATION, "train.py": TRAIN, "requirements.txt": "numpy==2.0.0\n"}
        for name, text in files.items():
            (model / name).write_text(text)
        for name in ("train", "evaluation"):
            np.savez(model / "data" / f"{name}.npz", x=np.zeros((4, 2)), y=np.zeros(4))
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
            subprocess.run(["git", "-C", str(model), *words], check=True)
        (model / "mlgitops.yaml").unlink()  # `init` has something to write; `train` reads the commit
        artifact = home / "store" / "models" / "digits" / place.stages.names[2] / "1"
        artifact.mkdir(parents=True)
        (artifact / "saved_model.pb").write_bytes(b"model")
        return place

    return opened


def test_every_verb_is_known_to_write_or_to_read() -> None:
    """Whatever can be typed either reads, or has --dry-run."""
    found = dict(leaves(cli))
    unknown = set(found) - READS - set(WRITES)
    assert not unknown, "say in this file whether it writes"
    rehearsed = {name for name, one in found.items() if any("--dry-run" in option.opts for option in one.params)}
    assert rehearsed == set(WRITES)


@pytest.mark.parametrize("verb", WRITES)
def test_a_dry_run_leaves_every_byte_alone(verb: str, place: Callable[[str], Desk]) -> None:
    """With --dry-run a verb says what it would do, and no file anywhere in reach is made, changed or removed."""
    stage, words, code, said = WRITES[verb]
    here = place(stage)
    before = everything(here.folder)
    told = here(*typed(here, words), "--dry-run")
    assert told.code == code, told.err
    assert said in told.out
    assert everything(here.folder) == before


def test_a_report_says_what_it_would_be_made_of(place: Callable[[str], Desk]) -> None:
    """What `report --dry-run` foretells is what `report` writes: the file, and the revisions it is made from."""
    here = place("calm")
    foretold = here.json("report", "--dry-run").values
    real = here.json("report").values
    assert fits(foretold, "report") == []
    assert fits(real, "report") == []
    assert {**foretold, "dryRun": False} == real
    assert Path(real["file"]).is_file()
    assert here.json("report", "--dry-run").values["replaces"] is True


def test_what_cannot_start_is_said_before_it_starts(place: Callable[[str], Desk]) -> None:
    """`local up --dry-run` fails where `local up` would: a remote that leads elsewhere, and an engine that runs."""
    here = place("calm")
    words = ("local", "up", "--directory", "digits", "--dry-run")
    (here.folder / ".mlgitops" / "cluster" / "engine.lock").touch()
    lock = Lock(here.folder / ".mlgitops" / "cluster" / "engine.lock")
    assert lock.take()
    told = here(*words, "--home", ".mlgitops")
    assert told.code == 4
    assert "another engine" in told.err
    lock.release()
    model = str(here.folder / "digits")
    subprocess.run(["git", "-C", model, "remote", "add", "local", "/elsewhere"], check=True)
    told = here(*words)
    assert told.code == 3
    assert "/elsewhere" in told.err


def test_setup_makes_what_was_foretold_and_nothing_twice(place: Callable[[str], Desk]) -> None:
    """After what was missing is made, nothing is missing, and making it again changes not one byte."""
    from mlgitops.local import setup

    here = place("calm")
    home, model = here.folder / "home", here.folder / "digits"
    assert len(setup.missing(home, model)) == 7
    setup.prepare(home, model)
    assert setup.missing(home, model) == ()
    before = everything(here.folder)
    setup.prepare(home, model)
    assert everything(here.folder) == before


def test_a_demo_says_that_it_would_clear_away_its_own_run_and_no_other_folder(place: Callable[[str], Desk]) -> None:
    """An earlier run is said to go; a folder of somebody else is refused as the demo itself would."""
    here = place("calm")
    there = here.folder / "there"
    there.mkdir()
    (there / "thesis.txt").write_text("x")
    assert here("demo", "--directory", "there", "--dry-run").code == 3
    (there / ".mlgitops-demo").touch()
    assert "remove the folder" in here("demo", "--directory", "there", "--dry-run").out
