"""What evaluates a model away from the tool's own process, bounded and without credentials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """A candidate, and the champion it is compared with, on one evaluation set."""

    key: str
    """Names this evaluation; asking twice with the same key runs it once."""
    candidate_uri: str
    candidate_digest: str | None
    """Digest the candidate must have; None before it is known (then the result says it)."""
    champion_uri: str | None
    champion_digest: str | None
    data_uri: str
    """The evaluation set, by digest in the store."""
    specification: Mapping[str, Any]
    """The `evaluation` section of mlgitops.yaml, defaults filled in."""
    source_uri: str | None = None
    """The training inputs in the store, which `command` runs in; None for none."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOutcome:
    """How an evaluation ended."""

    report: Mapping[str, Any] | None
    """The report (schema `evaluation-report`); None when there was no answer."""
    error: str = ""
    """Why no answer could be had (a crash, a time limit); empty with a report."""
    refused: tuple[str, ...] = ()
    """Why the model is refused whatever its metrics are (forbidden operations, bad layout, signature, probe)."""


class Evaluator(Protocol):
    """Starts evaluations and tells how they went; never waits for one."""

    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
        """Start the evaluation unless it was started; its outcome when it has ended, None while it runs."""
