"""Writes that are there wholly or not at all."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import Final

from mlgitops.core.errors import Unavailable

NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system says where a disk, a quota or a limit is full."""


def full_disk(error: OSError, place: Path | str = "") -> Unavailable | None:
    """Return what a full disk is to this package; None for any other trouble."""
    where = place or error.filename or ""
    full = error.errno in NO_SPACE
    return Unavailable(f"the disk of {where}" if where else "the disk", "no space left") if full else None


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Put `data` at `path` so that a reader, or a crash at any moment, meets the old bytes or the new ones.

    Raises:
        Unavailable: The disk is full; the old bytes are still there.
        OSError: Anything else.
    """
    try:
        _write(path, data, mode)
    except OSError as error:
        if full := full_disk(error, path.parent):
            raise full from error
        raise


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
