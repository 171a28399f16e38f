"""Reads what the shims kept of pods' output."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mlgitops.adapters.cluster.shim import log_tails
from mlgitops.ports.cluster import LogPart, left_out

_WORDS_BYTES = 2048
_WORDS_LINES = 5


def log_parts(folder: Path, after: int = 0) -> Iterator[LogPart]:
    """Yield what is kept of a pod's output from a position on, over all runs: what lies between parts was left out."""
    for name, position in (("head", 0), *((f"tail.{one}", one) for one in log_tails(folder))):
        with suppress(FileNotFoundError):  # it came to be left out at this moment
            data = (folder / name).read_bytes()[max(0, after - position) :]
            if data:
                yield LogPart(position=max(position, after), data=data)


def read_log(folder: Path) -> bytes:
    """Return a pod's output over all runs: all of it, or its beginning and its end with a note between."""
    kept, reached = b"", 0
    for part in log_parts(folder):
        kept += left_out(part.position - reached) + part.data
        reached = part.position + len(part.data)
    return kept


def last_words(folder: Path) -> str:
    """Return the last lines of a pod's output, as one line of text."""
    data = b"".join(part.data[-_WORDS_BYTES:] for part in log_parts(folder))
    lines = [line.strip() for line in data[-_WORDS_BYTES:].decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(lines[-_WORDS_LINES:])
