"""What GitHub Actions reads: annotations, outputs of a step, its summary. Nothing elsewhere."""

import os
import secrets
import sys
from collections.abc import Mapping, Sequence

from mlgitops.adapters.redacting import redacted
from mlgitops.cli.words import one_line, several_lines
from mlgitops.core.errors import InvalidInput, MlgitopsError, Problem


def running() -> bool:
    """Say whether a workflow's step runs this."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotate(error: MlgitopsError) -> None:
    """Show an error where people review: at the file and line where it has one."""
    if not running():
        return
    told = error.problems if isinstance(error, InvalidInput) else [Problem(message=str(error))]
    annotate_problems(told)


def annotate_problems(problems: Sequence[Problem]) -> None:
    """Show problems where people review."""
    if running():
        sys.stderr.write("".join(_annotation(one) for one in problems))


def _annotation(problem: Problem) -> str:
    place = {"file": problem.path, "line": problem.line, "col": problem.column, "title": problem.rule}
    given = {name: redacted(str(value)) for name, value in place.items() if value is not None}
    told = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in given.items())
    kind = "notice" if problem.severity == "info" else problem.severity
    where = f"{problem.pointer}: " if problem.pointer else ""
    mend = f"\nmend: {problem.mend}" if problem.mend else ""
    return f"::{kind}{' ' if told else ''}{told}::{_escaped(redacted(where + problem.message + mend))}\n"


def _escaped(text: str, more: str = "") -> str:
    """Escape text for a workflow command, so that no input can make another one."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return one_line(text)


def harmless(text: str) -> str:
    """Return text in which no line is a workflow command; untouched where no workflow reads it."""
    if not running():
        return text
    lines = (f"| {line}" if line.lstrip().startswith("::") else line for line in text.split("\n"))
    return "\n".join(lines).replace("##[", "## [")


def report(title: str, values: Mapping[str, object], words: str) -> None:
    """Give a step its outputs and its summary, where files for them are named."""
    _append("GITHUB_OUTPUT", "".join(_output(name, value) for name, value in values.items()))
    text = several_lines(redacted(words)).strip("\n")
    fence = "`" * max(3, _longest_run(text) + 1)
    _append("GITHUB_STEP_SUMMARY", f"### {title}\n\n{fence}\n{text}\n{fence}\n\n")


def _output(name: str, value: object) -> str:
    """Return one output; the mark of its end is drawn anew each time, so that no value can contain it."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, list | tuple):
        value = ",".join(str(one) for one in value)
    if value is None or isinstance(value, dict):
        return ""
    mark = f"mlgitops-{secrets.token_hex(16)}"
    return f"{name}<<{mark}\n{redacted(str(value))}\n{mark}\n"


def _append(variable: str, text: str) -> None:
    place = os.environ.get(variable)
    if running() and place:
        with open(place, "a", encoding="utf-8") as file:  # noqa: PTH123 - the runner names the file
            file.write(text)


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
