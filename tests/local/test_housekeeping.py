"""The environment repository does not grow without end."""

import threading
import time

import pytest

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest.fields import MAIN
from mlgitops.local import housekeeping, wiring
from mlgitops.local.housekeeping import Housekeeping
from mlgitops.ports.repository import Change


def loose(folder) -> int:
    return sum(1 for one in (folder / "objects").glob("??/*") if one.is_file())


def test_loose_objects_are_packed_and_stay_readable(tmp_path, monkeypatch):
    """What is loose becomes a pack, and whoever has the repository open goes on reading and writing."""
    settings = tuple(one if not one.startswith("gc.auto=") else "gc.auto=1" for one in housekeeping.GIT_SETTINGS)
    monkeypatch.setattr(housekeeping, "GIT_SETTINGS", settings)
    folder = tmp_path / "environment.git"
    init_bare(folder)
    repository = open_repository(str(folder), identity=wiring.TOOL, cache=tmp_path)
    revision: str | None = repository.create({MAIN: Change(message="0", files={"a/0": b"0"})})[MAIN]
    for number in range(150):
        changes = [Change(message=str(number), files={f"a/{number}": b"%d" % number})]
        revision = repository.update(MAIN, revision, changes)
    before = loose(folder)
    Housekeeping(folder).collect(threading.Event())
    assert loose(folder) < before / 10
    assert repository.snapshot(MAIN).read("a/7") == b"7"
    assert repository.update(MAIN, revision, [Change(message="more", files={"b": b"x"})]) != revision


def test_it_ends_at_once_when_the_engine_stops(tmp_path, monkeypatch):
    """A long packing does not hold up the engine's end."""
    stop = threading.Event()
    stop.set()
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nsleep 600 & wait\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:/usr/bin:/bin")
    started = time.monotonic()
    Housekeeping(tmp_path).collect(stop)
    assert time.monotonic() - started < 10


def test_trouble_is_told(tmp_path):
    """A folder that is no repository is said, not ignored."""
    with pytest.raises(Unavailable, match="git gc"):
        Housekeeping(tmp_path).collect(threading.Event())
