"""Files that are either there in full or not at all."""

import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that readers, and a crash, see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """Return `value` as JSON can carry it: numpy scalars as numbers, NaN and infinities as null, paths as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def to_json(value: Any) -> bytes:
    """Return `plain(value)` as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
