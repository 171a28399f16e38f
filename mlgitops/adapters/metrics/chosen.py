"""The `Metrics` port as `environments.yaml` chooses it, on what whoever runs mlgitops gave it.

The file says which kind of source counts and what it is asked. Where the server is, and which command runs, stands in
the operator's environment: an edit of the file must send no token elsewhere and run no program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlgitops.core.configuration import MetricsSource
from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Counts, Sample


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where counts can come from."""

    prometheus: str | None = None
    """Address of a Prometheus server; None for none."""
    token: str | None = None
    """Bearer token for it."""
    command: tuple[str, ...] = ()
    """Command that tells counts; empty for none."""


@dataclass(frozen=True)
class ChosenMetrics:
    """One of several sources."""

    engine: Counts
    sources: Sources
    source: MetricsSource = field(default_factory=MetricsSource)

    def using(self, source: MetricsSource) -> "ChosenMetrics":
        """Return the same with another choice."""
        return replace(self, source=source)

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return what the chosen source tells; see the port."""
        return self._chosen().samples(environment, model, rollout)

    def problem(self, environment: str, model: str) -> str:
        """Return what the chosen source says; see the port."""
        return self._chosen().problem(environment, model)

    def _chosen(self) -> Counts:
        if self.source.source == "prometheus":
            if self.sources.prometheus is None:
                raise Unavailable("Prometheus", "environments.yaml counts with it: set MLGITOPS_PROMETHEUS")
            from mlgitops.adapters.metrics.prometheus import PrometheusMetrics  # only who asks one needs its library

            return PrometheusMetrics(self.sources.prometheus, self.source.prometheus, self.sources.token)
        if self.source.source == "command":
            if not self.sources.command:
                raise Unavailable("metrics command", "environments.yaml counts with it: set MLGITOPS_METRICS_COMMAND")
            from mlgitops.adapters.metrics.command import CommandMetrics

            return CommandMetrics(self.sources.command)
        return self.engine
