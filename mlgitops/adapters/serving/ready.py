"""Ready files: what a server process tells the one that started it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlgitops.adapters.atomic import write_atomically


def write_ready(file: Path | None, **fields: Any) -> None:
    """Write a ready file: one JSON line, whole or not at all."""
    if file is not None:
        write_atomically(file, (json.dumps(fields) + "\n").encode())


def read_ready(file: Path) -> Mapping[str, Any] | None:
    """Return what a ready file says; None before it is written."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
