"""Scalars that every YAML reader types alike: which plain texts are accepted, and how a value is written."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mlgitops.core.errors import InvalidInput

Scalar = str | int | float | bool | None
"""What one YAML scalar can mean here; floats are finite."""

SAFE_INTEGER: Final = 2**63
"""Go reads an integer at or above this as a float or fails; below it every reader has the same number."""

# First characters of every plain text that some reader takes for something other than text.
_SUSPECT: Final = frozenset("0123456789+-.~nNtTfFyYoO=<")
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS: Final = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_OLD_BOOLEANS: Final = frozenset(
    spelled for word in ("y", "n", "yes", "no", "on", "off") for spelled in (word, word.capitalize(), word.upper())
)
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
# PyYAML wants a point, and a sign in the exponent; YAML 1.2 and Go do without either.
_FLOAT: Final = re.compile(r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TIMESTAMP: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:.*)?", re.DOTALL)
# Numbers for one of YAML 1.1, YAML 1.2 core and Go's strconv, whatever the others say: leading zeros, other
# bases, base 60, exponents. Underscores are taken out first, as Go and YAML 1.1 do.
_NUMBER_TO_SOMEBODY: Final = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+"
    r"|[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?)"
)
_INDICATORS: Final = frozenset("-?:,[]{}#&*!|>'\"%@`=<~ ")
_FLOW_INDICATORS: Final = frozenset(",[]{}?")
# JSON leaves these as they are; YAML readers refuse them or take them for line ends.
_NOT_IN_QUOTES: Final = re.compile("[\x7f-\x9f\u00a0\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """Why a plain text is refused."""

    message: str
    """What is wrong with it, in one sentence without a final full stop."""
    mend: str
    """What to write instead."""


def _quoted_or(text: str, otherwise: str) -> str:
    return f'write "{text:.60}" in quotes to mean text{otherwise}'


def _number(text: str, convert: Callable[[str], int | float], limit: float) -> tuple[Scalar, Complaint | None]:
    # The length is looked at first: Python refuses to convert thousands of digits.
    number = convert(text) if len(text) <= 400 else math.inf
    if abs(number) < limit:
        return number, None
    return None, Complaint(
        message=f"{text:.40} is too large a number for some readers", mend=_quoted_or(text, ", or a smaller number")
    )


def _suspect(text: str) -> tuple[Scalar, Complaint | None]:
    if _INTEGER.fullmatch(text):
        return _number(text, int, SAFE_INTEGER)
    if _HEXADECIMAL.fullmatch(text):
        return _number(text, lambda digits: int(digits, 16), SAFE_INTEGER)
    if _FLOAT.fullmatch(text):
        return _number(text, float, math.inf)
    if text in _OLD_BOOLEANS:
        message, otherwise = f"{text} is true or false to some readers and text to others", ", or write true or false"
    elif _NOT_FINITE.fullmatch(text):
        message, otherwise = f"{text} is not a finite number", ", or write a number"
    elif _TIMESTAMP.fullmatch(text):
        message, otherwise = f"{text:.60} is a point in time to some readers and text to others", ""
    elif _NUMBER_TO_SOMEBODY.fullmatch(text.replace("_", "")):
        message = f"{text:.60} is not the same number, or not a number, to every reader"
        otherwise = ", or write a decimal number like 10 or 10.5"
    elif text in {"=", "<<"}:
        message, otherwise = f"{text} has a special meaning to some readers", ""
    else:
        return text, None
    return None, Complaint(message=message, mend=_quoted_or(text, otherwise))


@lru_cache(maxsize=4096)
def resolve(text: str) -> tuple[Scalar, Complaint | None]:
    """Return what a plain (unquoted) scalar means to every reader, or why it is refused.

    Args:
        text: The scalar's text, without quotes.

    Returns:
        The value and None; or None and a complaint, when YAML 1.1 (PyYAML), YAML 1.2's core schema and Go's
        `sigs.k8s.io/yaml` do not agree on it, or it is not finite.
    """
    if text in _NULL:
        return None, None
    if text[0] not in _SUSPECT:
        return text, None
    if text in _BOOLEANS:
        return _BOOLEANS[text], None
    return _suspect(text)


def is_safe_plain(text: str, *, flow: bool) -> bool:
    """Return whether `text` can stand without quotes and is text to every reader.

    Args:
        text: The string to be written.
        flow: Whether it stands inside `[…]` or `{…}`.
    """
    if not text or not text.isprintable() or text[-1] in " :" or resolve(text) != (text, None):
        return False
    if text[0] in _INDICATORS and (text[0] != "-" or text[1:2] in {"", " "}):
        return False
    if text.startswith(("---", "...")) or ": " in text or " #" in text:
        return False
    return not (flow and (not _FLOW_INDICATORS.isdisjoint(text) or text.startswith("-:") or "::" in text))


def _double_quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_IN_QUOTES.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _float(number: float) -> str:
    if not math.isfinite(number):
        raise InvalidInput(f"{number} is not a finite number and cannot be written")
    mantissa, exponent, power = repr(number).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{power if power[0] in '+-' else '+' + power}"


def render(value: Scalar, *, style: str | None = None, flow: bool = False) -> str:
    """Return YAML for one value, on one line.

    Args:
        value: The value; a string that any reader would take for something else is quoted.
        style: The quotes that stood there before, kept where they can hold the value: None for plain, `'` or `"`.
        flow: Whether it stands inside `[…]` or `{…}`.

    Raises:
        InvalidInput: The number is not finite, or the string has a lone surrogate.
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput("the text has half of a surrogate pair and cannot be written as UTF-8")
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style not in {"'", '"'} and is_safe_plain(value, flow=flow):
        return value
    return _double_quoted(value)
