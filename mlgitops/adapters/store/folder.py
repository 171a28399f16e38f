"""A store in a folder of this machine: what a shared volume is to the embedded engine.

Layout: `<root>/<folder>/<64 hex digits>` is a directory put by digest, `<root>/<folder>/<64 hex digits>/<name>` a
single file. What is being written lives below `<root>/.incoming`, what is being deleted below `<root>/.leaving`; a
rename makes either visible at once, so nobody ever sees half of it, whenever a process is killed.
"""

import errno
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from mlgitops.adapters.files import CHUNK_BYTES, check_name, directory_files, file_digest, open_regular, walk_files
from mlgitops.core.errors import DigestMismatch, InvalidInput, NotFound, Problem, Unavailable
from mlgitops.core.names import Digest, parse_name

SCHEME: Final = "pvc://"
_HEX: Final = re.compile(r"[0-9a-f]{64}")
NAME_BYTES: Final = 255
_INCOMING: Final = ".incoming"
_LEAVING: Final = ".leaving"
_ABANDONED_SECONDS: Final = 86_400
"""Leftovers of killed processes are removed at this age; no copy of one input takes that long."""
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FolderStore:
    """Data and models by digest below one folder, under URIs `pvc://<claim>/<path>`; implements `ports.store.Store`.

    Safe for any number of processes at once. Files that were put are read-only; folders stay writable, so that people
    can delete a store with plain tools. Who loads something compares its digest.
    """

    def __init__(self, root: Path, claim: str) -> None:
        """Keep everything below `root`, which is made when first needed; `claim` is the volume claim's name."""
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow links before the check of them
        self._claim = parse_name(claim, "volume claim", 63)

    @property
    def root(self) -> Path:
        """The folder that is the volume: what a job finds mounted as the claim."""
        return self._root

    def put(self, source: Path, folder: str) -> tuple[str, Digest]:
        """Put a file or directory under its digest unless it is there.

        Args:
            source: A regular file or a directory. Links below a directory are stored as what they lead to; file modes,
                owners, times and empty folders are not kept, and do not change the digest.
            folder: Relative path in the store, like `data/digits`.

        Returns:
            URI and digest. A directory's URI is `<folder>/<hex>`; a single file's is `<folder>/<hex>/<name>`, and its
            digest is the one of the set that holds that file alone.

        Raises:
            NotFound: `source` does not exist.
            InvalidInput: It is empty, or holds links that leave it, devices, sockets, pipes or impossible names.
            DigestMismatch: The bytes kept under this digest were changed behind the store's back.
            Unavailable: The disk is full or cannot be written; nothing is left behind.
        """
        parent = self._local(_parts(folder, folder))
        single = source.is_file()
        if not single and not source.is_dir():
            raise _absent_or_special(source)
        with self._storage_errors():
            # Most pushes change code only: reading first spares writing what is there already.
            digest = _digest(source, single=single)
            if _touched(parent / digest.hex):
                self._verify(parent / digest.hex, digest)
            else:
                with self._incoming() as incoming:
                    digest = _copy(source, incoming, single=single)
                    self._publish(incoming, parent / digest.hex, digest)
        stored = f"{folder}/{digest.hex}"
        return self.uri(f"{stored}/{source.name}" if single else stored), digest

    def uri(self, path: str) -> str:
        """Return the URI for a relative path of this store, which need not exist; `InvalidInput` when it leaves it."""
        return f"{SCHEME}{self._claim}/{'/'.join(_parts(path, path))}"

    def path(self, uri: str) -> Path:
        """Return where the bytes of `uri` are; `InvalidInput` for what leads out of the store, `NotFound` for none."""
        local = self._local(self._parse(uri))
        try:
            found = local.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise NotFound("artifact", uri) from error
        if not found.is_relative_to(self._root.resolve()):
            raise InvalidInput(f"{uri} leads out of the store")
        return found

    def digest(self, uri: str) -> Digest:
        """Return the digest over the files under `uri`, read now; of a single file, of the set that holds it alone."""
        path = self.path(uri)
        with self._storage_errors():
            files = {path.name: file_digest(path)} if path.is_file() else directory_files(path)
        return Digest.of_files(files)

    def paths(self, folder: str) -> tuple[str, ...]:
        """Return the URIs directly below a folder, sorted; empty when there is no such folder."""
        parts = _parts(folder, folder) if folder else ()
        try:
            names = sorted(entry.name for entry in self._local(parts).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return tuple(self.uri("/".join((*parts, name))) for name in names if _acceptable(name))

    def size_bytes(self, uri: str) -> int:
        """Return the size of all files under `uri`; 0 when there is nothing."""
        with self._storage_errors():
            return _size(self._local(self._parse(uri)))

    def delete(self, uri: str, *, unless_used_since: datetime | None = None) -> int:
        """Delete what is under `uri`, at once for everybody else; returns bytes freed, 0 when there was nothing.

        A link is deleted itself, never what it leads to. What was put, or found by a `put`, since `unless_used_since`
        stays.
        """
        parts = self._parse(uri)
        local = self._local(parts)
        with self._storage_errors():
            if not os.path.lexists(local) or _used_since(local, unless_used_since):
                return 0
            if not local.parent.resolve().is_relative_to(self._root.resolve()):
                raise InvalidInput(f"{uri} leads out of the store")
            leaving = self._scratch(_LEAVING)
            with suppress(FileNotFoundError):  # somebody else deletes it too
                local.rename(leaving)
            if _used_since(leaving, unless_used_since):  # somebody found it in between
                self._put_back(leaving, local)
                return 0
            freed = _remove(leaving)
            if _HEX.fullmatch(local.parent.name):
                with suppress(OSError):  # holds more than this file
                    local.parent.rmdir()
        return freed

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what interrupted puts and deletions left."""
        with self._storage_errors():
            for kind in (_INCOMING, _LEAVING):
                _sweep(self._root / kind, unless_used_since.timestamp())

    @staticmethod
    def _put_back(leaving: Path, local: Path) -> None:
        """Undo a deletion, unless the same bytes were put again meanwhile."""
        try:
            leaving.rename(local)
        except OSError:
            if not local.exists():
                raise
            _remove(leaving)

    def _parse(self, uri: str) -> tuple[str, ...]:
        claim, slash, path = uri.removeprefix(SCHEME).partition("/")
        if not uri.startswith(SCHEME) or claim != self._claim or not slash:
            raise InvalidInput(f"{uri!r:.200} is not in this store ({SCHEME}{self._claim}/…)")
        return _parts(path, uri)

    def _local(self, parts: tuple[str, ...]) -> Path:
        return self._root.joinpath(*parts)

    def _scratch(self, kind: str) -> Path:
        folder = self._root / kind
        folder.mkdir(parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex

    @contextmanager
    def _incoming(self) -> Iterator[Path]:
        """Lend a fresh folder inside the store's own file system; what is left of it goes away."""
        folder = self._scratch(_INCOMING)
        for kind in (_INCOMING, _LEAVING):
            _sweep(self._root / kind, time.time() - _ABANDONED_SECONDS)
        folder.mkdir()
        try:
            yield folder
        finally:
            if folder.exists():
                _remove(folder)

    def _publish(self, incoming: Path, target: Path, digest: Digest) -> None:
        """Move a complete copy to its place, or check what stands there already."""
        while True:
            if not target.parent.resolve().is_relative_to(self._root.resolve()):
                raise InvalidInput(f"{target.parent.relative_to(self._root)} is a link that leads out of the store")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                incoming.rename(target)
            except OSError as error:
                if error.errno == errno.ENOENT and incoming.exists():
                    continue  # the folder was empty and somebody removed it in between
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                found = Digest.of_files(directory_files(target))
                if found != digest:
                    raise DigestMismatch(
                        self.uri(str(target.relative_to(self._root))), str(digest), str(found)
                    ) from error
            else:
                _flush(target.parent)
            return

    def _verify(self, target: Path, digest: Digest) -> None:
        found = Digest.of_files(directory_files(target))
        if found != digest:
            raise DigestMismatch(self.uri(str(target.relative_to(self._root))), str(digest), str(found))

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = "no space left" if error.errno in _NO_SPACE else (error.strerror or type(error).__name__)
            raise Unavailable(f"store {self._root}", reason) from error


def _parts(path: str, shown: str) -> tuple[str, ...]:
    """Split a relative path into safe names, or refuse it."""
    parts = tuple(path.split("/"))
    if not all(_acceptable(part) for part in parts):
        raise InvalidInput(
            f"{shown!r:.200} must be plain names with '/' between them, without '.', '..', '%', '\\', ':' or "
            "control characters, and none may start with a dot"
        )
    return parts


def _acceptable(part: str) -> bool:
    # A dot in front is the store's own; '%' and the rest mean something else to one of the readers of URIs.
    plain = part.isprintable() and not part.startswith(".") and not set(part) & set("%\\?#:")
    return plain and 0 < len(os.fsencode(part)) <= NAME_BYTES


def _absent_or_special(source: Path) -> InvalidInput | NotFound:
    if not os.path.lexists(source):
        return NotFound("file or directory", str(source))
    mend = "name a regular file or a directory"
    return InvalidInput([Problem(message="is neither a regular file nor a directory", path=str(source), mend=mend)])


def _files(source: Path, *, single: bool) -> Iterator[tuple[str, Path]]:
    if not single:
        return walk_files(source)
    _parts(check_name(source.name, source), source.name)
    return iter([(source.name, source.resolve())])


def _digest(source: Path, *, single: bool) -> Digest:
    files = {relative: file_digest(path) for relative, path in _files(source, single=single)}
    if not files:
        raise InvalidInput([Problem(message="holds no files", path=str(source), mend="put at least one file there")])
    return Digest.of_files(files)


def _copy(source: Path, target: Path, *, single: bool) -> Digest:
    """Copy regular files to `target`, flushed to disk and read-only; the digest is that of the bytes copied."""
    digests: dict[str, Digest] = {}
    folders = {target}
    for relative, path in _files(source, single=single):
        destination = target / relative
        destination.parent.mkdir(parents=True, exist_ok=True)
        folders.update(parent for parent in destination.parents if parent.is_relative_to(target))
        digests[relative] = _copy_file(path, destination)
    for folder in folders:
        _flush(folder)
    return Digest.of_files(digests)


def _copy_file(source: Path, destination: Path) -> Digest:
    hasher = hashlib.sha256()
    with open_regular(source) as reader, destination.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            hasher.update(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
        os.fchmod(writer.fileno(), 0o444)
    return Digest("sha256:" + hasher.hexdigest())


def _flush(folder: Path) -> None:
    """Write a folder's entries to disk, so that a rename never survives a power cut that its files do not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _touched(path: Path) -> bool:
    """Say whether something is there, and mark it as used now: who deletes what nobody uses looks at that."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _used_since(path: Path, moment: datetime | None) -> bool:
    try:
        return moment is not None and path.lstat().st_mtime >= moment.timestamp()
    except FileNotFoundError:
        return False


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if not os.path.lexists(path):
        return 0
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def _remove(path: Path) -> int:
    """Remove a file, link or tree that only this process knows; returns the bytes of its files."""
    size = _size(path)
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
    return size


def _sweep(folder: Path, oldest: float) -> None:
    """Remove what killed processes left before a time, in seconds since 1970."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    _remove(Path(entry.path))
