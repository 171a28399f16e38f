"""What a lint rule is, the table of all of them, and what a check is given to look at."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

from mlgitops.core.errors import Problem, Severity
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.read import Document

Pointer = tuple[str | int, ...]
Finding = tuple[Pointer, str]
"""Where, and what is wrong there, in one sentence without a final full stop."""
ALLOW_PREFIX: Final = f"{names.PREFIX}/allow-"
_EXCUSE: Final = re.compile(r"(?P<reason>\S.*?),?\s+until (?P<end>\d{4}-\d\d-\d\d)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One lint rule, as people read about it."""

    name: str
    """Its name, as problems and `mlgitops.dev/allow-<name>` write it."""
    severity: Severity
    """Errors refuse a change; warnings and infos are told."""
    what: str
    """What it refuses."""
    why: str
    """What goes wrong otherwise."""
    mend: str
    """What to do instead."""
    can_be_allowed: bool = True
    """Whether an annotation on the object can allow it, with a reason and an end."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One object, and what is known around it."""

    document: Document
    """The object."""
    previous: Mapping[str, Any] | None = None
    """The object as it was before the change; None when it is new or nothing is known."""
    others: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The objects beside it."""
    others_before: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The objects beside it before the change."""
    reviewed: bool = False
    """Whether this is about a change: what is not there before it is new. Then no excuse counts that is new, too."""
    today: date | None = None
    """The day excuses are judged on; None to let expired ones pass."""

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.get("kind"))

    @property
    def name(self) -> str:
        """Name of the object; empty when it has none."""
        found = self.get("metadata", "name")
        return found if isinstance(found, str) else ""

    def get(self, *pointer: str | int) -> Any:
        """Return what is at `pointer`, None when nothing is."""
        return get(self.document.value, *pointer)

    def annotation(self, name: str) -> Any:
        """Return an annotation of the object."""
        return self.get("metadata", "annotations", name)


Check = Callable[[Subject], Iterable[Finding]]
RULES: Final[dict[str, Rule]] = {}
"""Every rule, by name, in the order of their definition; documentation is generated from it."""
_CHECKS: Final[list[tuple[str, frozenset[str], Check]]] = []


def add(
    name: str,
    severity: Severity,
    *,
    what: str,
    why: str,
    mend: str,
    can_be_allowed: bool = True,
) -> Rule:
    """Put a rule into the table."""
    rule = Rule(name=name, severity=severity, what=what, why=why, mend=mend, can_be_allowed=can_be_allowed)
    if name in RULES:
        raise ValueError(f"there are two rules named {name}")
    RULES[name] = rule
    return rule


def check(rule: Rule, *kinds: str) -> Callable[[Check], Check]:
    """Register a function that finds where objects of `kinds` break `rule`."""

    def register(function: Check) -> Check:
        _CHECKS.append((rule.name, frozenset(kinds), function))
        return function

    return register


def get(value: Any, *pointer: str | int) -> Any:
    """Return what is at `pointer`, None when nothing is."""
    for step in pointer:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def items(value: Any, *pointer: str | int) -> list[Any]:
    """Return the list at `pointer`; an empty one when nothing is there, or something else."""
    found = get(value, *pointer)
    return found if isinstance(found, list) else []


def problems_of(subject: Subject) -> Iterator[Problem]:
    """Return every problem of one object; what an annotation allows is an info that gives reason and end."""
    for name, kinds, function in _CHECKS:
        if subject.kind in kinds:
            for pointer, message in function(subject):
                yield _problem(RULES[name], subject, pointer, message)


def _problem(rule: Rule, subject: Subject, pointer: Pointer, message: str) -> Problem:
    """Return a problem by `rule`, or the info that an annotation of the object allows it."""
    found = replace(subject.document.problem(message, pointer, mend=rule.mend), rule=rule.name, severity=rule.severity)
    key = ALLOW_PREFIX + rule.name
    text = subject.annotation(key)
    if text is None or not rule.can_be_allowed or excuse_fault(text, subject.today):
        return found
    if subject.reviewed and get(subject.previous, "metadata", "annotations", key) != text:
        return replace(found, message=f"{message} (the change that needs it cannot allow it)")
    return replace(found, message=f"{message} (allowed: {text.strip()})", mend=None, severity="info")


def excuse_fault(text: Any, today: date | None) -> str | None:
    """Say why an annotation's value excuses nothing; None when it does: `<reason> until <day>`, that day included."""
    found = _EXCUSE.fullmatch(text.strip()) if isinstance(text, str) else None
    try:
        end = date.fromisoformat(found["end"]) if found else None
    except ValueError:
        end = None
    if end is None:
        return "it does not say why and until when, like `the new runtime is not there yet, until 2027-01-31`"
    return f"it ended on {end}" if today is not None and today > end else None
