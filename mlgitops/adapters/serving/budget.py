"""A bound on how much of something is taken in a while: a flood of labels must leave predictions their time."""

from collections.abc import Callable
from time import monotonic
from typing import Final

PER_SECOND: Final = 5_000
BURST: Final = 50_000


class Budget:
    """Fills at a steady rate up to a burst; whoever spends more than there is waits until it is paid back."""

    def __init__(
        self, per_second: float = PER_SECOND, burst: float = BURST, *, now: Callable[[], float] = monotonic
    ) -> None:
        """Begin full.

        Args:
            per_second: Units that come in each second.
            burst: Most units that are kept.
            now: The present in seconds, on any clock that does not go back.
        """
        self._per_second, self._burst, self._now = per_second, burst, now
        self._left, self._at = burst, now()

    def has_some(self) -> bool:
        """Say whether something may be spent now."""
        at = self._now()
        self._left = min(self._burst, self._left + (at - self._at) * self._per_second)
        self._at = at
        return self._left > 0

    def spend(self, units: float) -> None:
        """Take units away; the last ones may be more than there are."""
        self._left -= units
