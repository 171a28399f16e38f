"""What two services of one release that share the traffic say about noise."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from mlgitops.core.analysis.counts import Arm, Sample, errors_of
from mlgitops.core.analysis.noise import LEAST_BLOCKS, Noise, NoiseSource, dispersion_from_history
from mlgitops.core.analysis.twins import minutes, noises
from mlgitops.core.configuration import MetricRule

START = datetime(2026, 3, 1, tzinfo=UTC)
RULES = tuple(MetricRule(kind=kind, effect=2) for kind in ("errors", "latency", "labels"))


def shared(lasts: int, at_once: int = 1, *, every: float = 30.0, seed: int = 1) -> list[Sample]:
    """Return what twins met for `lasts` minutes, where bad outcomes of one of them come `at_once` together."""
    dice, samples = np.random.default_rng(seed), list[Sample]()
    counts = {arm: Sample(at=START, cohort="2-5", arm=arm, total=0, failed=0, latency=()) for arm in Arm}
    for reading in range(int(lasts * 60 / every) + 1):
        at = START + timedelta(seconds=reading * every)
        for arm, one in counts.items():
            new = 300
            failed, slow, wrong = (at_once * int(dice.binomial(new // at_once, rate)) for rate in (0.03, 0.05, 0.05))
            slower = at_once * int(dice.binomial(slow // at_once, 0.3))
            within = dict(one.latency or ((0.1, 0), (0.5, 0)))
            fast = {0.1: new - slow, 0.5: new - slower}
            counts[arm] = replace(
                one,
                at=at,
                total=one.total + new,
                failed=one.failed + failed,
                latency=tuple((bound, count + fast[bound]) for bound, count in within.items()),
                labelled=one.labelled + new,
                incorrect=one.incorrect + wrong,
            )
        samples += counts.values()
    return samples


def test_minutes_add_up_to_the_counts() -> None:
    """Whatever the readings' distance, minutes hold every request once, and there is one for each minute."""
    for every in (7.0, 30.0, 60.0, 200.0):
        samples = shared(41, every=every)
        found = minutes(samples, errors_of)
        last = {one.arm: one for one in samples}
        assert len(found) == int((samples[-1].at - START).total_seconds() // 60) + 1
        assert sum(one.canary.total for one in found) == last[Arm.CANARY].total
        assert sum(one.baseline.bad for one in found) == last[Arm.BASELINE].failed


def test_the_order_of_samples_says_nothing() -> None:
    """Samples may come in any order."""
    samples = shared(20)
    assert minutes(samples[::-1], errors_of) == minutes(samples, errors_of)


@pytest.mark.parametrize(("at_once", "least", "most"), [(1, 1.0, 1.6), (5, 4.0, 9.0)])
def test_twins_show_how_bursty_a_service_is(at_once: int, least: float, most: float) -> None:
    """Independent outcomes give a dispersion near 1; ones that come five at a time one near 5, of every kind."""
    found = noises(shared(600, at_once), RULES)
    assert {*found} == {"errors", "latency", "labels"}
    for noise in found.values():
        assert least <= noise.dispersion < most
        assert noise.source is NoiseSource.HISTORY
        assert noise.blocks == 60
    assert found["errors"].dispersion == dispersion_from_history(minutes(shared(600, at_once), errors_of))


@pytest.mark.parametrize("spoil", [
    lambda samples: [],
    lambda samples: [one for one in samples if one.at < START + timedelta(minutes=10 * LEAST_BLOCKS - 1)],
    lambda samples: [replace(one, failed=0, incorrect=0, latency=()) for one in samples],
    lambda samples: [replace(one, failed=one.total + 1) for one in samples],
], ids=["nothing", "too short", "nothing bad", "contradiction"])  # fmt: skip
def test_too_little_measures_nothing(spoil: Callable[[list[Sample]], list[Sample]]) -> None:
    """No counts, less than two hours, no bad outcome or counts that cannot be give no noise, and no error."""
    assert noises(spoil(shared(150)), RULES) == {}


def test_noise_survives_its_record() -> None:
    """A noise comes back from its plain values as it was."""
    for noise in (
        Noise(dispersion=1.5, source=NoiseSource.PLAN),
        Noise(dispersion=2.5, source=NoiseSource.HISTORY, blocks=14, rollout=3),
    ):
        assert Noise.from_mapping(noise.to_mapping()) == noise
