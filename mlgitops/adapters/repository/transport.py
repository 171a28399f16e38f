"""What differs between a repository on disk and one behind a server: how references are read and moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pygit2
from pygit2.enums import ConfigLevel

_NO_PATH: Final = ""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One reference to move."""

    ref: str
    """Full name, like `refs/heads/main`."""
    expected: pygit2.Oid | None
    """The commit it must still be at; None when it must not exist."""
    target: pygit2.Oid
    """The commit it is to be at; its objects are in the transport's repository."""


class Transport(Protocol):
    """References behind a compare-and-swap, and the objects they lead to."""

    @property
    def repository(self) -> pygit2.Repository:
        """Where fetched objects are read, and new ones are written before a move."""

    def fetch(self, ref: str) -> pygit2.Oid | None:
        """Return the commit a reference is at now, its objects fetched; None when it does not exist."""

    def tips(self) -> Sequence[pygit2.Oid]:
        """Return the commits that references are known to be at, without asking a server."""

    def move(self, moves: Sequence[Move]) -> None:
        """Move all references or none.

        Raises:
            Conflict: A reference is not where it was expected.
            Denied: The move was refused: a hook, a protection, a missing right.
            Unavailable: No answer could be had.
        """


def use_hermetic_git() -> None:
    """Make libgit2 read no configuration but that of the repository at hand, and write durably.

    The user's and the machine's settings (rewritten URLs, hooks, proxies, aliases) would make runs differ from one
    machine to the next. Ownership is not validated: it guards against programs that a foreign repository's
    configuration names, and libgit2 starts none; a continuous-integration container runs as root on a checkout that
    belongs to somebody else. Where git itself is started (hooks of a repository on disk), its own check holds.
    """
    for level in (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
        pygit2.settings.search_path[level] = _NO_PATH
    pygit2.settings.owner_validation = False
    # A decision that was reported as written must survive a power cut.
    pygit2.settings.enable_fsync_gitdir(value=True)


def commit_at(repository: pygit2.Repository, ref: str) -> pygit2.Oid | None:
    """Return the commit a reference of this very repository is at; None when it does not exist or leads to none."""
    try:
        return repository.lookup_reference(ref).peel(pygit2.Commit).id
    except (KeyError, pygit2.InvalidSpecError):
        return None


use_hermetic_git()
