"""What keeps things of releases beside the store: images, logs, evaluations, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One thing that is kept, and can be deleted."""

    name: str
    """What it is of, in its keeper's own terms; see `Keeper.kind`."""
    place: str
    """Where it is, for people."""
    parts: Mapping[str, int]
    """What it consists of, by name, each with its size in bytes; a part of several goes with the last of them."""


class Keeper(Protocol):
    """Keeps one kind of thing."""

    @property
    def kind(self) -> str:
        """`image` (by reference), `log` (by job), `evaluation` (by key), `samples` (`<environment>/<model>/<n>`)."""

    def kept(self) -> Sequence[Kept]:
        """Return what can be deleted, by name; what is in use by somebody right now is left out."""

    def delete(self, name: str, *, unless_used_since: datetime) -> int:
        """Delete one thing; returns bytes freed, 0 for what is not there, or was used since then."""

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what an interrupted deletion left, and what came to be of no use in another way."""
