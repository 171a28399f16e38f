"""The `Marks` port on a file of this machine."""

import json
from pathlib import Path

from mlgitops.adapters.atomic import write_atomically


class FileMarks:
    """One file; one that is lost or damaged is as if nobody had been told anything yet."""

    def __init__(self, file: Path) -> None:
        """Remember in `file`, which need not be there."""
        self._file = file

    def read(self) -> dict[str, str]:
        """Return what is remembered."""
        try:
            found = json.loads(self._file.read_bytes())
            return {name: revision for name, revision in found.items() if isinstance(revision, str)}
        except (OSError, ValueError, AttributeError):
            return {}

    def write(self, marks: dict[str, str]) -> None:
        """Remember these alone."""
        write_atomically(self._file, json.dumps(marks, indent=1, sort_keys=True).encode() + b"\n", mode=0o600)
