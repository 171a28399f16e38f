"""Counts of what users met, by release, as they grew over time."""

from collections.abc import Sequence
from typing import Protocol

from mlgitops.core.analysis.counts import Arm, Sample, SliceCounts
from mlgitops.core.configuration import MetricsSource

__all__ = ["Arm", "Counts", "Metrics", "Sample", "SliceCounts"]


class Counts(Protocol):
    """One source: a Prometheus server, a command, or the embedded scraper."""

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first, or nothing; `Unavailable` when it cannot be asked.

        What is doubtful (an answer that may be partial, a value that is no count) is `Unavailable`, too: nothing is
        decided on it.
        """

    def problem(self, environment: str, model: str) -> str:
        """Say why a canary could not be judged by this source, tried on what serves now; empty when it could.

        Raises:
            Unavailable: It cannot be asked.
        """


class Metrics(Counts, Protocol):
    """All sources of an engine, one of them chosen."""

    def using(self, source: MetricsSource) -> "Metrics":
        """Return the same as `environments.yaml` chooses it now."""
