"""What every store promises: bytes under a digest that never change, and nothing that leads out of it."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlgitops.adapters.store.folder import FolderStore
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.names import Digest
from mlgitops.ports.store import Store

HOSTILE = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "a//b",
    "a/./b",
    "",
    "a/",
    "%2e%2e/x",
    "a\\b",
    "a\nb",
    "a\0b",
    ".incoming/x",
    "a?b",
    "a#b",
    "x" * 300,
]


@pytest.fixture(params=["folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FolderStore(tmp_path / "store", "mlgitops-store")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"one")
    (folder / "inner" / "b.bin").write_bytes(b"\0\1\2" * 1000)
    return folder


def test_put_and_read_back(store: Store, source: Path) -> None:
    """What was put is found again under its URI, byte for byte, and its URI holds its digest."""
    uri, digest = store.put(source, "data/digits")
    assert uri == f"pvc://mlgitops-store/data/digits/{digest.hex}"
    assert (store.path(uri) / "a.txt").read_bytes() == b"one"
    assert (store.path(uri) / "inner" / "b.bin").read_bytes() == b"\0\1\2" * 1000
    assert store.digest(uri) == digest
    assert digest == Digest.of_files({"a.txt": Digest.of(b"one"), "inner/b.bin": Digest.of(b"\0\1\2" * 1000)})


def test_put_of_one_file(store: Store, source: Path) -> None:
    """A single file keeps its name, its URI leads to the file itself, and its digest is that of the set of it alone."""
    uri, digest = store.put(source / "a.txt", "data/digits")
    assert uri == f"pvc://mlgitops-store/data/digits/{digest.hex}/a.txt"
    assert store.path(uri).read_bytes() == b"one"
    assert digest == Digest.of_files({"a.txt": Digest.of(b"one")}) == store.digest(uri)


def test_put_again_is_the_same(store: Store, source: Path) -> None:
    """Putting the same bytes twice gives the same URI, whatever modes and times the files have."""
    first = store.put(source, "data")
    os.utime(source / "a.txt", (1, 1))
    (source / "a.txt").chmod(0o777)
    assert store.put(source, "data") == first
    assert store.paths("data") == (first[0],)


def test_other_bytes_get_another_uri(store: Store, source: Path) -> None:
    """Changed content never replaces what is kept."""
    before, _ = store.put(source, "data")
    (source / "a.txt").write_bytes(b"two")
    after, _ = store.put(source, "data")
    assert before != after
    assert (store.path(before) / "a.txt").read_bytes() == b"one"


def test_a_renamed_file_is_another_digest(store: Store, source: Path) -> None:
    """Names belong to the content."""
    _, before = store.put(source, "data")
    (source / "a.txt").rename(source / "c.txt")
    assert store.put(source, "data")[1] != before


def test_links_inside_are_stored_as_files(store: Store, source: Path) -> None:
    """A link that stays inside is kept as what it leads to."""
    (source / "link").symlink_to("inner/b.bin")
    (source / "folder").symlink_to("inner")
    uri, _ = store.put(source, "data")
    for name in ("link", "folder/b.bin"):
        stored = store.path(uri) / name
        assert not stored.is_symlink()
        assert stored.read_bytes() == b"\0\1\2" * 1000


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.txt", "missing", "."])
def test_links_that_leave_are_refused(store: Store, source: Path, target: str) -> None:
    """A link that leaves what is put, leads nowhere or closes a circle is refused, and nothing is stored."""
    (source.parent / "outside.txt").write_text("secret")
    (source / "link").symlink_to(target)
    with pytest.raises(InvalidInput, match="link"):
        store.put(source, "data")
    assert store.paths("data") == ()


def test_special_files_are_refused(store: Store, source: Path) -> None:
    """A named pipe is refused at once instead of waited for."""
    os.mkfifo(source / "pipe")
    with pytest.raises(InvalidInput, match="pipe"):
        store.put(source, "data")
    with pytest.raises(InvalidInput):
        store.put(source / "pipe", "data")


def test_names_that_could_forge_a_digest_are_refused(store: Store, source: Path) -> None:
    """A file's name with a line break cannot stand for two lines of a digest."""
    (source / "a\nb").write_bytes(b"")
    with pytest.raises(InvalidInput, match="control characters"):
        store.put(source, "data")


def test_names_that_are_not_text_are_refused(store: Store, source: Path) -> None:
    """A name that is not UTF-8 is refused."""
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_bytes(b"")
    with pytest.raises(InvalidInput, match="UTF-8"):
        store.put(source, "data")


def test_nothing_to_put(store: Store, tmp_path: Path) -> None:
    """An empty folder is refused, and one that is absent is told apart from it."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no files"):
        store.put(tmp_path / "empty", "data")
    with pytest.raises(NotFound):
        store.put(tmp_path / "absent", "data")


@pytest.mark.parametrize("path", HOSTILE)
def test_paths_that_leave_the_store_are_refused(store: Store, source: Path, path) -> None:
    """No spelling of a path leads out of the store, for any operation."""
    for act in (
        lambda: store.uri(path),
        lambda: store.put(source, path),
        lambda: store.path(f"pvc://mlgitops-store/{path}"),
        lambda: store.digest(f"pvc://mlgitops-store/{path}"),
        lambda: store.delete(f"pvc://mlgitops-store/{path}"),
    ):
        with pytest.raises(InvalidInput):
            act()


@pytest.mark.parametrize(
    "uri", ["pvc://other/data", "file:///etc/passwd", "mlgitops-store/data", "pvc://mlgitops-store"]
)
def test_foreign_uris_are_refused(store: Store, uri: str) -> None:
    """A URI of another store is refused rather than looked for here."""
    with pytest.raises(InvalidInput, match="not in this store"):
        store.path(uri)


def test_absent_uris(store: Store) -> None:
    """What is not there is `NotFound`, has no paths, and frees nothing when deleted."""
    uri = store.uri("models/digits/abc")
    for act in (store.path, store.digest):
        with pytest.raises(NotFound):
            act(uri)
    assert store.paths("models") == ()
    assert store.delete(uri) == 0


def test_delete(store: Store, source: Path) -> None:
    """Deleting frees the bytes of one URI, leaves its neighbours, and may be repeated."""
    uri, _ = store.put(source, "data")
    other, _ = store.put(source / "a.txt", "data")
    assert store.delete(uri) == 3003
    assert store.delete(uri) == 0
    assert store.paths("data") == (other.rpartition("/")[0],)
    assert store.delete(other) == 3
    assert store.paths("data") == ()
    assert store.put(source, "data")[0] == uri


def test_what_is_used_stays(store: Store, tmp_path: Path) -> None:
    """What was put, or found by a put, since a moment is not deleted; what was not is, and its size is known before."""
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    uri, _ = store.put(file, "data")
    folder = uri.rpartition("/")[0]
    assert store.size_bytes(folder) == 3
    now = datetime.now(UTC)
    assert store.delete(folder, unless_used_since=now - timedelta(minutes=1)) == 0
    assert store.path(uri).read_bytes() == b"abc"
    assert store.delete(folder, unless_used_since=now + timedelta(minutes=1)) == 3
    assert store.size_bytes(folder) == 0
    assert store.paths("data") == ()
