"""Linting objects: rules for every kind, and the run of all of them over a set."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

from mlgitops.core.errors import Problem
from mlgitops.core.manifest.lint import service, tfjob
from mlgitops.core.manifest.lint.rule import (
    ALLOW_PREFIX,
    RULES,
    Finding,
    Subject,
    add,
    check,
    excuse_fault,
    get,
    problems_of,
)
from mlgitops.core.manifest.read import Document

KINDS: Final = (tfjob.KIND, service.KIND, service.ROUTE)

_GENERATED = add(
    "generate-name",
    "error",
    what="metadata.generateName",
    why="`kubectl apply` and GitOps engines cannot apply it, and every sync would train again.",
    mend="write metadata.name",
    can_be_allowed=False,
)
_EXCUSE = add(
    "allow-annotation",
    "error",
    what="An annotation that allows a rule which does not exist or cannot be allowed, or without a reason and an end",
    why="People would believe that something is allowed, or it would be allowed for ever.",
    mend='write mlgitops.dev/allow-<rule>: "<reason> until <YYYY-MM-DD>" with the name of a rule that can be allowed',
    can_be_allowed=False,
)


@check(_GENERATED, *KINDS)
def _generated(subject: Subject) -> Iterator[Finding]:
    if subject.get("metadata", "generateName") is not None:
        yield ("metadata", "generateName"), "the name would be another one every time"


@check(_EXCUSE, *KINDS)
def _excuse(subject: Subject) -> Iterator[Finding]:
    annotations = subject.get("metadata", "annotations")
    for key, reason in annotations.items() if isinstance(annotations, dict) else ():
        if not key.startswith(ALLOW_PREFIX):
            continue
        rule = RULES.get(key.removeprefix(ALLOW_PREFIX))
        pointer = ("metadata", "annotations", key)
        if rule is None or not rule.can_be_allowed:
            yield pointer, f"{key.removeprefix(ALLOW_PREFIX)!r:.60} is no rule that can be allowed"
        elif fault := excuse_fault(reason, subject.today):
            yield pointer, fault


def lint_objects(
    documents: Sequence[Document], *, previous: Sequence[Document] | None = None, today: date | None = None
) -> list[Problem]:
    """Return every problem of a set of objects, errors, warnings and infos, in the order of the files.

    Args:
        documents: The objects of one model in one environment.
        previous: The same before the change, for rules about changes; None when nothing is known.
        today: The day on which annotations that allow something are judged; None to let expired ones pass.

    Returns:
        Problems with the rule's name. What an annotation `mlgitops.dev/allow-<rule>` of the object allows is an info,
        unless the change itself brings the annotation.
    """
    before = [one.value for one in previous or () if isinstance(one.value, dict)]
    now = [one.value for one in documents]
    found: list[Problem] = []
    for index, document in enumerate(documents):
        former = next((one for one in before if _identity(one) == _identity(document.value)), None)
        others = [one for place, one in enumerate(now) if place != index and isinstance(one, dict)]
        subject = Subject(
            document=document,
            previous=former,
            others=others,
            others_before=before,
            reviewed=previous is not None,
            today=today,
        )
        found += sorted(problems_of(subject), key=lambda one: (one.line or 0, one.column or 0))
    return found


def _identity(value: Any) -> tuple[Any, Any]:
    return get(value, "kind"), get(value, "metadata", "name")


def identity(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return kind and name of an object, as text."""
    kind, name = _identity(value)
    return str(kind), str(name)
