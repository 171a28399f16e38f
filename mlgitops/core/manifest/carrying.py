"""What a changed training section says that a TFJob which people edited does not."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mlgitops.core.manifest.read import Named, Pointer, pointer_text, read_document

_ABSENT = object()
LONGEST_VALUE = 120
"""Characters of a value that are told."""


def left_behind(data: bytes, path: str, former: bytes, wanted: bytes, known: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what a new configuration says of a job otherwise than the file, which keeps what people wrote.

    A field counts when the configurations differ in it and the file does not follow, or when it was told before and
    nothing changed since. What people set and no configuration changed is theirs, and is not told.

    Args:
        data: The TFJob as it will stand; in what the tool owns, all three are the same.
        path: Where it stands.
        former: The scaffold of the configuration that the job was last written by.
        wanted: The scaffold of the new configuration.
        known: What was told when it was last written.

    Raises:
        InvalidInput: The file cannot be read.
    """
    before, says_now, found = (_leaves(one, path) for one in (former, wanted, data))
    told = []
    for pointer in dict.fromkeys([*says_now, *before]):
        stands, says = found.get(pointer, _ABSENT), says_now.get(pointer, _ABSENT)
        words = f"{pointer} is {_shown(stands)}, and mlgitops.yaml says {_shown(says)}"
        if stands != says and (before.get(pointer, _ABSENT) != says or words in known):
            told.append(words)
    return tuple(told)


def _leaves(data: bytes, path: str) -> dict[str, Any]:
    """Return the values of a document by their pointers as people write them."""
    return {pointer_text(pointer): value for pointer, value in _walk(read_document(data, path).value, ())}


def _walk(value: Any, pointer: tuple[str | int | Named, ...]) -> Iterator[tuple[Pointer, Any]]:
    """Yield every value that is no object; entries of a list by their names where all have one."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _walk(one, (*pointer, key))
    elif isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        for one in value:
            yield from _walk(one, (*pointer, Named(str(one["name"]))))
    else:
        yield pointer, value


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
