"""Directories of files by content: what is in them, and the digest that names it.

One definition serves the store, the servers and the evaluation: the digest of a directory is `Digest.of_files` over
every file below it, by its path relative to the directory, whatever its mode, owner or time are.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.names import Digest

CHUNK_BYTES: Final = 1 << 20
_SPECIAL: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def walk_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Walk the regular files below `root`, sorted by relative path within each folder.

    Links are followed while they stay below `root`. Empty folders are not listed.

    Args:
        root: A directory; itself it may be a link.

    Yields:
        Relative path with `/`, and the file it resolves to (never a link).

    Raises:
        InvalidInput: A link that leaves `root`, dangles or closes a circle; a device, socket or named pipe; a name that
            is not UTF-8 or holds control characters (it could forge a line of the digest).
        NotFound: `root` is no directory.
    """
    try:
        base = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise NotFound("directory", str(root)) from error
    if not base.is_dir():
        raise NotFound("directory", str(root))
    yield from _walk(base, base, "", (base,))


def _walk(base: Path, folder: Path, prefix: str, open_folders: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    for name in sorted(os.listdir(folder)):
        relative = check_name(f"{prefix}{name}", base)
        found = resolve_below(base, folder / name)
        if found.is_dir():
            if found in open_folders:
                raise _refused(folder / name, "is a link to a folder that contains it", "remove the link")
            yield from _walk(base, found, f"{relative}/", (*open_folders, found))
        else:
            yield relative, found


def check_name(relative: str, base: Path) -> str:
    """Return a relative path when it is UTF-8 without control characters; `InvalidInput` otherwise."""
    try:
        relative.encode()
    except UnicodeEncodeError as error:
        raise _refused(base, f"holds a name that is not UTF-8: {relative!r}", "rename the file") from error
    if not relative.isprintable():
        raise _refused(base, f"holds a name with control characters: {relative!r}", "rename the file")
    return relative


def resolve_below(base: Path, path: Path) -> Path:
    """Return what `path` is after following links: a regular file or a folder below `base`.

    Args:
        base: A resolved directory.
        path: A path below it, as written.

    Raises:
        InvalidInput: It leaves `base`, leads nowhere, or is neither a regular file nor a folder.
    """
    try:
        found = path.resolve(strict=True)
        mode = found.stat().st_mode
    except (OSError, RuntimeError) as error:
        raise _refused(path, "is a link that leads nowhere", "remove the link or put the file there") from error
    if not found.is_relative_to(base):
        raise _refused(path, f"is a link that leaves {base.name}", "copy the file into the folder")
    kind = stat.S_IFMT(mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise _refused(path, f"is {_SPECIAL.get(kind, 'no regular file')}", "only regular files can be kept")
    return found


def _refused(path: Path, what: str, mend: str) -> InvalidInput:
    return InvalidInput([Problem(message=what, path=os.fsencode(path).decode(errors="replace"), mend=mend)])


def open_regular(path: Path) -> BufferedReader:
    """Open a resolved regular file for reading; `InvalidInput` when it was exchanged for something else meanwhile."""
    try:
        # Without O_NONBLOCK, opening a pipe that was put in the file's place would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}", "make it readable") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path, "is no regular file any more", "only regular files can be kept")
    return os.fdopen(descriptor, "rb")


def file_digest(path: Path) -> Digest:
    """Return the digest of a regular file's bytes, read in bounded memory."""
    with open_regular(path) as stream:
        return Digest("sha256:" + hashlib.file_digest(stream, "sha256").hexdigest())


def directory_files(root: Path) -> dict[str, Digest]:
    """Return the digest of every file below `root` by relative path; errors as `walk_files`."""
    return {relative: file_digest(path) for relative, path in walk_files(root)}


def directory_digest(root: Path) -> Digest:
    """Return the digest of a directory: `Digest.of_files` over `directory_files`."""
    return Digest.of_files(directory_files(root))
