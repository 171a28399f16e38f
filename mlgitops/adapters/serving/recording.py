"""The last requests of users, kept in memory for replays, where people asked for that.

Nothing is kept unless route.yaml says how many, nothing is ever written to a disk, and all of a model's is forgotten
when route.yaml says so no more, or the router ends. Only requests that were answered are kept: what a model refused
would prove nothing, and nobody can push out the others with what is malformed.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MOST_REQUESTS: Final = 1_000
REQUEST_BYTES: Final = 64 * 1024
"""Longest body that is kept."""
MODEL_BYTES: Final = 8 * 1024 * 1024
"""All bodies of one model together; the oldest go first."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One request, without headers, address or time."""

    path: str
    """`/v1/models/<model>:predict` or `/v2/models/<model>/infer`."""
    body: bytes


@dataclass
class _Ring:
    requests: deque[Recorded] = field(default_factory=deque)
    size_bytes: int = 0

    def drop_oldest(self) -> None:
        self.size_bytes -= len(self.requests.popleft().body)


class Recorder:
    """Keeps requests by environment and model."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], _Ring] = {}

    def limit(self, wanted: dict[tuple[str, str], int]) -> None:
        """Keep so many of each model; all of those that are not named are forgotten at once."""
        for key in [key for key in self._rings if not wanted.get(key)]:
            del self._rings[key]
        for key, ring in self._rings.items():
            while len(ring.requests) > wanted[key]:
                ring.drop_oldest()

    def keep(self, environment: str, model: str, most: int, request: Recorded) -> None:
        """Keep one request where `most` is not 0, and forget the oldest ones beyond it."""
        if not most or len(request.body) > REQUEST_BYTES or request.path not in paths(model):
            return
        ring = self._rings.setdefault((environment, model), _Ring())
        ring.requests.append(request)
        ring.size_bytes += len(request.body)
        while len(ring.requests) > most or ring.size_bytes > MODEL_BYTES:
            ring.drop_oldest()

    def newest(self, environment: str, model: str, count: int) -> Sequence[Recorded]:
        """Return the newest requests, the oldest of them first."""
        ring = self._rings.get((environment, model))
        return [] if ring is None else list(ring.requests)[-count:]


def paths(model: str) -> tuple[str, str]:
    """Return the paths of a model server that predict, for V1 and V2."""
    return f"/v1/models/{model}:predict", f"/v2/models/{model}/infer"
