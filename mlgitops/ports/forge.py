"""The service that hosts the environment repository: pull requests, their comments, and statuses of commits."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class PullRequestState(enum.StrEnum):
    """Where a pull request is."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"
    """Closed without having been merged."""


class StatusState(enum.StrEnum):
    """What a status says of a commit."""

    SUCCESS = "success"
    PENDING = "pending"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """A pull request from a branch of the repository itself; those from forks are never told."""

    number: int
    state: PullRequestState
    branch: str
    """The branch it wants merged, without `refs/heads/`."""
    base: str
    """The branch it wants to be merged into, without `refs/heads/`."""
    head: str
    """Revision that `branch` is at, as far as the forge knows; 40 hexadecimal digits."""
    title: str
    body: str
    """Markdown; empty for none."""
    url: str
    """Where people look at it."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What one check says of a commit."""

    context: str
    """Name of the check, as a protection rule requires it."""
    state: StatusState
    description: str
    """One line; what is longer than the forge takes is cut."""


class Forge(Protocol):
    """A forge, seen as one repository.

    Errors: `Denied` when it refused, `NotFound` for what is not there, `Conflict` when a pull request of that branch is
    open already, `Unavailable` when no answer could be had in the time given. Only what was asked for by its number or
    branch is written: nothing here moves or deletes a branch.
    """

    def opened(self, base: str, prefix: str) -> Sequence[PullRequest]:
        """Return the open pull requests into `base` from branches of this repository that begin with `prefix`."""

    def of_branch(self, branch: str) -> Sequence[PullRequest]:
        """Return every pull request there ever was of a branch, newest first."""

    def open(self, *, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request."""

    def update(self, number: int, *, title: str, body: str) -> None:
        """Give a pull request another title and body."""

    def close(self, number: int) -> None:
        """Close a pull request without merging it; one that is closed already stays as it is."""

    def closed_by(self, number: int) -> str:
        """Return the name of who closed a pull request; empty where the forge does not tell."""

    def comments(self, number: int) -> Mapping[str, str]:
        """Return the tool's own comments on a pull request, by topic."""

    def comment(self, number: int, topic: str, body: str) -> None:
        """Say something about a topic: one comment each, changed in place when it is said anew."""

    def set_status(self, revision: str, status: Status) -> None:
        """Say what a check thinks of a commit; nothing is sent where that is said already."""
