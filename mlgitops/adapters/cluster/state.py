"""Files that several processes read and one writes, and locks that end with their holder."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlgitops.adapters.cluster.shim import write_json

__all__ = ["Lock", "held", "instant", "read_json", "text", "write_json"]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object from a file; None where there is no file."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return value


def text(moment: datetime | None) -> str | None:
    """Return a time as it is written."""
    return None if moment is None else moment.isoformat()


def instant(written: str | float | None) -> datetime | None:
    """Return a written time (ISO 8601, or seconds since 1970), aware, UTC."""
    if isinstance(written, int | float):
        return datetime.fromtimestamp(written, UTC)
    return None if written is None else datetime.fromisoformat(written)


class Lock:
    """An exclusive lock on a file that ends when its holder lets go or dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take it without waiting; False when somebody else holds it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        """Let go; nothing happens when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.release()


def held(path: Path) -> bool:
    """Say whether somebody holds the lock of a file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def folders(parent: Path) -> Iterator[Path]:
    """Yield the folders directly below one, by name; none when it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        yield from sorted(path for path in parent.iterdir() if path.is_dir())


def newest(parent: Path) -> Path | None:
    """Return the folder of an object's newest incarnation; None when the engine never knew it."""
    numbers = [int(path.name) for path in folders(parent) if path.name.isdigit() and (path / "object.json").exists()]
    return parent / str(max(numbers)) if numbers else None
