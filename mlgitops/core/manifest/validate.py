"""Checking a document against a JSON Schema, with problems that say where, what and how to mend it."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mlgitops.core.errors import Problem
from mlgitops.core.manifest.read import Document, pointer_text
from mlgitops.core.schemas import schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

Path = tuple[str | int, ...]
Fault = tuple[Path, str, str | None]
"""Where, what is wrong, how to mend it."""

_TYPES: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SHOWN: Final = 60


def schema_problems(document: Document, name: str) -> list[Problem]:
    """Return every place where a document does not fit the published schema `name`, in the order of the file."""
    found: dict[tuple[Path, str], Problem] = {}
    for error in _validator(name).iter_errors(document.value):
        for pointer, message, mend in _faults(error):
            found.setdefault((pointer, message), problem_at(document, pointer, message, mend))
    return sorted(found.values(), key=lambda one: (one.line or 0, one.column or 0))


def problem_at(document: Document, pointer: Path, message: str, mend: str | None = None) -> Problem:
    """Return a problem at the key that leads to `pointer`, or at the value where there is no key."""
    line, column = document.key_position(pointer)
    shown = pointer_text(pointer) or None
    return Problem(message=message, path=document.path, line=line, column=column, pointer=shown, mend=mend)


def nearest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt one most likely means."""
    lowered = {one.lower(): one for one in known}
    found = difflib.get_close_matches(str(word)[:200].lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def choose(word: object, known: Sequence[str]) -> str:
    """Say which word to write instead of a wrong one."""
    close = nearest(word, known)
    return f"did you mean {close}?" if close else f"write one of {', '.join(known)}"


@cache
def _validator(name: str) -> "Validator":
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    validator: type[Validator] = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]
    return validator(schema(name))


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> "Iterator[ValidationError]":
    """Match as ECMAScript does: in Python, `$` would let a final newline pass."""
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError(f"does not match {pattern}")


def _faults(error: Any) -> Iterator[Fault]:
    path: Path = tuple(error.absolute_path)
    if "propertyNames" in error.absolute_schema_path:
        path = (*path, str(error.instance))
    handler = _HANDLERS.get(str(error.validator))
    if handler is None:
        yield path, error.message, None
    else:
        yield from handler(path, error)


def _unknown(path: Path, error: Any) -> Iterator[Fault]:
    properties = error.schema.get("properties", {})
    known = [key for key, part in properties.items() if "not" not in part]
    for key in error.instance:
        if key not in properties:
            yield (*path, key), f"unknown key {key!r:.{_SHOWN}}", choose(key, known)


def _required(path: Path, error: Any) -> Iterator[Fault]:
    for key in error.validator_value:
        if key not in error.instance:
            described = _describe(error.schema["properties"][key])
            yield path, f"{key} is missing", f"add `{key}:`. {described}"


def _describe(part: Mapping[str, Any]) -> str:
    examples = part.get("examples") or ([part["const"]] if "const" in part else [])
    shown = f" Example: {json.dumps(examples[0], ensure_ascii=False)}" if examples else ""
    return f"{part.get('description', '')}{shown}".strip()


def _type(path: Path, error: Any) -> Iterator[Fault]:
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    words = " or ".join(str(_TYPES.get(one, one)) for one in wanted)
    found = _kind(error.instance)
    scalar = isinstance(error.instance, int | float)
    mend = "write it in quotes" if "string" in wanted and scalar else _describe(error.schema) or None
    yield path, f"must be {words}, not {found}", mend


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return _TYPES[kinds[type(value)]]


def _enum(path: Path, error: Any) -> Iterator[Fault]:
    known = [str(one) for one in error.validator_value]
    yield path, f"{_shown(error.instance)} is not one of {', '.join(known)}", choose(error.instance, known)


def _const(path: Path, error: Any) -> Iterator[Fault]:
    wanted = error.validator_value
    yield path, f"must be {wanted}, not {_shown(error.instance)}", f"write {wanted}"


def _limit(path: Path, error: Any) -> Iterator[Fault]:
    words = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "more than",
        "exclusiveMaximum": "less than",
    }
    message = f"must be {words[str(error.validator)]} {error.validator_value}, not {_shown(error.instance)}"
    yield path, message, _describe(error.schema) or None


def _size(path: Path, error: Any) -> Iterator[Fault]:
    kind, limit = str(error.validator), error.validator_value
    what = {"Length": "characters", "Items": "entries", "Properties": "entries"}[kind[3:]]
    message = f"must have at {'least' if kind.startswith('min') else 'most'} {limit} {what}, not {len(error.instance)}"
    yield path, message, _describe(error.schema) or None


def _text(path: Path, error: Any) -> Iterator[Fault]:
    yield path, f"{_shown(error.instance)} is not accepted here", _describe(error.schema) or None


def _refused(path: Path, error: Any) -> Iterator[Fault]:
    yield path, f"{path[-1]} is refused", error.schema.get("description")


def _unique(path: Path, _error: Any) -> Iterator[Fault]:
    yield path, "has an entry twice", "remove one of them"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_HANDLERS: Final[Mapping[str, Callable[[Path, Any], Iterator[Fault]]]] = {
    "additionalProperties": _unknown,
    "required": _required,
    "type": _type,
    "enum": _enum,
    "const": _const,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _limit),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _size,
    ),
    "pattern": _text,
    "uniqueItems": _unique,
    "not": _refused,
}
