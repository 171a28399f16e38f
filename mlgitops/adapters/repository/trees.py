"""Trees in memory: which paths may be written, and how trees are read, listed and edited without a checkout."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pygit2
from pygit2.enums import FileMode

from mlgitops.core.errors import InvalidInput, Problem

REGULAR: Final = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_COMPONENT_BYTES: Final = 255
"""What common file systems take for one name."""
_PATH_BYTES: Final = 4096
"""PATH_MAX of Linux."""
_KINDS: Final = {FileMode.TREE: "a folder", FileMode.LINK: "a symbolic link", FileMode.COMMIT: "a submodule"}

Item = tuple[tuple[str, ...], bytes | None]
"""A path by its components, and the content it is to have; None deletes."""


def name_fault(name: str) -> str | None:
    """Return why one component of a path may not be written to a file system, or None when it may."""
    if name in {"", ".", ".."}:
        return f"has the component {name!r}"
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        return "has a control character, a line separator or undecodable bytes"
    if "/" in name or "\\" in name:
        return "has a slash or backslash inside a name"
    if len(name.encode()) > _COMPONENT_BYTES:
        return f"has a name longer than {_COMPONENT_BYTES} bytes"
    # Some file systems ignore format characters, case, and dots or spaces at the end: `.g\u200cit`, `.GIT`, `.git.`.
    seen = "".join(character for character in name if unicodedata.category(character) != "Cf").casefold()
    if seen.rstrip(". ") in {".git", "git~1"}:
        return "names git's own folder"
    return None


def path_fault(path: str) -> str | None:
    """Return why a path from a repository's root may not be written, or None when it may."""
    if path.startswith("/"):
        return "is absolute; give it from the repository's root"
    if len(path.encode(errors="replace")) > _PATH_BYTES:
        return f"is longer than {_PATH_BYTES} bytes"
    return next(filter(None, map(name_fault, path.split("/"))), None)


def check_paths(files: Mapping[str, bytes | None]) -> None:
    """Refuse hostile paths.

    Raises:
        InvalidInput: With one problem for each path that may not be written.
    """
    problems = [
        Problem(message=f"the path {path!r:.120} {fault}", path=repr(path)[1:-1][:120])
        for path in files
        if (fault := path_fault(path))
    ]
    if problems:
        raise InvalidInput(problems)


LISTED: Final = 8_192
"""Folders whose paths are kept: under the same identity a tree has the same paths, whatever the revision."""
_listed: dict[tuple[pygit2.Oid, str], tuple[str, ...]] = {}


def find(tree: pygit2.Tree | None, path: str) -> pygit2.Object | None:
    """Return the entry at a path, or None; folders on the way are followed, links and submodules are not."""
    found: pygit2.Object | None = tree
    for name in path.split("/"):
        if not isinstance(found, pygit2.Tree) or not name or name not in found:
            return None
        found = found[name]
    return found


def read(tree: pygit2.Tree | None, path: str) -> bytes | None:
    """Return the content of the regular file at a path, or None when there is none."""
    entry = find(tree, path)
    return entry.data if isinstance(entry, pygit2.Blob) and entry.filemode in REGULAR else None


def walk(tree: pygit2.Tree, prefix: str = "") -> Iterator[tuple[str, pygit2.Object]]:
    """Yield every entry below a tree that is not a folder, with its path, in git's order."""
    for entry in tree:
        path = prefix + (entry.name or "")
        if isinstance(entry, pygit2.Tree):
            yield from walk(entry, path + "/")
        else:
            yield path, entry


def regular_paths(top: pygit2.Tree | None, folder: str) -> tuple[str, ...]:
    """Return the paths of the regular files below `top`, which stands at the path `folder`, sorted."""
    if top is None:
        return ()
    known = _listed.get((top.id, folder))
    if known is None:
        entries = walk(top, folder + "/" if folder else "")
        known = tuple(sorted(path for path, entry in entries if entry.filemode in REGULAR))
        _listed[top.id, folder] = known
        while len(_listed) > LISTED:
            _listed.pop(next(iter(_listed)), None)
    return known


def edit(repository: pygit2.Repository, tree: pygit2.Tree | None, files: Mapping[str, bytes | None]) -> pygit2.Oid:
    """Write the tree that results from giving `files` their contents; None deletes, and empty folders go with it.

    Files keep their executable bit. Deleting what is not there changes nothing.

    Returns:
        The new tree's identity, equal to the old one's when no byte was altered.

    Raises:
        InvalidInput: A path is hostile, runs through a file, link or submodule, or names something that is no file.
    """
    check_paths(files)
    items: list[Item] = [(tuple(path.split("/")), content) for path, content in sorted(files.items())]
    editor = _Editor(repository)
    # Deletions come first, so that one change can turn a file into a folder of the same name, or back.
    for chosen in ([item for item in items if item[1] is None], [item for item in items if item[1] is not None]):
        if chosen:
            identity = editor.folder(tree, chosen, "")
            tree = tree_of(repository, identity) if identity else None
    if editor.problems:
        raise InvalidInput(editor.problems)
    return tree.id if tree is not None else repository.TreeBuilder().write()


def tree_of(repository: pygit2.Repository, identity: pygit2.Oid) -> pygit2.Tree:
    """Return a tree by its identity."""
    found = repository[identity]
    if not isinstance(found, pygit2.Tree):  # an object's identity fixes its kind
        raise TypeError(f"{identity} is not a tree")
    return found


class _Editor:
    """Rewrites the folders on the way to the edited files, and no others."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self.problems: list[Problem] = []
        self._repository = repository

    def folder(self, tree: pygit2.Tree | None, items: Sequence[Item], where: str) -> pygit2.Oid | None:
        """Return the identity of the edited folder, or None when nothing is left in it."""
        builder = self._repository.TreeBuilder() if tree is None else self._repository.TreeBuilder(tree)
        below: dict[str, list[Item]] = defaultdict(list)
        for parts, content in items:
            if len(parts) == 1:
                self._file(builder, parts[0], content, where)
            else:
                below[parts[0]].append((parts[1:], content))
        for name, inner in below.items():
            self._subfolder(builder, name, inner, where)
        return builder.write() if len(builder) else None

    def _file(self, builder: pygit2.TreeBuilder, name: str, content: bytes | None, where: str) -> None:
        entry = builder.get(name)
        if entry is not None and entry.filemode not in REGULAR:
            self._refuse(where + name, f"is {_KINDS.get(entry.filemode, 'no file')}; only regular files are edited")
        elif content is not None:
            mode = FileMode.BLOB if entry is None else entry.filemode
            builder.insert(name, self._repository.create_blob(content), mode)
        elif entry is not None:
            builder.remove(name)

    def _subfolder(self, builder: pygit2.TreeBuilder, name: str, items: Sequence[Item], where: str) -> None:
        entry = builder.get(name)
        path = where + name
        if entry is not None and not isinstance(entry, pygit2.Tree):
            deleting = items[0][1] is None
            if entry.filemode in REGULAR and deleting:
                return  # below a file there is nothing to delete
            self._refuse(path, f"is {_KINDS.get(entry.filemode, 'a file')}; nothing can be written below it")
            return
        identity = self.folder(entry, items, path + "/")
        if identity is not None:
            builder.insert(name, identity, FileMode.TREE)
        elif entry is not None:
            builder.remove(name)

    def _refuse(self, path: str, fault: str) -> None:
        self.problems.append(Problem(message=f"the path {path!r:.120} {fault}", path=path))
