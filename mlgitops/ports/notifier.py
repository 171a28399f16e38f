"""Tells people what was decided, outside git."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One message to one address."""

    variable: str
    """Environment variable that holds the address; the address itself is known to the notifier alone."""
    title: str
    """Plain text, one line."""
    body: str
    """Plain text, a line for each thing."""


class Notifier(Protocol):
    """Sends messages; never raises, never takes longer than a bounded time."""

    def knows(self, variable: str) -> bool:
        """Say whether this process was given that address."""

    def send(self, letters: Sequence[Letter]) -> Sequence[str]:
        """Send messages; returns for each why it was not sent, in words without the address; empty for sent."""


class Marks(Protocol):
    """Remembers how far each address was told of the ledger, beside the repository: it may be lost."""

    def read(self) -> dict[str, str]:
        """Return the ledger's revision that each address was told of last, by the address's name in the file."""

    def write(self, marks: dict[str, str]) -> None:
        """Remember them in place of those before."""
