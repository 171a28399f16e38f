"""A pushed commit of a model repository, checked out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlgitops.core.names import Digest


@dataclass(frozen=True, kw_only=True)
class SourceCommit:
    """The commit that was pushed."""

    revision: str
    author: str
    """`Name <address>`"""
    subject: str


class Source(Protocol):
    """A clean checkout of one commit."""

    @property
    def commit(self) -> SourceCommit:
        """Which commit it is."""

    @property
    def directory(self) -> Path:
        """Where it is checked out; nobody else writes there."""

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None when there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Add a file that is made from the commit; `InvalidInput` when the commit has one of that name."""

    def files(self, paths: Sequence[str]) -> dict[str, Digest]:
        """Return the digest of every file at or below `paths` (`.` for all), by its path from the root.

        Raises:
            InvalidInput: A path does not exist, or leads out of the checkout.
        """

    def gather(self, paths: Sequence[str]) -> AbstractContextManager[Path]:
        """Return a folder that holds these files alone; it goes when the context is left."""

    def run(self, command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        """Run a command in a copy of the checkout, without credentials; returns exit code and the end of its output.

        What it writes is gone afterwards: nothing it does can change what is built.
        A command that takes too long is ended with its children and has exit code 124.
        """
