"""What `main` must say for one model in one environment, derived from where its rollouts are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlgitops.core.manifest.owned import RolloutFields


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model that an InferenceService serves."""

    release: str
    storage_uri: str
    artifact_digest: str


@dataclass(frozen=True, kw_only=True)
class Desired:
    """Every owned field of an environment's folder for one model."""

    rollout: RolloutFields | None = None
    """Content of `rollout.yaml`; None for no such file."""
    stable: Target | None = None
    """What `inferenceservice.yaml` serves; None for no such file, nor a route."""
    canary: Target | None = None
    """What `inferenceservice-canary.yaml` serves; None for no such file."""
    weight_percent: int = 0
    """Share of the canary in `route.yaml`."""
    cohort: str = "0-0"
    """What the router stamps on requests."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the values as plain data."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Desired":
        """Return the value that `to_mapping` wrote."""
        rollout, stable, canary = (values.get(name) for name in ("rollout", "stable", "canary"))
        return cls(
            rollout=RolloutFields(**rollout) if rollout else None,
            stable=Target(**stable) if stable else None,
            canary=Target(**canary) if canary else None,
            weight_percent=values["weight_percent"],
            cohort=values["cohort"],
        )
