"""Progress as plain lines on standard error."""

import sys
from datetime import UTC, datetime

from mlgitops.adapters.redacting import redacted
from mlgitops.cli import github
from mlgitops.cli.words import several_lines


class Lines:
    """Writes a line for everything it is told, with the time of day where that helps."""

    def __init__(self, *, times: bool = False) -> None:
        """Write lines, with `times` in front of them."""
        self._times = times

    def note(self, message: str) -> None:
        """Write one line."""
        prefix = f"{datetime.now(UTC):%H:%M:%S} " if self._times else ""
        sys.stderr.write(github.harmless(f"{prefix}{redacted(several_lines(message))}") + "\n")
        sys.stderr.flush()
