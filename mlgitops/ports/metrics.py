"""Counts of what users met, by release, as they grew over time."""

from collections.abc import Sequence
from typing import Protocol

from mlgitops.core.analysis.counts import Arm, Sample

__all__ = ["Arm", "Metrics", "Sample"]


class Metrics(Protocol):
    """Prometheus, or the embedded scraper."""

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first, or nothing; `Unavailable` when it cannot be asked."""
