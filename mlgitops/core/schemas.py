"""The published JSON Schemas, found in the wheel or in the source tree."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent
# The build puts the schemas into the wheel; an editable install leaves them where they are.
_FOLDERS: Final = (_PACKAGE / "_schemas", _PACKAGE.parent / "schemas")


@cache
def schema(name: str) -> dict[str, Any]:
    """Return one schema, like `model` for `schemas/model.schema.json`; it is read once and must not be changed.

    Raises:
        FileNotFoundError: There is no such schema; the installation is not complete.
    """
    for folder in _FOLDERS:
        path = folder / f"{name}.schema.json"
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_bytes())
            return found
    raise FileNotFoundError(f"{name}.schema.json is in neither {_FOLDERS[0]} nor {_FOLDERS[1]}")
