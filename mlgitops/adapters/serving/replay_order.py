"""What the router is asked to replay, as a value that both sides read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.analysis.shadow import Replayed

MOST: Final = 1_000
"""Requests of one replay."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be replayed, as the port's adapter says it."""

    key: str
    environment: str
    model: str
    digests: Mapping[str, str]
    """Digest of the bytes that must answer, by arm."""
    source: str
    """`recorded` or `evaluation`."""
    count: int
    minimum: int
    per_second: float
    regression: bool
    tolerance: float | None
    file: str = ""
    """The evaluation set."""
    specification: Mapping[str, Any]
    """Names of its arrays."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Order":
        """Return an order that `asdict` wrote.

        Raises:
            ValueError: It is none, or asks for more than is ever done.
        """
        try:
            order = cls(**values)
            if not (0 < order.minimum <= order.count <= MOST and 0 < order.per_second <= 1_000):
                raise ValueError("a replay needs 0 < minimum ≤ count ≤ 1,000 and a rate")
        except TypeError as error:
            raise ValueError(f"not an order of a replay: {error}") from error
        return order


def read_replayed(values: Mapping[str, Any]) -> Replayed:
    """Return what a replay found, from the JSON that `dataclasses.asdict` makes of it."""
    return Replayed(**{**values, "seconds": tuple((one, other) for one, other in values["seconds"])})
