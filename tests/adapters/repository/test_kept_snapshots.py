"""What was read of a branch is kept as long as the branch stands, and not a moment longer."""

from pathlib import Path

import pygit2
import pytest

from mlgitops.adapters.repository import trees
from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.ports.repository import Change, Person, Repository

MAIN = "refs/heads/main"


def opened(place: Path) -> Repository:
    return open_repository(str(place), identity=Person(name="mlgitops", email="m@x"), cache=place.parent / "cache")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    init_bare(tmp_path / "environment.git")
    opened(tmp_path / "environment.git").create({MAIN: Change(message="init", files={"a/b.yaml": b"one\n"})})
    return tmp_path / "environment.git"


def test_a_branch_that_stands_is_read_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking again where nobody moved the branch reads no file a second time."""
    read: list[str] = []
    known = trees.read

    def counted(tree: pygit2.Tree | None, path: str) -> bytes | None:
        read.append(path)
        return known(tree, path)

    monkeypatch.setattr(trees, "read", counted)
    repository = opened(place)
    assert [repository.snapshot(MAIN).read("a/b.yaml") for _ in range(3)] == [b"one\n"] * 3
    assert read == ["b.yaml"]


def test_a_branch_that_moved_is_read_anew(place: Path) -> None:
    """What another client wrote is seen at the next look, and what was looked at before stays what it was."""
    repository, other = opened(place), opened(place)
    before = repository.snapshot(MAIN)
    assert before.read("a/b.yaml") == b"one\n"
    other.update(MAIN, before.revision, [Change(message="two", files={"a/b.yaml": b"two\n"})])
    assert repository.snapshot(MAIN).read("a/b.yaml") == b"two\n"
    assert before.read("a/b.yaml") == b"one\n"
    repository.update(MAIN, repository.snapshot(MAIN).revision, [Change(message="three", files={"a/b.yaml": None})])
    assert repository.snapshot(MAIN).paths() == ()
