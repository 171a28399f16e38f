"""Who is told how long work goes on; silent by default."""

from typing import Protocol


class Observer(Protocol):
    """Told about progress, in words for people."""

    def note(self, message: str) -> None:
        """One thing happened."""


class Silent:
    """Tells nobody."""

    def note(self, message: str) -> None:
        """Do nothing."""
