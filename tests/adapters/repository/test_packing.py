"""A repository that nobody else keeps small, and a cached clone, do not grow into tens of thousands of loose files."""

import itertools
import os
import time
from pathlib import Path

import pygit2
import pytest

from mlgitops.adapters.repository import packing, remote
from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.ports.repository import Change, Person, Repository
from tests.support.git_server import TOKEN, http_server

MAIN = "refs/heads/main"
FEW = 300
"""Loose objects from which a repository is packed here."""


def loose(folder: Path) -> int:
    # Not glob: git takes folders away meanwhile.
    return sum(len(files) for place, _, files in os.walk(folder / "objects") if len(Path(place).name) == 2)


def written(repository: Repository, writes: int) -> str | None:
    revision: str | None = repository.create({MAIN: Change(message="0", files={"a/0": b"0"})})[MAIN]
    for number in range(writes):
        changes = [Change(message=str(number), files={f"a/{number}": b"%d" % number})]
        revision = repository.update(MAIN, revision, changes)
    return revision


def many() -> dict[str, bytes]:
    """Return files whose identities lie in the folder that is looked at, so that there seem to be thousands."""
    contents = (str(number).encode() for number in itertools.count())
    sampled = (one for one in contents if str(pygit2.hash(one)).startswith("17"))
    return {f"a/{number}": one for number, one in enumerate(itertools.islice(sampled, 12))}


def measured(tmp_path: Path, limit: int) -> tuple[Repository, Path]:
    """Return a repository whose owner lets so many objects be loose."""
    folder = tmp_path / "environment.git"
    init_bare(folder)
    pygit2.Repository(str(folder)).config["gc.auto"] = limit
    return opened(str(folder), tmp_path), folder


def packed(folder: Path, patience_seconds: float = 20) -> bool:
    """Wait until git, which works in the background, has packed."""
    deadline = time.monotonic() + patience_seconds
    while not any((folder / "objects" / "pack").glob("*.idx")) or loose(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def opened(location: str, cache: Path) -> Repository:
    return open_repository(location, identity=Person(name="mlgitops", email="m@x"), cache=cache)


def test_a_repository_on_disk_is_packed_by_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of loose objects a write leads to a pack, and the writer goes on reading and writing."""
    monkeypatch.setattr(packing, "LOOSE_OBJECTS", FEW)
    repository, folder = measured(tmp_path, FEW)
    files = many()
    revision = repository.update(MAIN, written(repository, 1), [Change(message="many", files=files)])
    assert packed(folder)
    assert repository.snapshot(MAIN).read("a/7") == files["a/7"]
    assert repository.update(MAIN, revision, [Change(message="more", files={"b": b"x"})]) != revision


def test_an_owner_who_packs_otherwise_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the repository's own settings turn packing off, everything stays loose."""
    monkeypatch.setattr(packing, "LOOSE_OBJECTS", FEW)
    repository, folder = measured(tmp_path, 0)
    repository.update(MAIN, written(repository, 1), [Change(message="many", files=many())])
    assert packing.pack_when_many(folder)
    assert not packed(folder, patience_seconds=0.5)


def test_little_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few objects are loose git is not even started."""
    folder = tmp_path / "environment.git"
    init_bare(folder)
    repository = opened(str(folder), tmp_path)
    monkeypatch.setattr(
        "mlgitops.adapters.repository.packing.subprocess.run", lambda *_, **__: pytest.fail("git was started")
    )
    written(repository, 5)
    assert not packing.pack_when_many(folder)
    assert not packing.pack_when_many(tmp_path / "none")


def test_a_write_lands_where_git_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing that cannot be done takes nothing from a write."""
    monkeypatch.setattr(packing, "LOOSE_OBJECTS", -1)
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "environment.git"
    init_bare(folder)
    repository = opened(str(folder), tmp_path)
    written(repository, 3)
    assert repository.snapshot(MAIN).read("a/2") == b"2"


def test_a_cached_clone_is_looked_at_after_each_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clone of a repository behind a server is packed as one on disk is: the server keeps its own small."""
    asked: list[Path] = []
    monkeypatch.setattr(remote, "pack_when_many", asked.append)
    init_bare(tmp_path / "environment.git")
    with http_server(tmp_path) as server:
        location = f"http://127.0.0.1:{server.server_address[1]}/environment.git"
        repository = open_repository(
            location,
            identity=Person(name="mlgitops", email="m@x"),
            cache=tmp_path / "cache",
            credentials=Credentials(token=TOKEN),
        )
        repository.create({MAIN: Change(message="0", files={"a": b"0"})})
    assert [path.parent for path in asked] == [tmp_path / "cache"]
    assert (asked[0] / "objects").is_dir()
