"""An environment repository at work, copied for each test, and the command line run in process."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.repository.git import open_repository
from mlgitops.cli.main import run
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.ports.repository import Change, Person
from tests.support.world import ENVIRONMENTS, MODEL, Quality, push, settle, view_of, world_of

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\r\n::error::gotcha ghp_0123456789abcdef"
"""A commit's subject as an attacker would write it."""


@dataclass(frozen=True)
class Stages:
    """Two moments of one model's life, as folders that are copied before use."""

    calm: Path
    """Two releases went live, a third was refused; nothing is under way."""
    busy: Path
    """A fourth waits for an approval, a fifth was submitted."""
    hostile: Path
    """A release whose commit and log attack whoever reads them."""
    names: tuple[str, ...]
    """The five releases."""


def _built(folder: Path) -> tuple[list[str], Path, Path]:
    folder.mkdir()
    world, engine = world_of(folder)
    names = []
    for code, quality in (("one", Quality()), ("two", Quality(0.97, 0.03)), ("three", Quality(0.8, 0.03))):
        names.append(push(world, code, quality=quality, engine=engine).name)
        settle(world, engine, 40)
    calm = folder.parent / "calm.git"
    shutil.copytree(folder / "environment.git", calm)
    edited = ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    approvals: 1\n")
    main = world.repository.snapshot(MAIN)
    world.repository.update(
        MAIN, main.revision, [Change(message="ask for approval", files={"environments.yaml": edited.encode()})]
    )
    names.append(push(world, "four", quality=Quality(0.97, 0.03), engine=engine).name)
    settle(world, engine, 15)
    names.append(push(world, "five", engine=engine).name)
    return names, calm, folder / "environment.git"


def _attacked(folder: Path) -> Path:
    folder.mkdir()
    world, engine = world_of(folder)
    release = push(world, HOSTILE, engine=engine)
    settle(world, engine, 15)
    ledger = view_of(world).ledger
    log = f"models/{MODEL}/logs/{release.name}.log"
    change = Change(message="log", files={log: f"epoch 1\n{HOSTILE}\n##[error]again\n".encode()})
    world.repository.update(LEDGER, ledger.revision, [change])
    return folder / "environment.git"


@pytest.fixture(scope="package")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    folder = tmp_path_factory.mktemp("stages")
    names, calm, busy = _built(folder / "life")
    hostile = _attacked(folder / "attack")
    for one in (calm, busy, hostile):  # a pack is copied faster than hundreds of objects
        subprocess.run(["git", "-C", str(one), "repack", "-adq"], check=True)
    return Stages(calm=calm, busy=busy, hostile=hostile, names=tuple(names))


@dataclass(frozen=True)
class Told:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:
        return json.loads(self.out)


class Desk:
    """A folder to type commands in, and the environment repository they reach."""

    def __init__(self, folder: Path, capsys, stages: Stages) -> None:
        self.folder, self._capsys, self.stages = folder, capsys, stages
        self.repository = folder / "environment.git"

    def open(self, stage: Path) -> "Desk":
        shutil.copytree(stage, self.repository)
        return self

    def __call__(self, *words: str) -> Told:
        self._capsys.readouterr()
        code = run(list(words))
        said = self._capsys.readouterr()
        return Told(code, said.out, said.err)

    def json(self, *words: str) -> Told:
        return self(*words, "--output", "json")

    def refs(self) -> dict[str, str | None]:
        opened = open_repository(str(self.repository), identity=Person(name="t", email="t@x"), cache=self.folder)
        return {ref: opened.snapshot(ref).revision for ref in (MAIN, LEDGER)}

    def normal(self, text: str) -> str:
        """Return text without what differs from run to run; names of releases keep their length."""
        for number, name in enumerate(self.stages.names, start=1):
            text = text.replace(name, f"<release--{number}>")
        text = text.replace(str(self.folder), "<folder>")
        text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:<digest>", text)
        text = re.sub(r"\b[0-9a-f]{40}\b", "<revision>", text)
        text = re.sub(r"\b[0-9a-f]{12}\b", "<12 digits>", text)
        text = re.sub(
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", lambda at: "<time>".ljust(len(at[0]), "-"), text
        )
        return re.sub(r"mlgitops-bug-\w+", "mlgitops-bug-<name>", text)


@pytest.fixture
def desk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Desk]:
    """Return what opens a stage: its copy is the environment repository of every command typed afterwards."""
    monkeypatch.chdir(tmp_path)

    def opened(stage: str) -> Desk:
        place = Desk(tmp_path, capsys, stages).open(getattr(stages, stage))
        monkeypatch.setenv("MLGITOPS_ENVIRONMENT_REPOSITORY", str(place.repository))
        return place

    return opened
