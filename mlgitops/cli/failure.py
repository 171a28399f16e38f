"""What a person is told when something fails: Error, Caused by, Hint; and the published exit codes.

```
0    done, or nothing to do
1    error: what was named is not there, a policy or a server said no, bytes are not those that were promised
2    usage: the command line itself cannot be read
3    invalid input: something a person wrote cannot be accepted; every problem is named
4    somebody else moved it: run the command again
5    unavailable: run it again later
10   the answer was no: tests of the pushed commit failed, `doctor` found an error, a followed training made no model
11   inconclusive: reserved for a judgement that found too little data
130  interrupted
255  a bug: anything that is not one of the errors above
```

A reader that goes away (`mlgitops history | head`) is no error: 0.
"""

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from mlgitops.adapters.redacting import redacted, redacted_values
from mlgitops.cli import github
from mlgitops.cli.words import several_lines
from mlgitops.core.errors import (
    ChecksFailed,
    Conflict,
    Denied,
    DigestMismatch,
    IllegalTransition,
    InvalidInput,
    MlgitopsError,
    NotFound,
    Unavailable,
)

if TYPE_CHECKING:
    import click

DONE: Final = 0
USAGE: Final = 2
ANSWER_NO: Final = 10
INCONCLUSIVE: Final = 11
BUG: Final = 255
CODES: Final[dict[type[MlgitopsError], int]] = {
    InvalidInput: 3,
    NotFound: 1,
    ChecksFailed: ANSWER_NO,
    Denied: 1,
    DigestMismatch: 1,
    IllegalTransition: 1,
    Conflict: 4,
    Unavailable: 5,
}
HINTS: Final[dict[type[MlgitopsError], str]] = {
    ChecksFailed: "mend it, commit and push again; nothing was built",
    Conflict: "run the command again: it decides anew from what is there now",
    IllegalTransition: "`mlgitops history` shows what happened to it",
    Unavailable: "nothing was half-written; run the command again later",
}
HINTS_BY_NAME: Final = {
    "engine": "start one with `mlgitops local up` in the model repository, or name its folder with --home",
    "image repository": "create it in the registry, or mend `image.repository` in mlgitops.yaml",
    "ledger": "nothing is changed without a ledger; restore the branch, or start one with `mlgitops local up`",
}
"""What to do where something of a kind is missing."""
_SHOWN_NAMES: Final = 12
_CAUSES: Final = 8


def code(error: MlgitopsError) -> int:
    """Return the published exit code of an error."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), 1)


def hint(error: MlgitopsError) -> str:
    """Say what to do about an error; empty where its own words say it."""
    if isinstance(error, NotFound):
        return _known(error) if error.known else HINTS_BY_NAME.get(error.kind, "")
    return next((words for kind, words in HINTS.items() if isinstance(error, kind)), "")


def _known(error: NotFound) -> str:
    from difflib import get_close_matches

    near = get_close_matches(error.name, error.known, 1)
    if near:
        return f"did you mean {near[0]}?"
    more = len(error.known) - _SHOWN_NAMES
    return f"there is: {', '.join(error.known[:_SHOWN_NAMES])}" + (f" and {more} more" if more > 0 else "")


def show(error: MlgitopsError, *, as_json: bool, verbose: bool) -> int:
    """Tell a person, a program and a workflow what failed; returns the exit code."""
    if as_json:
        _write_json(as_values(error))
    else:
        sys.stderr.write(_safe(_words(error)) + "\n")
    github.annotate(error)
    if verbose:
        import traceback

        sys.stderr.write(_safe("".join(traceback.format_exception(error))))
    return code(error)


def as_values(error: MlgitopsError) -> dict[str, Any]:
    """Return an error as plain values, by the published schema."""
    values: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": str(error),
        "hint": hint(error),
        "exitCode": code(error),
    }
    if _causes(error):
        values["causes"] = _causes(error)
    if isinstance(error, InvalidInput):
        values["problems"] = [
            {name: value for name, value in vars(problem).items() if value is not None} for problem in error.problems
        ]
    plain: dict[str, Any] = redacted_values(values)
    return plain


def _words(error: MlgitopsError) -> str:
    lines = []
    if isinstance(error, InvalidInput):
        for problem in error.problems:
            lines.append(f"{problem.severity.capitalize()}: {_indented(str(problem))}")
            lines += [f"  mend: {_indented(problem.mend)}"] if problem.mend else []
    else:
        lines.append(f"Error: {_indented(str(error))}")
    lines += [f"Caused by: {_indented(cause)}" for cause in _causes(error)]
    if hint(error):
        lines.append(f"Hint: {hint(error)}")
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Return a text of several lines, such as the end of a log, set off from this tool's own words."""
    return "\n  | ".join(several_lines(text).splitlines())


def _causes(error: BaseException) -> list[str]:
    causes: list[str] = []
    cause = error.__cause__
    while cause is not None and len(causes) < _CAUSES:
        causes.append(str(cause) or type(cause).__name__)
        cause = cause.__cause__
    return causes


def _safe(text: str) -> str:
    return github.harmless(redacted(several_lines(text)))


def _write_json(error: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"error": error}, indent=1) + "\n")


def show_usage(error: "click.ClickException", *, as_json: bool) -> int:
    """Say what is wrong with the command line itself."""
    if as_json:
        values = {"kind": "UsageError", "message": error.format_message(), "hint": "", "exitCode": USAGE}
        _write_json(redacted_values(values))
    else:
        context = getattr(error, "ctx", None)
        usage = context.get_usage() + "\n" if context is not None else ""
        path = context.command_path if context is not None else "mlgitops"
        sys.stderr.write(_safe(f"{usage}Error: {error.format_message()}\nHint: `{path} --help` says how") + "\n")
    return USAGE


def show_bug(trace: str, *, as_json: bool, verbose: bool) -> int:
    """Say that this is a bug; the traceback goes to a file unless it was asked for."""
    last = trace.strip().splitlines()[-1]
    told = f"this is a bug in mlgitops: {last}"
    if verbose:
        sys.stderr.write(_safe(trace))
        where = "please report it with the traceback"
    else:
        kept = _kept(trace)
        where = f"please report it with {kept}; --verbose shows the traceback here" if kept else "--verbose shows where"
    if as_json:
        _write_json(redacted_values({"kind": "Bug", "message": told, "hint": where, "exitCode": BUG}))
    else:
        sys.stderr.write(_safe(f"Error: {told}\nHint: {where}") + "\n")
    return BUG


def _kept(trace: str) -> str:
    """Write a traceback to a file that only its owner reads; returns its path, empty where the disk takes none."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile("w", prefix="mlgitops-bug-", suffix=".txt", delete=False) as file:
            file.write(redacted(trace))
    except OSError:
        return ""
    return file.name
