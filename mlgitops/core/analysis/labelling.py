"""Whether labels came to both arms alike: labels for one arm alone say more about who sent them than about the model.

A label comes for a request, and the request's arm was drawn by its id. Whoever reports labels knows nothing of arms, so
of L labels the canary gets what a draw of L out of all answered requests gives it: the hypergeometric distribution,
whatever the labels' delays and shares are. Somebody who sends labels for one arm (to roll a release back, or to drown
what speaks against it) leaves a share that no such draw explains. So does an application that learns the truth only
where the model said yes; there, too, the arms cannot be compared.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mlgitops.core.analysis.counts import Arm, Sample, moments

LEVEL: Final = 1e-7
"""Chance at which one look takes the shares for distorted; over thousands of looks at a rollout, below 0.1 %."""
_SCREEN: Final = 4.5
"""Standard deviations below which no exact tail can be this small."""


class Labelling:
    """What was seen so far of labels and their arms, moment by moment.

    What was once distorted stays so: evidence keeps what it saw, also when other labels come later.
    """

    def __init__(self, known: Mapping[str, tuple[int, int]] = MappingProxyType({}), told: str = "") -> None:
        """Go on after `known`, the labels of (canary, baseline) by cohort, and after what was told."""
        self.known, self.told = dict(known), told

    def copy(self) -> "Labelling":
        """Return the same, to go on from without changing this one."""
        return Labelling(self.known, self.told)

    def known_mapping(self) -> dict[str, list[int]]:
        """Return `known` as plain values."""
        return {cohort: list(labels) for cohort, labels in self.known.items()}

    def take(self, together: Sequence[Sample]) -> None:
        """Take the samples of one moment, later than all before."""
        moment: dict[str, dict[Arm, Sample]] = {}
        for sample in together:
            moment.setdefault(sample.cohort, {})[sample.arm] = sample
        for cohort, arms in moment.items():
            if self.told or len(arms) < len(Arm):
                continue  # counts of two moments cannot be compared: many labels may have come in between
            canary, baseline = arms[Arm.CANARY], arms[Arm.BASELINE]
            labels = canary.labelled, baseline.labelled
            if labels != self.known.get(cohort) and _is_distorted(canary, baseline):
                share = f"{_share(canary)} of the canary's and {_share(baseline)} of the baseline's answers"
                self.told = f"in step {cohort} labels came for {share}: more for one arm than chance explains"
            self.known[cohort] = labels


def one_sided(samples: Sequence[Sample]) -> str:
    """Say in which step labels came to one arm more than chance explains, at any time so far; empty where in none.

    Args:
        samples: Checked samples of one rollout, in any order.
    """
    labelling = Labelling()
    for _, together in moments(samples):
        labelling.take(together)
    return labelling.told


def _share(sample: Sample) -> str:
    return f"{sample.labelled} of {_answered(sample)}"


def _answered(sample: Sample) -> int:
    """Return how many requests could be labelled: one that the server failed has no prediction."""
    return max(sample.labelled, sample.total - sample.failed)


def _is_distorted(canary: Sample, baseline: Sample) -> bool:
    ours, theirs = _answered(canary), _answered(baseline)
    labels = canary.labelled + baseline.labelled
    total = ours + theirs
    if not labels or labels == total or not ours or not theirs:
        return False
    mean = labels * ours / total
    deviation = math.sqrt(mean * theirs / total * (total - labels) / max(1, total - 1))
    if abs(canary.labelled - mean) < _SCREEN * deviation:
        return False
    return _tail(canary.labelled, ours, theirs, labels) < LEVEL / 2


def _tail(found: int, ours: int, theirs: int, labels: int) -> float:
    """Return the hypergeometric chance of `found` labels for the canary, or of a number further from its mean."""
    step = 1 if found * (ours + theirs) > labels * ours else -1
    total, count = 0.0, found
    while max(0, labels - theirs) <= count <= min(ours, labels):
        term = math.exp(
            _log_choose(ours, count) + _log_choose(theirs, labels - count) - _log_choose(ours + theirs, labels)
        )
        total += term
        if term < 1e-4 * total or total >= LEVEL:
            break
        count += step
    return total


def _log_choose(whole: int, part: int) -> float:
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)
