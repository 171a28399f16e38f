"""Reads what the shims kept of pods' output."""

from pathlib import Path

_WORDS_BYTES = 2048
_WORDS_LINES = 5


def _part(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        return b""


def read_log(folder: Path) -> bytes:
    """Return a pod's output over all runs: all of it, or its beginning and its end with a note between."""
    head, cut = _part(folder, "head"), _part(folder, "cut")
    note = b"\n[mlgitops: %s bytes left out]\n" % cut if cut else b""
    return head + note + _part(folder, "tail.1") + _part(folder, "tail")


def last_words(folder: Path) -> str:
    """Return the last lines of a pod's output, as one line of text."""
    data = b""
    for name in ("tail", "tail.1", "head"):
        data = _part(folder, name)[-_WORDS_BYTES:] + data
        if len(data) >= _WORDS_BYTES:
            break
    lines = [line.strip() for line in data[-_WORDS_BYTES:].decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(lines[-_WORDS_LINES:])
