"""Time, from outside."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Says what time it is."""

    def now(self) -> datetime:
        """Return the present, aware, UTC."""
