"""Strict JSON of requests, apart from the arrays so that the router need not load them."""

import json
from typing import Any, Final

NOT_FINITE: Final = "NaN or infinity"
"""How the model server says that an output cannot be told in JSON."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Return a request's JSON object; NaN and infinity, which JSON does not have, are refused.

    Raises:
        ValueError: It is not one; the message says why.
    """
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004 - one kind of refusal
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
