"""A git repository that is edited by compare-and-swap, without a checkout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody named in a commit."""

    name: str
    """Shown name; control characters and angle brackets are refused in the tool's identity, left out of an author."""
    email: str
    """Address; need not be deliverable."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit, as read from history."""

    revision: str
    """40 hexadecimal digits."""
    parents: tuple[str, ...]
    """Revisions of the parents, first parent first; empty for a root."""
    author: Person
    """Who made the change."""
    committer: Person
    """Who committed it."""
    committed_at: datetime
    """Aware, UTC."""
    message: str
    """Whole message, subject first."""
    trailers: Mapping[str, str] = field(default_factory=dict)
    """Trailers of the last paragraph, by name; the last of a repeated name."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One commit to make: whole contents of the files it touches."""

    message: str
    """Subject, blank line, body; trailers are added from `trailers`."""
    files: Mapping[str, bytes | None]
    """Path from the repository's root to new content; None deletes."""
    author: Person | None = None
    """Who decided; None means the repository's own identity."""
    trailers: Mapping[str, str] = field(default_factory=dict)
    """Trailers to add; values are folded into one line, so none can forge another."""


class Snapshot(Protocol):
    """The tree of one revision."""

    @property
    def revision(self) -> str | None:
        """The revision, or None where the reference does not exist (the tree is empty then)."""

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None when there is no regular file at that path."""

    def paths(self, prefix: str = "") -> tuple[str, ...]:
        """Return the paths of all files below the folder `prefix`, sorted; the whole tree for an empty one."""


class Repository(Protocol):
    """Any repository the tool writes: a bare one on disk, or one behind https or ssh; one behaviour for all.

    Errors: `Conflict` when a reference moved, `Denied` when the server refused (in its words),
    `Unavailable` when it could not be reached.
    """

    def snapshot(self, ref: str) -> Snapshot:
        """Fetch `ref` (like `refs/heads/main`) and return its tree; a ref that does not exist has revision None."""

    def at(self, revision: str) -> Snapshot:
        """Return the tree of a revision already reachable from a fetched ref; `NotFound` otherwise."""

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Put `changes` on top of `expected` and move `ref` there in one push, only if `ref` still is `expected`.

        A change that alters no byte makes no commit. Returns the revision `ref` has afterwards.
        """

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Create several references, none of which may exist, in one push; returns their revisions."""

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Return the paths of files that differ between two revisions reachable from fetched refs, sorted."""

    def branch(self, ref: str, base: str, change: Change) -> str:
        """Create `ref` with one commit on top of `base`, a revision reachable from a fetched ref; returns it.

        Raises:
            Conflict: `ref` exists already; nothing was written.
            NotFound: There is no such revision.
        """

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        """Walk first parents from `revision`, newest first, without `until`; only commits that touch `path`."""
