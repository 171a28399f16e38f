"""A bare repository on this machine: references are moved under git's own locks, and server hooks are honoured."""

import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import RepositoryOpenFlag
from pygit2.transaction import ReferenceTransaction

from mlgitops.adapters.repository.packing import pack_when_many
from mlgitops.adapters.repository.push import push_all
from mlgitops.adapters.repository.transport import Move, commit_at
from mlgitops.core.errors import Conflict, Denied, InvalidInput, MlgitopsError, NotFound, Unavailable

_HOOKS: Final = ("pre-receive", "update", "reference-transaction", "proc-receive", "post-receive", "post-update")
_LOCK_PATIENCE_SECONDS: Final = 3.0
"""git holds a reference's lock for milliseconds; what holds it longer was killed, or hangs."""
_LOCKED: Final = re.compile(r"failed to lock file '(.+)'")


def open_bare(path: Path) -> pygit2.Repository:
    """Open a bare repository.

    Raises:
        NotFound: There is no repository at that path.
        InvalidInput: It has a working tree, whose files a moved branch would leave behind.
    """
    try:
        repository = pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, KeyError) as error:
        raise NotFound("git repository", str(path)) from error
    if not repository.is_bare:
        raise InvalidInput(f"{path} has a working tree; the tool needs a bare repository (git init --bare)")
    return repository


class _LockedError(Exception):
    """A reference's lock is held by another process, or was left by one that was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))

    def words(self) -> str:
        with suppress(OSError):
            age_seconds = max(0, int(time.time() - self.path.stat().st_mtime))
            return (
                f"the lock {self.path} is {age_seconds} s old; when no git process is at work there, "
                "one was killed: delete that file"
            )
        return f"the lock {self.path} is held by another process"


@contextmanager
def _locks(repository: pygit2.Repository) -> Iterator[ReferenceTransaction]:
    """Hold a transaction's locks, and free them at its end whatever happens.

    As a context manager of its own, pygit2's transaction commits at the end, and when that fails keeps the locks for
    as long as anything refers to the error. Committing twice is a crash.
    """
    transaction = repository.transaction()
    try:
        yield transaction
    finally:
        transaction.__exit__(pygit2.GitError, None, None)  # told of an error, it only frees


class BareTransport:
    """The repository itself; libgit2's own transport for paths would neither compare and swap nor run hooks."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.repository = open_bare(self._path)

    def fetch(self, ref: str) -> pygit2.Oid | None:
        """Return where a reference is now."""
        return commit_at(self.repository, ref)

    def tips(self) -> Sequence[pygit2.Oid]:
        """Return where all references are now."""
        found = (commit_at(self.repository, ref) for ref in self.repository.listall_references())
        return [tip for tip in found if tip is not None]

    def move(self, moves: Sequence[Move]) -> None:
        """Move references under their locks, or through git where hooks have a say."""
        deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
        while True:
            try:
                self._push(moves) if self._has_hooks() else self._swap(moves)
                break
            except _LockedError as held:
                if time.monotonic() > deadline:
                    raise Unavailable(str(self._path), held.words()) from held
            time.sleep(random.uniform(0.005, 0.05))  # noqa: S311 - spreads contenders out, keeps no secret
        pack_when_many(self._path)

    def _swap(self, moves: Sequence[Move]) -> None:
        """Lock every reference, compare, then write: no other git client can come between."""
        compared = False
        try:
            with _locks(self.repository) as transaction:
                for move in sorted(moves, key=lambda each: each.ref):  # one order, so that two writers cannot deadlock
                    transaction.lock_ref(move.ref)
                self._compare(moves)
                compared = True
                for move in moves:
                    transaction.set_target(move.ref, move.target, message="mlgitops")
                transaction.commit()
        except (pygit2.GitError, OSError) as error:  # an OSError is what pygit2 makes of a full disk
            if compared:
                self._undo(moves)
            raise self._translate(error, moves) from error

    def _compare(self, moves: Sequence[Move]) -> None:
        for move in moves:
            found = commit_at(self.repository, move.ref)
            if found != move.expected:
                raise _conflict(move, found)

    def _undo(self, moves: Sequence[Move]) -> None:
        """Take back the creations of a set that could not be written as a whole (a full disk, a name in the way)."""
        for move in moves if len(moves) > 1 else ():
            with suppress(pygit2.GitError, KeyError, OSError):
                reference = self.repository.lookup_reference(move.ref)
                if move.expected is None and reference.target == move.target:
                    reference.delete()

    def _translate(self, error: pygit2.GitError | OSError, moves: Sequence[Move]) -> MlgitopsError | _LockedError:
        text = str(error)
        refs = ", ".join(move.ref for move in moves)
        if found := _LOCKED.search(text):
            return _LockedError(Path(found[1]))
        if "parent is not directory" in text or "refs beneath that folder" in text or "File exists" in text:
            return Conflict(refs, None, None, f"another reference's name is in the way: {text}")
        if "Permission denied" in text or "Read-only" in text:
            return Denied("moving", refs, text)
        return Unavailable(str(self._path), text)

    def _has_hooks(self) -> bool:
        try:
            folder = self._path / str(self.repository.config["core.hooksPath"])
        except KeyError:
            folder = self._path / "hooks"
        return any((folder / name).is_file() and os.access(folder / name, os.X_OK) for name in _HOOKS)

    def _push(self, moves: Sequence[Move]) -> None:
        """Let git push from the repository into itself: it runs the hooks, and compares and swaps as any push does."""
        outcome = push_all(self._path, str(self._path), moves, {})
        if outcome.landed:
            return
        if outcome.locked is not None:
            raise _LockedError(outcome.locked)
        for move in moves:
            if (now := commit_at(self.repository, move.ref)) != move.expected:
                raise _conflict(move, now)
        reason = "; ".join([*outcome.verdicts.values(), outcome.words])
        raise Denied("push to", ", ".join(outcome.verdicts or [move.ref for move in moves]), reason[:2000])


def _conflict(move: Move, found: pygit2.Oid | None) -> Conflict:
    expected = str(move.expected) if move.expected else None
    return Conflict(move.ref, expected, str(found) if found else None)


def init_bare(path: Path, default_branch: str = "main") -> None:
    """Make a bare repository whose HEAD is `default_branch`; one that is there already stays as it is."""
    with suppress(NotFound):
        open_bare(path)
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        pygit2.init_repository(str(path), bare=True, initial_head=default_branch)
    except (OSError, pygit2.GitError) as error:
        raise Unavailable(str(path), f"no repository could be made there: {error}") from error


def head(path: Path, ref: str) -> str | None:
    """Return the revision a reference of a bare repository is at now; None when it does not exist."""
    tip = commit_at(open_bare(path), ref)
    return str(tip) if tip else None
