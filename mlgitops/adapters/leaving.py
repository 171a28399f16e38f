"""Folders that go at once for everybody else: whoever is killed while deleting one leaves nothing half there."""

import os
import shutil
import uuid
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from mlgitops.core.errors import Unavailable


def size_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 for what is not there."""
    if path.is_dir() and not path.is_symlink():
        return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def remove(path: Path, leaving: Path, *, unless_used_since: datetime) -> int:
    """Delete a file or folder by moving it to the folder `leaving` first; returns bytes freed.

    What was changed since `unless_used_since` stays.

    Raises:
        Unavailable: The disk cannot be written.
    """
    try:
        leaving.mkdir(parents=True, exist_ok=True)
        freed = 0
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < unless_used_since.timestamp():
                freed = size_bytes(path)
                path.rename(leaving / uuid.uuid4().hex)
    except OSError as error:
        raise Unavailable(f"folder {path.parent}", error.strerror or type(error).__name__) from error
    sweep(leaving)
    return freed


def sweep(leaving: Path) -> None:
    """Delete what an interrupted deletion left in the folder `leaving`."""
    with suppress(FileNotFoundError):
        for one in leaving.iterdir():
            shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink(missing_ok=True)
