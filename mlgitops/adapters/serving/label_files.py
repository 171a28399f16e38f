"""Labels in files: one JSON object on each line, `{"id": <request>, "label": <truth>}`, read as the file grows.

A file may be appended to, replaced, or be an object that never changes. What was read is remembered by its end; a file
that is another one than it was is read again from its beginning, which is harmless, as the first label of a request
wins. A line that is no label is told with its number and left out; a last line without an end waits for the rest.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from mlgitops.adapters.files import open_regular
from mlgitops.adapters.serving.outcomes import Prediction, parse_label

LINES: Final = 1_000
"""Lines that are read at once: as many labels as the router takes in one call."""
LONGEST_LINE: Final = 65_536
BYTES: Final = 1_048_576
"""Bytes after which a reading ends: the router takes calls of a limited size."""
_TAIL: Final = 64
"""Bytes before the place that show whether a file is still the one that was read."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """How far a file was read."""

    inode: int = 0
    offset: int = 0
    """Bytes of whole lines that were read."""
    line: int = 0
    """Their number."""
    tail: str = ""
    """The last bytes before the offset, hexadecimal."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values; `Place(**values)` is the same place."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Label:
    """One line."""

    line: int
    """Its number, from 1."""
    id: str
    """The request."""
    values: Sequence[Prediction]
    """The truth, one value for each row of the request."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What was read at once."""

    labels: tuple[Label, ...] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    """Why a line is no label, by its number."""
    place: Place = field(default_factory=Place)
    """How far the file is read, once the labels are with the router."""
    open_line: int = 0
    """Number of a last line without an end that is no label yet; 0 for none."""
    more: bool = False
    """Further lines are there already."""


def read_labels(file: Path, place: Place, *, lines: int = LINES) -> Part:
    """Read what follows a place, up to so many lines.

    Raises:
        OSError: The file cannot be read, is a link, or no regular file.
    """
    labels: list[Label] = []
    problems: dict[int, str] = {}
    with open_regular(file) as stream:
        place = _still_there(stream, place)
        stream.seek(place.offset)
        end = place.offset + BYTES
        for _ in range(lines):
            if place.offset >= end:
                break
            raw = _line(stream)
            if not raw:
                return Part(labels=tuple(labels), problems=problems, place=place)
            number = place.line + 1
            found = _label(raw, number)
            if not raw.endswith(b"\n"):
                # Where it can be read it is whole: an object ends with its brace. It is read again when the file grows.
                whole = (found,) if isinstance(found, Label) else ()
                open_line = number if found and not whole else 0
                return Part(labels=(*labels, *whole), problems=problems, place=place, open_line=open_line)
            if isinstance(found, Label):
                labels.append(found)
            elif found:
                problems[number] = found
            place = replace(
                place, offset=stream.tell(), line=number, tail=(bytes.fromhex(place.tail) + raw)[-_TAIL:].hex()
            )
    return Part(labels=tuple(labels), problems=problems, place=place, more=True)


def _still_there(stream: BinaryIO, place: Place) -> Place:
    """Return the place where the file is still the one that was read, else its beginning."""
    status, tail = os.fstat(stream.fileno()), bytes.fromhex(place.tail)
    if status.st_ino == place.inode and status.st_size >= place.offset:
        stream.seek(place.offset - len(tail))
        if stream.read(len(tail)) == tail:
            return place
    return Place(inode=status.st_ino)


def _line(stream: BinaryIO) -> bytes:
    """Return the next line; of one that is too long its beginning and its end, which is no label."""
    raw = stream.readline(LONGEST_LINE + 1)
    if len(raw) <= LONGEST_LINE:
        return raw
    while raw and not raw.endswith(b"\n"):
        more = stream.readline(LONGEST_LINE)
        if not more:
            return raw[:LONGEST_LINE]
        raw = raw[:LONGEST_LINE] + more[-1:]
    return raw


def _label(raw: bytes, number: int) -> Label | str:
    """Return a line's label, or why it is none; nothing of it is repeated. Empty for an empty line."""
    if len(raw) > LONGEST_LINE:
        return f"the line is longer than {LONGEST_LINE} bytes"
    if not raw.strip():
        return ""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return "the line is no JSON"
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return 'the line is no object with "id", a text, and "label"'
    values = parse_label(value.get("label"))
    if values is None:
        return 'its "label" is no class, number or list of them'
    return Label(line=number, id=value["id"], values=values)
