"""The router's configuration as values, and the choice of a side for one request. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

BUCKETS: Final = 10_000
"""The split's resolution: a hundredth of a percent."""
NO_COHORT: Final = "0-0"
"""What is stamped on requests while no rollout is open."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One side of a route."""

    arm: str
    """`canary` or `baseline`."""
    weight: int
    """Share, in proportion to the sum of the route's weights."""
    port: int | None
    """Loopback port of the server; None when there is none that answers."""
    release: str
    """Release that answers; empty for none."""
    artifact_digest: str
    """Digest of the bytes that answer; empty for none."""
    absent_status: int = 503
    """Status of requests sent here while there is no server: 500 without such a service, 503 when it is not ready."""
    message: str = ""
    """Why there is no server."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """How one model's requests are split."""

    environment: str
    model: str
    cohort: str
    """Step that is stamped on requests."""
    backends: tuple[Backend, ...]
    routed: bool
    """A route says the weights; without one all requests go to the baseline."""
    tolerance: float | None = None
    """Largest absolute error of a right prediction, for regression; None for classification."""
    record: int = 0
    """How many of the last requests are kept for replays; none by default."""

    @property
    def weight_percent(self) -> int | None:
        """The canary's share in percent; None without a route."""
        if not self.routed:
            return None
        total = sum(backend.weight for backend in self.backends)
        canary = sum(backend.weight for backend in self.backends if backend.arm == "canary")
        return round(100 * canary / total) if total else 0


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Everything the router goes by; replaced as a whole."""

    routes: Mapping[tuple[str, str], Route]
    """By environment and model."""

    def to_bytes(self) -> bytes:
        """Return the configuration file."""
        values = [asdict(route) for _, route in sorted(self.routes.items())]
        return json.dumps({"routes": values}, indent=1, sort_keys=True).encode()

    @property
    def revision(self) -> str:
        """Digest of all it says: what the router acknowledges."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Configuration":
        """Read a configuration file.

        Raises:
            ValueError: It is not one.
        """
        try:
            values: list[dict[str, Any]] = json.loads(data)["routes"]
            routes = [
                Route(**{**value, "backends": tuple(Backend(**one) for one in value["backends"])}) for value in values
            ]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a router configuration: {error}") from error
        return cls(routes={(route.environment, route.model): route for route in routes})


def bucket(request_id: str) -> int:
    """Return where a request falls, 0 to 9,999: the same for the same id, evenly for ids of any pattern."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8]) % BUCKETS


def choose(route: Route, request_id: str) -> Backend | None:
    """Return the side that answers a request; None when all weights are zero.

    The canary takes the lowest buckets, so a growing weight moves requests only towards it.
    """
    total = sum(backend.weight for backend in route.backends)
    if total == 0:
        return None
    position = bucket(request_id)
    edge = 0
    for backend in sorted(route.backends, key=lambda one: one.arm != "canary"):
        edge += backend.weight
        if position < round(BUCKETS * edge / total):
            return backend
    return None
