"""Counts of what users met, by release, as they grew over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mlgitops.ports.serving import Arm


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Cumulative counts of one arm in one step cohort at one moment; never decreasing within (cohort, arm)."""

    at: datetime
    """When it was read; aware, UTC."""
    cohort: str
    """`<rollout number>-<step>`: the step during which the *requests* were made, however late their labels come."""
    arm: Arm
    total: int
    """Requests answered or failed."""
    failed: int
    """Of these, failed by the server (5xx, timeout, connection); a malformed request is not its fault."""
    latency: tuple[tuple[float, int], ...] = ()
    """(upper bound in seconds, requests at most that slow), cumulative, ascending, without the infinite bound."""
    labelled: int = 0
    """Requests whose true label has come."""
    incorrect: int = 0
    """Of these, predicted wrongly."""


class Metrics(Protocol):
    """Prometheus, or the embedded scraper."""

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first; empty when there is none. `Unavailable` when it cannot be asked."""
