"""What a person is told when something fails: Error, Caused by, Hint; and the published exit codes."""

import json
import os
import re
import sys
from typing import Any, Final

from mlgitops.core.errors import (
    Conflict,
    Denied,
    DigestMismatch,
    IllegalTransition,
    InvalidInput,
    MlgitopsError,
    NotFound,
    Unavailable,
)

DONE: Final = 0
ANSWER_NO: Final = 10
INCONCLUSIVE: Final = 11
BUG: Final = 255
CODES: Final[dict[type[MlgitopsError], int]] = {
    InvalidInput: 3,
    NotFound: 1,
    Denied: 1,
    DigestMismatch: 1,
    IllegalTransition: 1,
    Conflict: 4,
    Unavailable: 5,
}
_USERINFO: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_TOKEN: Final = re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|Bearer\s+\S{8,})")


def redacted(text: str) -> str:
    """Return `text` without what looks like a secret."""
    return _TOKEN.sub("***", _USERINFO.sub(r"\1***@", text))


def code(error: MlgitopsError) -> int:
    """Return the published exit code of an error."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), 1)


def hint(error: MlgitopsError) -> str:
    """Say what to do about an error; empty where its own words say it."""
    if isinstance(error, Conflict):
        return "run the command again: it decides anew from what is there now"
    if isinstance(error, Unavailable):
        return "nothing was half-written; run the command again later"
    if isinstance(error, NotFound) and error.known:
        return f"there is: {', '.join(error.known[:12])}"
    if isinstance(error, NotFound) and error.kind == "ledger":
        return "nothing is changed without a ledger; restore the branch, or start one with `mlgitops local up`"
    return ""


def show(error: MlgitopsError, *, as_json: bool, verbose: bool) -> int:
    """Tell a person, a program and a workflow what failed; returns the exit code."""
    if as_json:
        sys.stdout.write(json.dumps({"error": as_values(error)}, indent=1) + "\n")
    else:
        sys.stderr.write(redacted(_words(error)) + "\n")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stderr.write(redacted(_annotations(error)))
    if verbose:
        import traceback

        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return code(error)


def as_values(error: MlgitopsError) -> dict[str, Any]:
    """Return an error as plain values, by the published schema."""
    values: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": redacted(str(error)),
        "hint": hint(error),
        "exitCode": code(error),
    }
    if isinstance(error, InvalidInput):
        values["problems"] = [
            {name: value for name, value in vars(problem).items() if value is not None} for problem in error.problems
        ]
    return values


def _words(error: MlgitopsError) -> str:
    lines = []
    if isinstance(error, InvalidInput):
        for problem in error.problems:
            lines.append(f"{problem.severity.capitalize()}: {problem}")
            lines += [f"  mend: {problem.mend}"] if problem.mend else []
    else:
        lines.append(f"Error: {error}")
    cause = error.__cause__
    while cause is not None:
        lines.append(f"Caused by: {str(cause) or type(cause).__name__}")
        cause = cause.__cause__
    if hint(error):
        lines.append(f"Hint: {hint(error)}")
    return "\n".join(lines)


def _annotations(error: MlgitopsError) -> str:
    if not isinstance(error, InvalidInput):
        return f"::error::{_escaped(str(error))}\n"
    lines = []
    for one in error.problems:
        place = {"file": one.path, "line": one.line, "col": one.column}
        told = ",".join(f"{name}={_escaped(str(value), ',:')}" for name, value in place.items() if value is not None)
        lines.append(f"::{'notice' if one.severity == 'info' else one.severity} {told}::{_escaped(one.message)}\n")
    return "".join(lines)


def _escaped(text: str, more: str = "") -> str:
    """Escape text for a workflow command, so that no input can make another one."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def show_bug(trace: str, *, verbose: bool) -> int:
    """Say that this is a bug; the traceback goes to a file unless it was asked for."""
    if verbose:
        sys.stderr.write(redacted(trace))
    else:
        import tempfile

        with tempfile.NamedTemporaryFile("w", prefix="mlgitops-bug-", suffix=".txt", delete=False) as file:
            file.write(redacted(trace))
        last = trace.strip().splitlines()[-1]
        sys.stderr.write(f"Error: this is a bug in mlgitops: {redacted(last)}\n")
        sys.stderr.write(f"Hint: please report it with {file.name}; --verbose shows it here\n")
    return BUG
