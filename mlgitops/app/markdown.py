"""Markdown in which nothing that people wrote is anything but text: no link, no mention, no HTML, no end of a table."""

import re
from collections.abc import Mapping
from typing import Final

_RUN: Final = re.compile(r"`+")


def code(text: str) -> str:
    """Return text as a code span that it cannot leave, also in a table."""
    told = plain(text).replace("|", "\\|")
    return f"`` {told} ``" if told else ""


def plain(text: str) -> str:
    """Return text without what steers a terminal or a reader's eye, and without backticks."""
    return "".join(one if one.isprintable() else " " for one in str(text)).replace("`", "'")


def table(rows: Mapping[str, str]) -> str:
    """Return names with what people wrote of each, as a table."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in rows.items())]) + "\n"


def block(text: str, language: str) -> str:
    """Return lines as a fenced block that they cannot leave."""
    lines = ["".join(one if one.isprintable() else " " for one in line) for line in text.splitlines()]
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in _RUN.findall(line)), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])
