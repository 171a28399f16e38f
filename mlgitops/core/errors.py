"""The tree of errors: what is wrong, in typed fields. What to do about it is the command line's business."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with something a person wrote."""

    message: str
    """What is wrong, in one sentence without a final full stop."""
    path: str | None = None
    """The file, as the person named it; None when there is no file."""
    line: int | None = None
    """Line, counted from 1."""
    column: int | None = None
    """Column in characters, counted from 1."""
    pointer: str | None = None
    """Where in the document, like `training.roles.chief.replicas`."""
    mend: str | None = None
    """What to do about it, in words a person can follow at once."""
    rule: str | None = None
    """The lint rule's name, like `tfjob-ttl`; None for the shape of a document."""
    severity: Severity = "error"
    """Errors refuse the input; warnings and infos are told."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        where = f"{self.pointer}: " if self.pointer else ""
        return f"{place + ': ' if place else ''}{where}{self.message}"


class MlgitopsError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidInput(MlgitopsError):
    """Something a person wrote cannot be accepted; carries every problem, not the first."""

    def __init__(self, problems: Sequence[Problem] | str, *, path: str | None = None) -> None:
        if isinstance(problems, str):
            problems = (Problem(message=problems, path=path),)
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotFound(MlgitopsError):
    """A named thing does not exist; `known` are the names that do."""

    def __init__(self, kind: str, name: str, known: Sequence[str] = ()) -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        super().__init__(f"no {kind} named {name!r}")


class Denied(MlgitopsError):
    """An answer was given, and it was no: a policy, a protection rule, a server's hook."""

    def __init__(self, action: str, subject: str, reason: str = "") -> None:
        self.action, self.subject, self.reason = action, subject, reason
        super().__init__(f"{action} {subject} was refused" + (f": {reason}" if reason else ""))


class ChecksFailed(Denied):
    """What was handed in was looked at, and it is not good: its own tests failed."""


class Conflict(MlgitopsError):
    """Somebody else moved it: the state the change was computed from is not the state found."""

    def __init__(self, subject: str, expected: str | None, found: str | None, reason: str = "") -> None:
        self.subject, self.expected, self.found, self.reason = subject, expected, found, reason
        super().__init__(
            f"{subject} moved: expected {expected or 'nothing'}, found {found or 'nothing'}"
            + (f" ({reason})" if reason else "")
        )


class Unavailable(MlgitopsError):
    """No answer could be had from a service; trying again later may help."""

    def __init__(self, service: str, reason: str = "", *, retry_after_seconds: float | None = None) -> None:
        self.service, self.reason, self.retry_after_seconds = service, reason, retry_after_seconds
        super().__init__(f"{service} is unavailable" + (f": {reason}" if reason else ""))


class DigestMismatch(MlgitopsError):
    """Bytes under a reference are not the bytes that were promised."""

    def __init__(self, reference: str, expected: str, found: str) -> None:
        self.reference, self.expected, self.found = reference, expected, found
        super().__init__(f"{reference}: expected {expected}, found {found}")


class IllegalTransition(MlgitopsError):
    """A machine was asked for a move that its table does not list."""

    def __init__(self, subject: str, phase: str, event: str) -> None:
        self.subject, self.phase, self.event = subject, phase, event
        super().__init__(f"{subject} is {phase} and cannot take {event}")
