"""Values of the core for tests: events with every field, a submission, a proposal."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

from mlgitops.core.configuration import MetricRule, Plan, Step
from mlgitops.core.events import Event
from mlgitops.core.names import Digest
from mlgitops.core.release import Submission
from mlgitops.core.rollout import Proposal

AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
PLAN = Plan(
    name="careful",
    steps=tuple(Step(weight_percent=weight, seconds=10) for weight in (10, 50, 95)),
    metrics=(MetricRule(kind="errors", effect=3),),
)


def event(kind: type[Event], seconds: float = 0) -> Event:
    """Return an event of a kind with every field set to something that is not its default."""
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for one in dataclasses.fields(kind):
        values[one.name] = _value(one.name, str(hints[one.name]))
    return kind(**{**values, "at": AT + timedelta(seconds=seconds)})


def _value(name: str, hint: str) -> Any:
    if "tuple[" in hint:
        return ({"epoch": 1.0, "loss": 0.25},)
    if "Mapping[" in hint:
        return {"loss": 0.25}
    if "int" in hint and "str" not in hint:
        return 1
    return f"{name}: what – was\nsaid"


def submission(**changes: Any) -> Submission:
    """Return a submission."""
    digest = str(Digest.of(b"x"))
    values: dict[str, Any] = {
        "model": "digits",
        "code_digest": digest,
        "data_digest": digest,
        "specification_digest": digest,
        "sequence": 1,
        "cause": ("code", "data"),
        "revision": "a" * 40,
        "author": "Ada <ada@example.org>",
        "subject": "yes: no",
        "submitted_at": AT,
        "image": f"digits@{digest}",
        "image_tag": "1e3",
        "variables": {"A_URI": "pvc://x/y"},
        "artifact_uri": "pvc://x/models/1",
        "evaluation_uri": "pvc://x/evaluation",
        "evaluation_digest": digest,
        "configuration": "a: 1\n# é\n",
    }
    return Submission(**{**values, **changes})


def proposal(number: int = 1, *, champion: int | None = None, release: str = "0123456789ab") -> Proposal:
    """Return a proposal."""
    return Proposal(
        number=number,
        environment="production",
        model="digits",
        release=release,
        plan=PLAN.to_mapping(),
        plan_digest=str(PLAN.digest),
        champion=champion,
        by="Ada <ada@example.org>",
        revision="b" * 40,
        proposed_at=AT,
        forced="because",
    )
