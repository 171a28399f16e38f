"""Every push is taken, in order, also those that arrive while another one is tested."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from mlgitops.local import setup
from mlgitops.local.pushes import Pushes, _needed
from mlgitops.ports.observer import Silent


class Desk:
    """A model repository whose pushes are looked at, and noted as taken by hand."""

    def __init__(self, folder: Path) -> None:
        self.place, self.home = folder, folder / ".mlgitops"
        self.git("init", "-q", "-b", "main", ".")
        setup.prepare(self.home, folder)
        self.pushes = Pushes(self.home, Silent())

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.place), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def push(self, name: str, *commits: str) -> str:
        for commit in (name, *commits):
            (self.place / "train.py").write_text(commit)
            self.git("add", "train.py")
            self.git("commit", "-qm", commit)
        self.git("push", "-q", "local", "--force")
        return self.git("rev-parse", "HEAD")

    def take(self) -> str | None:
        found = self.pushes.next()
        if found is None:
            return None
        values = {"revision": found.revision, "code": 0, "number": found.number}
        (self.home / "pushed.json").write_text(json.dumps(values))
        return found.revision


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def test_pushes_are_taken_one_by_one(desk):
    """Three pushes during a long test are three releases, oldest first; several commits of one push are one."""
    pushed = [desk.push("one"), desk.push("two", "three"), desk.push("four")]
    assert [desk.take() for _ in range(4)] == [*pushed, None]
    assert desk.take() is None
    fifth = desk.push("five")
    assert [desk.take(), desk.take()] == [fifth, None]


def test_a_push_back_to_what_was_taken_before_is_a_push(desk):
    """Forward and back again by force are two pushes: nothing in between is lost."""
    first = desk.push("one")
    assert desk.take() == first
    second = desk.push("two")
    desk.git("reset", "-q", "--hard", first)
    desk.git("push", "-q", "local", "--force")
    assert [desk.take() for _ in range(3)] == [second, first, None]


def test_without_a_log_the_tip_is_taken(desk):
    """A repository of a former version keeps no log: its tip is the push, and what was taken is not taken again."""
    first = desk.push("one")
    log = desk.home / setup.MODEL_REPOSITORY / "logs" / "refs" / "heads" / "main"
    log.unlink()
    assert [desk.take(), desk.take()] == [first, None]
    (desk.home / "pushed.json").write_text(json.dumps({"revision": first, "code": 0}))
    assert desk.take() is None
    second = desk.push("two")
    assert [desk.take(), desk.take()] == [second, None]


def test_train_gets_what_it_needs(monkeypatch):
    """No credentials but a registry's, and neither another home nor another repository, reach what a push runs."""
    names = ("AWS_SECRET_ACCESS_KEY", "MLGITOPS_HOME", "MLGITOPS_ENVIRONMENT_REPOSITORY", "GIT_DIR")
    for name in names:
        monkeypatch.setenv(name, "x")
    opening = ("DOCKER_CONFIG", "MLGITOPS_REGISTRY_PASSWORD")
    for name in opening:
        monkeypatch.setenv(name, "y")
    needed = _needed(os.environ)
    assert [needed[name] for name in opening] == ["y", "y"]
    assert not set(names) & set(needed)
    assert needed["PATH"] == os.environ["PATH"]
    assert needed["HOME"] == os.environ["HOME"]
