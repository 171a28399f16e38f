"""The `Repository` port through pygit2: one behaviour for a bare repository on disk and one behind https or ssh."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pygit2

from mlgitops.adapters.repository import commits, trees
from mlgitops.adapters.repository.bare import BareTransport
from mlgitops.adapters.repository.commits import Signing
from mlgitops.adapters.repository.location import Credentials, parse_location
from mlgitops.adapters.repository.transport import Move, Transport
from mlgitops.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from mlgitops.core.names import parse_revision
from mlgitops.ports.repository import Change, Commit, Person, Repository, Snapshot


def open_repository(
    location: str,
    *,
    identity: Person,
    cache: Path,
    credentials: Credentials | None = None,
    signing: Signing | None = None,
) -> Repository:
    """Open a repository for reading and for writing by compare-and-swap.

    Args:
        location: Path of a bare repository or `file://`, `http(s)://`, `ssh://`, or `user@host:path`.
        identity: Who commits, and who decided where a change names nobody.
        cache: Folder for clones of repositories behind a server; may be thrown away at any time.
        credentials: What opens the server; None means what the URL holds, or the ssh agent.
        signing: How commits are signed; None means they are not.

    Raises:
        InvalidInput: The location is none of these, the repository has a working tree, or the identity cannot be
            written into a commit.
        NotFound: There is no repository at that path. One behind a server is first looked for by `snapshot`.
    """
    place = parse_location(location)
    person = commits.check_identity(identity)
    transport: Transport
    if place.kind == "path":
        transport = BareTransport(Path(place.url).expanduser())
    else:
        from mlgitops.adapters.repository.remote import RemoteTransport  # what reads a folder needs no network

        transport = RemoteTransport(place, cache, credentials)
    return GitRepository(transport, identity=person, signing=signing)


class TreeSnapshot:
    """The tree of one revision; read where it was fetched, however the reference moves on."""

    def __init__(self, commit: pygit2.Commit | None) -> None:
        self._commit = commit
        self._tree = commit.tree if commit is not None else None
        self._known: dict[str, bytes | None] = {}
        self._folders: dict[str, pygit2.Tree | None] = {"": self._tree}

    @property
    def revision(self) -> str | None:
        """The revision, or None where the reference does not exist."""
        return str(self._commit.id) if self._commit is not None else None

    def read(self, path: str) -> bytes | None:
        """Return a regular file's content; None for what is missing, and for folders, links and submodules."""
        if path not in self._known:
            with _translated():
                folder, _, name = path.rpartition("/")
                self._known[path] = trees.read(self._folder(folder), name)
        return self._known[path]

    def _folder(self, path: str) -> pygit2.Tree | None:
        """Return a folder; each is looked up once, however many files are read of it."""
        if path not in self._folders:
            above, _, name = path.rpartition("/")
            found = trees.find(self._folder(above), name)
            self._folders[path] = found if isinstance(found, pygit2.Tree) else None
        return self._folders[path]

    def paths(self, prefix: str = "") -> tuple[str, ...]:
        """Return the paths of all regular files below the folder `prefix`, sorted."""
        with _translated():
            folder = prefix.rstrip("/")
            return trees.regular_paths(self._folder(folder), folder)


class GitRepository:
    """A git repository that is edited by compare-and-swap, without a checkout."""

    def __init__(self, transport: Transport, *, identity: Person, signing: Signing | None = None) -> None:
        self._transport, self._identity, self._signing = transport, identity, signing
        self._seen: dict[str, tuple[pygit2.Repository, TreeSnapshot]] = {}

    def snapshot(self, ref: str) -> Snapshot:
        """Fetch a reference and return its tree."""
        tip = self._transport.fetch(_checked(ref))
        if tip is None:
            return TreeSnapshot(None)
        # A pass looks many times, and most looks find the branch where it was: what was read of it is still right. A
        # clone that was made anew is another repository, and the objects of the former one are gone.
        repository, known = self._seen.get(ref, (None, None))
        if known is None or known.revision != str(tip) or repository is not self._transport.repository:
            known = TreeSnapshot(self._commit(str(tip)))
            self._seen[ref] = (self._transport.repository, known)
        return known

    def at(self, revision: str) -> Snapshot:
        """Return the tree of a revision reachable from a fetched reference."""
        with _translated():
            return TreeSnapshot(self._reachable(revision))

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Put changes on top of `expected` and move the reference there in one push, only if it still is there."""
        _checked(ref)
        parent = self._parent(ref, expected)
        tip = parent
        with _translated():
            for change in changes:
                tip = self._put(tip, change)
        if tip is None or tip == parent:
            return expected
        self._transport.move([Move(ref=ref, expected=parent.id if parent else None, target=tip.id)])
        return str(tip.id)

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Create several references, each with one commit without a parent; none of them may exist."""
        _check_beside(changes)
        with _translated():
            tips = {_checked(ref): self._write(None, change) for ref, change in changes.items()}
        if tips:
            self._transport.move([Move(ref=ref, expected=None, target=tip.id) for ref, tip in tips.items()])
        return {ref: str(tip.id) for ref, tip in tips.items()}

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Return the paths of files that differ between two revisions; trees that are the same are not opened."""
        with _translated():
            difference = self._reachable(before).tree.diff_to_tree(self._reachable(after).tree)
            both = ((one.old_file.path, one.new_file.path) for one in difference.deltas)
            return tuple(sorted({path for paths in both for path in paths}))

    def branch(self, ref: str, base: str, change: Change) -> str:
        """Create a reference with one commit on top of `base`; it may not exist."""
        _checked(ref)
        with _translated():
            tip = self._write(self._reachable(base), change, self._tree(base, change))
        self._transport.move([Move(ref=ref, expected=None, target=tip.id)])
        return str(tip.id)

    def _tree(self, base: str, change: Change) -> pygit2.Oid:
        return trees.edit(self._transport.repository, self._commit(base).tree, change.files)

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        """Walk first parents, newest first, up to but without `until`; only commits that touch `path`."""
        stop = parse_revision(until) if until is not None else None
        with _translated():
            return self._walk(self._reachable(revision), stop, path)

    def _walk(self, start: pygit2.Commit, until: str | None, path: str | None) -> Iterator[Commit]:
        commit: pygit2.Commit | None = start
        here = _entry(start, path)
        while commit is not None and str(commit.id) != until:
            with _translated():
                parent = self._commit(str(commit.parent_ids[0])) if commit.parent_ids else None
                before = _entry(parent, path)
            if path is None or here != before:
                yield commits.read_commit(commit)
            commit, here = parent, before

    def _parent(self, ref: str, expected: str | None) -> pygit2.Commit | None:
        if expected is None:
            return None
        try:
            return self._commit(parse_revision(expected))
        except NotFound:
            found = self._transport.fetch(ref)
            if found is not None and str(found) == expected:
                return self._commit(expected)
            raise Conflict(ref, expected, str(found) if found else None) from None

    def _put(self, parent: pygit2.Commit | None, change: Change) -> pygit2.Commit | None:
        """Return the commit that makes a change, or the parent itself when the change alters no byte."""
        tree = trees.edit(self._transport.repository, parent.tree if parent else None, change.files)
        unaltered = tree == parent.tree.id if parent else not len(trees.tree_of(self._transport.repository, tree))
        return parent if unaltered else self._write(parent, change, tree)

    def _write(self, parent: pygit2.Commit | None, change: Change, tree: pygit2.Oid | None = None) -> pygit2.Commit:
        repository = self._transport.repository
        written = commits.write_commit(
            repository,
            tree if tree is not None else trees.edit(repository, None, change.files),
            [parent.id] if parent else [],
            change,
            identity=self._identity,
            signing=self._signing,
        )
        return self._commit(str(written))

    def _reachable(self, revision: str) -> pygit2.Commit:
        commit = self._commit(parse_revision(revision))
        repository = self._transport.repository
        tips = self._transport.tips()
        # An object may be there without belonging to any branch: a lost race leaves its commits behind.
        if not any(tip == commit.id or repository.descendant_of(tip, commit.id) for tip in tips):
            raise NotFound("revision", revision)
        return commit

    def _commit(self, revision: str) -> pygit2.Commit:
        with _translated():
            found = self._transport.repository.get(revision)
        if not isinstance(found, pygit2.Commit):
            raise NotFound("revision", revision)
        return found


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what libgit2 says of a full disk, a damaged object or a clone thrown away into this package's words."""
    try:
        yield
    except (pygit2.GitError, OSError) as error:  # an OSError is what pygit2 makes of a full disk
        raise Unavailable("the repository's object store", str(error)) from error


def _entry(commit: pygit2.Commit | None, path: str | None) -> tuple[pygit2.Oid, int] | None:
    """Return what stands at a path in a commit, by identity and mode: two commits differ there when these do."""
    entry = trees.find(commit.tree, path.rstrip("/")) if commit is not None and path else None
    return (entry.id, entry.filemode) if entry is not None else None


def _check_beside(refs: Iterable[str]) -> None:
    """Refuse references of which one is the folder of another: git keeps them as files."""
    names = set(refs)
    inside = [ref for ref in sorted(names) if any(str(folder) in names for folder in PurePosixPath(ref).parents)]
    if inside:
        raise InvalidInput(f"{', '.join(inside)}: a reference cannot lie below another reference")


def _checked(ref: str) -> str:
    if not ref.startswith("refs/") or not pygit2.reference_is_valid_name(ref):
        raise InvalidInput(f"{ref!r:.120} is not the full name of a reference, like refs/heads/main")
    return ref
