"""Files of this machine: digests over directories, and writes that are there wholly or not at all."""

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.names import Digest


def directory_files(path: Path) -> dict[str, Digest]:
    """Return the content digest of every file under `path`, by relative path with `/`.

    A single file counts as a directory that holds it alone. Links to files inside the directory count as the
    files they point to. `Digest.of_files` makes one digest of the answer: an artifact's identity.

    Raises:
        NotFound: Nothing is there.
        InvalidInput: A link leaves the directory or points to a directory, a device or socket is there, or a name
            cannot be written on one line; all of them are named.
    """
    if not path.exists():
        raise NotFound("file or directory", str(path))
    if path.is_file():
        return {path.name: _content(path)}
    root = path.resolve()
    found: dict[str, Digest] = {}
    problems: list[str] = []
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted(names + links):
            file = Path(folder) / name
            relative = file.relative_to(root).as_posix()
            if problem := _problem(file, root, relative):
                problems.append(problem)
            elif not problems:
                found[relative] = _content(file)
    if problems:
        raise InvalidInput("; ".join(problems), path=str(path))
    return found


def directory_digest(path: Path) -> Digest:
    """Return the digest over the files under `path` (see `directory_files`)."""
    return Digest.of_files(directory_files(path))


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Put `data` at `path` so that a reader, or a crash at any moment, meets the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _problem(file: Path, root: Path, relative: str) -> str:
    """Say why a file cannot be part of an artifact; empty when it can."""
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in relative):
        return f"{relative!r} has characters that no artifact's path may have"
    if file.is_symlink():
        target = file.resolve()
        if not target.is_relative_to(root):
            return f"{relative} is a link that leaves the directory"
        if not target.is_file():
            return f"{relative} is a link to something that is not a file"
        return ""
    return "" if stat.S_ISREG(file.lstat().st_mode) else f"{relative} is not a regular file"


def _content(file: Path) -> Digest:
    with file.open("rb") as stream:
        return Digest("sha256:" + hashlib.file_digest(stream, "sha256").hexdigest())
