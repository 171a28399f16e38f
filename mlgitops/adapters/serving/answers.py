"""Two answers to the same request: whether each is one, and whether they have the same form. Pure.

The bytes come from a server that runs a model nobody trusts yet: whatever they are, reading them ends with a fault in
one word (see `core.analysis.shadow.FAULTS`), soon and without an exception.
"""

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.adapters.serving.outcomes import agrees, predictions
from mlgitops.adapters.serving.protocol_json import NOT_FINITE

DEEPEST: Final = 16
"""Nesting of a prediction; deeper ones are malformed."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a server said."""

    status: int | None
    """HTTP status; None when there was no answer in time."""
    body: bytes
    seconds: float


class _Fault(Exception):
    """What is wrong, in one word."""


def form(reply: Reply, path: str) -> tuple[Hashable, str]:
    """Return the form of an answer and an empty text, or what is wrong with it.

    Args:
        reply: What was answered.
        path: Path of the request, which tells the protocol.
    """
    try:
        return _form(reply, path), ""
    except _Fault as fault:
        return None, str(fault)
    except RecursionError:
        return None, "malformed"


def same_answer(one: bytes, other: bytes, path: str, *, regression: bool, tolerance: float | None) -> bool | None:
    """Say whether two proper answers say the same; None where that cannot be told."""
    if regression and tolerance is None:
        return None
    try:
        first, second = (predictions(body, path, regression=regression) for body in (one, other))
        if first is None or second is None:
            return None
        return agrees(first, second, tolerance if regression else None)
    except (RecursionError, OverflowError):
        return None


def _form(reply: Reply, path: str) -> Hashable:
    if reply.status is None:
        raise _Fault("silent")
    if reply.status >= 500:
        raise _Fault("not-finite" if NOT_FINITE.encode() in reply.body[:1_000] else "failed")
    if reply.status != 200:
        raise _Fault("refused")
    value = _parse(reply.body)
    if path.endswith(":predict"):
        rows = value.get("predictions")
        if not isinstance(rows, list):
            raise _Fault("malformed")
        return _shape(rows, 0)
    outputs = value.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise _Fault("malformed")
    return _shape([_output(one) for one in outputs], 0)


def _output(output: dict[str, Any]) -> dict[str, Any]:
    """Return a V2 output with its name, shape and datatype as keys, so that they are part of its form."""
    told = json.dumps([output.get("name"), output.get("shape"), output.get("datatype")])[:1_000]
    return {told: output.get("data")}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body, parse_constant=_not_finite)
    except (ValueError, RecursionError):
        raise _Fault("malformed") from None
    if not isinstance(value, dict):
        raise _Fault("malformed")
    return value


def _not_finite(_: str) -> float:
    raise _Fault("not-finite")


def _shape(value: Any, depth: int) -> Hashable:
    """Return what kinds of values there are where; lists by their length and the kinds in them."""
    if depth > DEEPEST:
        raise _Fault("malformed")
    if isinstance(value, list):
        return "list", len(value), frozenset(_shape(one, depth + 1) for one in value)
    if isinstance(value, dict):
        return "object", frozenset((name, _shape(one, depth + 1)) for name, one in value.items())
    if isinstance(value, float) and not math.isfinite(value):
        raise _Fault("not-finite")  # 1e999 is JSON, and no number
    if isinstance(value, bool) or value is None:
        return str(type(value))
    return "text" if isinstance(value, str) else "number"
