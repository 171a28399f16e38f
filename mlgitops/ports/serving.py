"""What serves models, and how the traffic is really split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mlgitops.core.analysis.counts import Arm
from mlgitops.core.analysis.shadow import Replayed
from mlgitops.core.configuration import Shadow

__all__ = ["Arm", "ReplayRequest", "Replayed", "ServiceObservation", "Serving", "ServingObservation"]


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


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """What is replayed to a canary, and to the champion that it is compared with."""

    key: str
    """Names this replay; asking again with the same key gives the same answer, once there is one."""
    environment: str
    model: str
    baseline_digest: str
    """Digest of the bytes that must answer as the champion."""
    canary_digest: str
    """Digest of the bytes that must answer as the candidate."""
    shadow: Shadow
    """Which requests, how many, and how fast."""
    data_uri: str
    """The evaluation set in the store."""
    specification: Mapping[str, Any]
    """The `evaluation` section of mlgitops.yaml: task, names of arrays, and labelTolerance of a regression."""


class Serving(Protocol):
    """KServe, or the embedded servers."""

    def observe(self, environment: str, model: str) -> ServingObservation:
        """Look at what serves; `Unavailable` when the engine cannot be asked."""

    def predict(self, environment: str, model: str, arm: Arm, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one V1 prediction (`{"instances": …}`) past the split to one side and return its answer."""

    def replay(self, request: ReplayRequest) -> Replayed | None:
        """Start replaying requests past the split, unless it was started; how it went, None while it goes on.

        Never waits for an answer of a model. Each request goes to the champion first, and to the canary only if the
        champion answers it; neither is counted as a user's. A replay with too few comparable requests, or with an
        error, may be started again by a later call; any other is done once for its key.

        Raises:
            Unavailable: The engine cannot be asked.
            NotFound: The evaluation set is not where its URI says.
        """
