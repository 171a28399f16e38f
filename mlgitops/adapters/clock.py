"""The machine's clock."""

from datetime import UTC, datetime


class SystemClock:
    """Says what the machine says."""

    def now(self) -> datetime:
        """Return the present, aware, UTC."""
        return datetime.now(UTC)
