"""Samples of a rollout as a rough world gives them, by dice."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mlgitops.core.analysis.counts import Arm, Sample

START = datetime(2026, 3, 1, tzinfo=UTC)
BOUNDS = (0.01, 0.05, 0.1, 0.25, 1.0)


def traffic(dice: random.Random, moments: int, *, worse: float = 1.0) -> list[Sample]:
    """Three steps with missing scrapes, arms read apart, labels that come late, and a layout that loses a bucket."""
    samples: list[Sample] = []
    counts: dict[tuple[str, Arm], list[int]] = {}
    for moment in range(moments):
        step = 1 + 3 * moment // moments
        for arm in Arm:
            kept = counts.setdefault((f"7-{step}", arm), [0] * 9)
            for _ in range(dice.randrange(60 if arm is Arm.BASELINE else 20 * step)):
                slow, factor = dice.random(), worse if arm is Arm.CANARY else 1.0
                gained = (1, dice.random() < 0.02 * factor, *(slow < 1 - factor / 5**place for place in range(1, 6)))
                kept[:7] = [old + new for old, new in zip(kept, gained, strict=False)]
        for (cohort, arm), kept in counts.items():
            waiting = kept[0] - kept[1] - kept[7]
            fresh = dice.randrange(waiting + 1) if waiting > 0 and dice.random() < 0.5 else 0
            kept[7] += fresh
            kept[8] += sum(dice.random() < 0.1 for _ in range(fresh))
            if (cohort == f"7-{step}" or fresh) and dice.random() < 0.9:
                apart = timedelta(seconds=dice.choice([0, 0, 5]) if arm is Arm.BASELINE else 0)
                samples.append(_sample(START + timedelta(minutes=moment) + apart, cohort, arm, kept, BOUNDS))
    return samples


def _sample(at: datetime, cohort: str, arm: Arm, kept: Sequence[int], bounds: Sequence[float]) -> Sample:
    latency = tuple(zip(bounds, kept[2:7], strict=True))
    return Sample(
        at=at,
        cohort=cohort,
        arm=arm,
        total=kept[0],
        failed=kept[1],
        labelled=kept[7],
        incorrect=kept[8],
        latency=latency if cohort != "7-3" else latency[:-1],
    )
