"""Writing the tree of one commit to a folder, such as a pushed commit that is to be built."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import FileMode

from mlgitops.adapters.repository import trees
from mlgitops.adapters.repository.bare import open_bare
from mlgitops.core.errors import InvalidInput, NotFound, Problem, Unavailable
from mlgitops.core.names import parse_revision

_LINKS_LIMIT: Final = 40
"""How many links one path may lead through, as in Linux."""
_LINK_BYTES: Final = 4096


def export_tree(repository: Path, revision: str, target: Path) -> None:
    """Write the tree of a commit to `target`: regular files with their executable bit, and links that stay inside.

    Args:
        repository: A bare repository on this machine.
        revision: The commit, 40 hexadecimal digits.
        target: A folder that is empty or does not exist yet.

    Raises:
        NotFound: There is no such repository or commit.
        InvalidInput: The target holds something, or the tree holds submodules, links that leave it, or names that
            must not be written; every one is told, and nothing is written.
        Unavailable: The disk refused.
    """
    opened = open_bare(repository)
    commit = opened.get(parse_revision(revision))
    if not isinstance(commit, pygit2.Commit):
        raise NotFound("revision", revision)
    entries = dict(trees.walk(commit.tree))
    problems = [
        Problem(message=f"{path!r:.200} {fault}", path=path)
        for path, entry in entries.items()
        if (fault := _fault(entries, path, entry))
    ]
    if problems:
        raise InvalidInput(problems)
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise InvalidInput(f"{target} is not empty")
        _write(entries, target)
    except OSError as error:
        raise Unavailable(str(target), f"the tree could not be written: {error.strerror}") from error


def _fault(entries: Mapping[str, pygit2.Object], path: str, entry: pygit2.Object) -> str | None:
    """Return why an entry must not be written, or None when it may."""
    if fault := trees.path_fault(path):
        return fault
    if entry.filemode == FileMode.COMMIT:
        return "is a submodule; keep its files in the repository itself"
    if entry.filemode == FileMode.LINK and not _stays_inside(entries, path):
        return "is a link that leads out of the repository"
    return None


def _stays_inside(entries: Mapping[str, pygit2.Object], path: str) -> bool:
    """Follow a link through the tree as the system would: whether it, and every link on its way, stays inside."""
    here: list[str] = []
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            if not here:
                return False
            here.pop()
            continue
        here.append(name)
        entry = entries.get("/".join(here))
        if isinstance(entry, pygit2.Blob) and entry.filemode == FileMode.LINK:
            links += 1
            destination = _destination(entry)
            if destination is None or links > _LINKS_LIMIT:
                return False
            here.pop()
            todo.extend(destination.split("/")[::-1])
    return True


def _destination(link: pygit2.Blob) -> str | None:
    """Return where a link leads, relative to its folder; None when that is absolute or no path."""
    if link.size > _LINK_BYTES or b"\0" in link.data or link.data[:1] in {b"", b"/"}:
        return None
    return link.data.decode("utf-8", errors="surrogateescape")


def _write(entries: Mapping[str, pygit2.Object], target: Path) -> None:
    links: list[tuple[Path, str]] = []
    for path, entry in entries.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(entry, pygit2.Blob):
            continue
        if entry.filemode == FileMode.LINK:
            links.append((place, _destination(entry) or ""))
            continue
        place.write_bytes(entry.data)
        place.chmod(0o755 if entry.filemode == FileMode.BLOB_EXECUTABLE else 0o644)
    for place, destination in links:  # last, so that no file is ever written through one
        place.symlink_to(destination)
