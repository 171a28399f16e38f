"""Text of other people made safe: for a terminal, for a log that is read by machines, and without secrets."""

import os
import re
from typing import Any, Final

_USERINFO: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s]*@", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
)
_HEADER: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_NAMED: Final = re.compile(
    r"(?<![A-Za-z0-9])((?:[\w-]*[_-])?(?:token|password|passwd|secret|api_?key|signature)=)[^\s&;,'\"]+", re.IGNORECASE
)
_OWN: Final = ("MLGITOPS_TOKEN", "MLGITOPS_SSH_PASSPHRASE")
_SHORTEST: Final = 4
"""What is shorter would hide ordinary words, and is no secret."""


def redacted(text: str) -> str:
    """Return `text` without what looks like a secret: user and password in URLs, tokens, headers, `token=…`."""
    for name in _OWN:
        secret = os.environ.get(name, "").strip()
        text = text.replace(secret, "***") if len(secret) >= _SHORTEST else text
    text = _TOKEN.sub("***", _USERINFO.sub(r"\1***@", text))
    return _NAMED.sub(r"\1***", _HEADER.sub(r"\1 ***", text))


def redacted_values(values: Any) -> Any:
    """Return plain values with every text in them redacted."""
    if isinstance(values, str):
        return redacted(values)
    if isinstance(values, dict):
        return {name: redacted_values(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [redacted_values(value) for value in values]
    return values


def one_line(value: object) -> str:
    """Return text in one line without control characters: escape sequences, line breaks, changes of direction.

    Names and subjects come from other people's repositories, and a terminal obeys what it is sent.
    """
    text = str(value)
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)


def several_lines(text: str) -> str:
    """Return text with its line breaks and without other control characters; tabs become spaces."""
    return "\n".join(one_line(line.expandtabs(8)) for line in re.split(r"\r\n|\n|\r", text))


def examples(*commands: str) -> str:
    """Return the end of a help page: commands as they are typed, none of them wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)
