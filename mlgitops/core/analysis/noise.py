"""How noisy a service is: by what its bad outcomes vary more than independent ones would."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.analysis.counts import Interval
from mlgitops.core.errors import InvalidInput

DEFAULT_DISPERSION: Final = 2.0
"""Assumed where no A/A history says how noisy the service is.

Independent requests would give 1. Failures that come in pairs (a client that retries once, a batch of two) give 2, so
2 keeps the promised rate of false rollbacks there and costs twice the requests. Stronger bursts need a measured value.
"""

BLOCK_MINUTES: Final = 10
"""Minutes in a block of history: bursts that last so long are seen as what they are."""
LEAST_BLOCKS: Final = 12
"""Blocks with a bad outcome that a history needs to be believed: two hours. With fewer, one quiet block decides."""


class NoiseSource(enum.StrEnum):
    """Where a dispersion comes from; published, so a name never changes its meaning."""

    PLAN = "plan"
    """The plan says it."""
    HISTORY = "history"
    """It was measured on two groups of the same version."""
    DEFAULT = "default"
    """Nobody knows; `DEFAULT_DISPERSION` was taken."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """By what log evidence is divided, and who says so."""

    dispersion: float
    """Long-run variance over binomial variance, at least 1."""
    source: NoiseSource
    """Where it comes from."""
    blocks: int | None = None
    """Blocks of `BLOCK_MINUTES` with a bad outcome that it was measured on; None where it was not."""
    rollout: int | None = None
    """Rollout at whose end two groups of its release were compared; None where it was not measured so."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, without what is absent; `from_mapping` gives the same noise again."""
        values = {"dispersion": self.dispersion, "source": str(self.source)}
        measured = {"blocks": self.blocks, "rollout": self.rollout}
        return values | {name: value for name, value in measured.items() if value is not None}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Noise":
        """Return the noise of `to_mapping`; KeyError, TypeError or ValueError of anything else."""
        return cls(**{**values, "source": NoiseSource(values["source"])})


def noise_of(planned: float | None, history: Sequence[Interval] = ()) -> Noise:
    """Return the noise to judge by: the plan's word, else what history shows, else the default.

    It is settled before a rollout: a dispersion that followed the rollout's own counts would excuse its canary.

    Args:
        planned: What the plan says; None for nothing.
        history: Counts of two groups of one version per minute, see `dispersion_from_history`.

    Raises:
        InvalidInput: The plan's dispersion is below 1 or not finite.
    """
    if planned is not None:
        if not 1 <= planned < math.inf:
            raise InvalidInput(f"the dispersion is {planned}, not a finite number of at least 1")
        return Noise(dispersion=planned, source=NoiseSource.PLAN)
    return noise_in(history) or Noise(dispersion=DEFAULT_DISPERSION, source=NoiseSource.DEFAULT)


def noise_in(history: Sequence[Interval]) -> Noise | None:
    """Return the noise that a history of two groups of one version shows; None where it has too few blocks.

    Args:
        history: Counts of the two groups per minute, see `dispersion_from_history`.
    """
    ratios = _blocks(history, BLOCK_MINUTES)
    measured = _from_blocks(ratios) if len(ratios) >= LEAST_BLOCKS else None
    return None if measured is None else Noise(dispersion=measured, source=NoiseSource.HISTORY, blocks=len(ratios))


def dispersion_from_history(minutes: Sequence[Interval], *, block_length: int = BLOCK_MINUTES) -> float | None:
    """Return the long-run dispersion φ of an A/A history: how much noisier than independent requests.

    Per minute U = x₁ − k·n₁/N and V = k·n₁·n₂·(N−k)/(N²(N−1)) are deviation and variance of a fair split of the bad
    outcomes; summed over blocks, correlation from minute to minute shows. The mean of (ΣU)²/ΣV over the K blocks is
    raised to its upper 80 % limit by the χ² quantile, so a short history errs on the careful side.

    Args:
        minutes: Counts of two pod groups of the *same* version, per minute, in order; the groups are `canary` and
            `baseline` here.
        block_length: Minutes in a block; a last incomplete block is left out.

    Returns:
        φ ≥ 1; None where no block has a bad outcome, so that history says nothing.

    Raises:
        InvalidInput: The block length is not positive.
    """
    if block_length < 1:
        raise InvalidInput(f"a block of {block_length} minutes cannot be")
    return _from_blocks(_blocks(minutes, block_length))


def _blocks(minutes: Sequence[Interval], block_length: int) -> list[float]:
    """Return (ΣU)²/ΣV of each block that has a bad outcome."""
    ratios = []
    for start in range(0, len(minutes) - block_length + 1, block_length):
        deviations, variances = zip(*map(_split, minutes[start : start + block_length]), strict=True)
        if (variance := math.fsum(variances)) > 0:
            ratios.append(math.fsum(deviations) ** 2 / variance)
    return ratios


def _from_blocks(ratios: Sequence[float]) -> float | None:
    if not ratios:
        return None
    from scipy.special import gammaincinv

    quantile = 2 * float(gammaincinv(len(ratios) / 2, 0.2))  # of χ² with that many degrees of freedom
    return max(1.0, math.fsum(ratios) / quantile)


def _split(minute: Interval) -> tuple[float, float]:
    """Return deviation and variance of the first group's bad outcomes, given all; (0, 0) where nothing can vary."""
    first, second = minute.canary, minute.baseline
    total, bad = first.total + second.total, first.bad + second.bad
    if total < 2:
        return 0.0, 0.0
    variance = bad * first.total * second.total * (total - bad) / (total * total * (total - 1))
    return first.bad - bad * first.total / total, variance
