"""What serves models, and how the traffic is really split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mlgitops.core.analysis.counts import Arm

__all__ = ["Arm", "ServiceObservation", "Serving", "ServingObservation"]


@dataclass(frozen=True, kw_only=True)
class ServiceObservation:
    """One InferenceService as it serves, not as it was asked for."""

    ready: bool
    """Model loaded, of the revision asked for, and answering."""
    serving: bool
    """Some revision answers, perhaps an older one while the new one loads."""
    storage_uri: str | None
    """Where the model that answers now came from."""
    artifact_digest: str | None
    """Digest of the bytes that answer now, read by the server itself."""
    release: str | None
    """Release label of the revision that answers now."""
    message: str = ""
    """Why it is not ready; empty when it is."""


@dataclass(frozen=True, kw_only=True)
class ServingObservation:
    """One model in one environment."""

    baseline: ServiceObservation | None
    """The InferenceService of the champion; None when there is none."""
    canary: ServiceObservation | None
    """The canary's; None when there is none."""
    weight_percent: int | None
    """Share of traffic that the router gives the canary now; None when there is no route."""
    cohort: str | None
    """The step the router stamps on requests now (see `metrics.Sample.cohort`)."""


class Serving(Protocol):
    """KServe, or the embedded servers."""

    def observe(self, environment: str, model: str) -> ServingObservation:
        """Look at what serves; `Unavailable` when the engine cannot be asked."""

    def predict(self, environment: str, model: str, arm: Arm, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one V1 prediction (`{"instances": …}`) past the split to one side and return its answer."""
