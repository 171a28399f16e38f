"""What a store in a folder promises beyond the contract: crashes, races, full disks, links planted in it."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.store import folder as module
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.core.errors import DigestMismatch, InvalidInput, Unavailable


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path / "store", "claim")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for number in range(20):
        (tmp_path / "source" / f"{number}.bin").write_bytes(os.urandom(1000))
    return tmp_path / "source"


def _leftovers(store: FolderStore) -> list[Path]:
    return [path for kind in (".incoming", ".leaving") for path in (store.root / kind).glob("*")]


def test_stored_files_are_read_only(store, source):
    """Stored files have no write permission, so that a slip of a job changes nothing."""
    uri, _ = store.put(source, "data")
    assert all(path.stat().st_mode & 0o777 == 0o444 for path in store.path(uri).iterdir())


def test_a_full_disk_leaves_nothing(store, source, monkeypatch):
    """A disk that fills up during a copy is told as such, and no part of the copy stays."""
    copied = []

    def fill_up(path, destination):
        copied.append(path)
        if len(copied) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(path, destination)

    original = module._copy_file
    monkeypatch.setattr(module, "_copy_file", fill_up)
    with pytest.raises(Unavailable, match="no space left"):
        store.put(source, "data")
    assert store.paths("data") == ()
    assert not _leftovers(store)


def test_a_kill_during_a_copy_shows_nothing(store, source):
    """A process killed in the middle of a copy leaves nothing visible, and the next one completes the work."""
    program = (
        "import os, signal, sys; from pathlib import Path; from mlgitops.adapters.store import folder\n"
        "original = folder._copy_file\n"
        "def copy(path, destination):\n"
        "    if path.name == '7.bin': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return original(path, destination)\n"
        "folder._copy_file = copy\n"
        "folder.FolderStore(Path(sys.argv[1]), 'claim').put(Path(sys.argv[2]), 'data')\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, store.root, source], check=False)
    assert killed.returncode == -9
    assert store.paths("data") == ()
    assert len(_leftovers(store)) == 1
    uri, digest = store.put(source, "data")
    assert store.digest(uri) == digest


def test_old_leftovers_are_removed(store, source):
    """What killed processes left is removed after a day, and not before: it may be another process at work."""
    (store.root / ".incoming" / "old").mkdir(parents=True)
    (store.root / ".incoming" / "new").mkdir()
    day_ago = time.time() - 90_000
    os.utime(store.root / ".incoming" / "old", (day_ago, day_ago))
    store.put(source, "data")
    assert [path.name for path in _leftovers(store)] == ["new"]


def test_many_processes_put_the_same(store, source):
    """Several processes that put the same bytes at once all succeed, and one copy is kept."""
    program = (
        "import sys; from pathlib import Path; from mlgitops.adapters.store.folder import FolderStore\n"
        "print(FolderStore(Path(sys.argv[1]), 'claim').put(Path(sys.argv[2]), 'data')[0])\n"
    )
    command = [sys.executable, "-c", program, store.root, source]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert printed == set(store.paths("data"))
    assert not _leftovers(store)


def test_lost_race_keeps_the_winner(store, source, monkeypatch):
    """A copy that arrives second finds the first, checks it, and leaves no trace."""
    original = module._copy
    second = FolderStore(store.root, "claim")

    def copy_and_lose(*arguments, **options):
        digest = original(*arguments, **options)
        monkeypatch.setattr(module, "_copy", original)
        second.put(source, "data")
        return digest

    monkeypatch.setattr(module, "_copy", copy_and_lose)
    uri, digest = store.put(source, "data")
    assert store.digest(uri) == digest
    assert not _leftovers(store)


def test_changed_bytes_are_found_at_the_next_put(store, source):
    """Bytes changed behind the store's back are an error at the next put, never taken for the right ones."""
    uri, _ = store.put(source, "data")
    stored = store.path(uri) / "3.bin"
    stored.chmod(0o644)
    stored.write_bytes(b"other")
    with pytest.raises(DigestMismatch):
        store.put(source, "data")


def test_links_planted_in_the_store_lead_nowhere(store, source, tmp_path):
    """A link that a job puts into the volume cannot make the tool read, write or delete outside it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.txt").write_text("keep")
    store.root.mkdir()
    (store.root / "models").symlink_to(outside)
    for act in (
        lambda: store.path(store.uri("models/keep.txt")),
        lambda: store.delete(store.uri("models/keep.txt")),
        lambda: store.put(source, "models"),
        lambda: store.put(source, "models/inner"),
    ):
        with pytest.raises(InvalidInput, match="leads out"):
            act()
    store.delete(store.uri("models"))
    assert not (store.root / "models").is_symlink()
    assert (outside / "keep.txt").read_text() == "keep"
    assert [path.name for path in outside.iterdir()] == ["keep.txt"]
