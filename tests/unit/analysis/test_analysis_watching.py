"""Watching what serves: few false alarms for ever, late trouble seen soon, and nothing made of what is not known."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.core.analysis.counts import Arm, ArmCounts, Sample
from mlgitops.core.analysis.limits import ODDS_RATIOS, gains_above, log_evidence_above
from mlgitops.core.analysis.watching import BLOCK, Watch, watch
from mlgitops.core.configuration import ServiceLimit

BEGIN = datetime(2026, 11, 30, 12, tzinfo=UTC)
LIMIT = ServiceLimit(kind="errors", share=0.02, action="alert")
Came = tuple[float, int, int]
"""Minutes since the beginning, and what came since the reading before: requests, and bad ones."""


def samples(came: list[Came], cohort: str = "2-1000", before: tuple[int, int] = (0, 0)) -> list[Sample]:
    total, failed = before
    found = []
    for minute, requests, bad in came:
        total, failed = total + requests, failed + bad
        at = BEGIN + timedelta(minutes=minute)
        found.append(Sample(at=at, cohort=cohort, arm=Arm.BASELINE, total=total, failed=failed))
    return found


def watched(came: list[Came], limit: ServiceLimit = LIMIT, *, alpha: float = 0.01, dispersion: float = 1.0) -> Watch:
    found = watch(samples(came), limit, alpha=alpha, dispersion=dispersion, begin=BEGIN)
    assert found is not None
    return found


def test_a_release_at_its_limit_seldom_raises_an_alarm() -> None:
    """Ville's bound holds for the whole watch: of 500 releases exactly at the limit, at most α ever raise an alarm."""
    chance = random.Random(20261201)
    alpha, alarms = 0.1, 0
    for _ in range(500):
        # Two days and a reading each quarter of an hour; traffic that comes and goes.
        came = []
        for number in range(1, 193):
            requests = chance.choice([0, 5, 40, 200])
            bad = sum(chance.random() < LIMIT.share for _ in range(requests))
            came.append((number * 15.0, requests, bad))
        alarms += watched(came, alpha=alpha).is_alarm
    assert alarms / 500 <= alpha


@pytest.mark.parametrize("share", [0.001, 0.3, 0.99])
@pytest.mark.parametrize("below", [0.0, 0.5, 1.0])
def test_each_bet_is_fair(share: float, below: float) -> None:
    """What a bet makes of one request has at most mean 1 for every rate up to the limit."""
    rate = share * below
    for ratio in range(len(ODDS_RATIOS)):
        mean = rate * math.exp(gains_above(1, 1, share)[ratio]) + (1 - rate) * math.exp(gains_above(0, 1, share)[ratio])
        assert mean <= 1 + 1e-12


def test_trouble_after_a_healthy_week_is_seen_as_soon() -> None:
    """A week far below the limit does not have to be paid back: five times the limit shows within minutes."""
    week = [(float(minute), 60, minute % 3 == 0) for minute in range(1, 7 * 24 * 60 + 1, 1)]
    healthy = [(minute, requests, int(bad)) for minute, requests, bad in week]
    assert not watched(healthy).is_alarm
    trouble = [(healthy[-1][0] + minute, 60, 6) for minute in range(1, 31)]
    found = watched([*healthy, *trouble])
    assert found.is_alarm
    first = next(at for at, log in found.course if log >= found.threshold)
    assert first - (BEGIN + timedelta(days=7)) <= timedelta(minutes=15)
    assert found.since >= BEGIN + timedelta(days=7) - BLOCK
    assert found.counts.rate == pytest.approx(0.1, abs=0.02)
    # One bet from the beginning alone would not see it in that time.
    total, bad = sum(one[1] for one in [*healthy, *trouble]), sum(one[2] for one in [*healthy, *trouble])
    assert log_evidence_above(bad, total, LIMIT.share) < 0


def test_the_evidence_is_that_of_its_definition() -> None:
    """The running sum is the stake-weighted sum over beginnings of the mean over odds ratios of likelihood ratios."""
    came = [(3.0, 100, 1), (9.0, 50, 3), (12.0, 80, 6), (35.0, 200, 9), (41.0, 10, 0)]
    begun = {0: 0, 1: 3, 3: 4}  # block of each bet, and how many readings came before it counts
    expected = 0.0
    for block, first in begun.items():
        total, bad = sum(one[1] for one in came[first:]), sum(one[2] for one in came[first:])
        mean = sum(
            math.prod([(p / 0.02) ** bad * ((1 - p) / 0.98) ** (total - bad)])
            for p in (r * 0.02 / (0.98 + r * 0.02) for r in ODDS_RATIOS)
        ) / len(ODDS_RATIOS)
        expected += mean / ((block + 1) * (block + 2))
    # The bet of the last block began at the last reading, and has won or lost nothing yet.
    expected += 1 / ((4 + 1) * (4 + 2))
    early = watched(came)
    later = watched([*came, (41.5, 0, 0)])
    assert math.exp(later.log_evidence) == pytest.approx(expected)
    assert early.log_evidence < later.log_evidence


@given(
    came=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.floats(0, 0.3)), min_size=2, max_size=25),
    gone=st.integers(1, 24),
)
def test_older_readings_that_are_gone_never_add_evidence(came: list[tuple[int, int, float]], gone: int) -> None:
    """A source that forgets what is old (Prometheus) can make an alarm later, never a false one likelier."""
    minute, grown = 0, []
    for wait, requests, share in came:
        minute += wait * 10  # a reading in a block: which one a bet begins at does not depend on what is gone
        grown.append((float(minute), requests, int(requests * share)))
    every = samples(grown)
    left = every[min(gone, len(every) - 1) :]
    whole = watch(every, LIMIT, alpha=0.01, dispersion=1, begin=BEGIN)
    part = watch(left, LIMIT, alpha=0.01, dispersion=1, begin=BEGIN)
    if whole is None or part is None:
        assert part is None
        return
    assert part.log_evidence <= whole.log_evidence + 1e-9


def test_what_came_before_a_watch_does_not_count() -> None:
    """A watch that begins anew starts from the counts of then, also where those of before are no longer told."""
    bad = [(minute, 100, 50) for minute in range(-60, 1, 10)]
    good = [(float(minute), 100, 0) for minute in range(1, 31, 10)]
    every = samples([*bad, *good])
    found = watch(every, LIMIT, alpha=0.01, dispersion=1, begin=BEGIN, fresh=False)
    assert found is not None
    assert (found.counts.bad, found.is_alarm) == (0, False)
    forgotten = watch(every[len(bad) :], LIMIT, alpha=0.01, dispersion=1, begin=BEGIN, fresh=False)
    assert forgotten is not None
    assert not forgotten.is_alarm


def test_cohorts_add_up() -> None:
    """What a release answers alone and as a champion beside canaries is one count."""
    own, beside = samples([(5.0, 1000, 10), (25.0, 0, 0)]), samples([(15.0, 500, 40)], cohort="3-1")
    found = watch([*own, *beside], LIMIT, alpha=0.5, dispersion=1, begin=BEGIN)
    assert found is not None
    assert found.counts in (ArmCounts(total=1500, bad=50), ArmCounts(total=500, bad=40))
    canary = [replace(one, arm=Arm.CANARY) for one in samples([(15.0, 500, 500)], cohort="3-1")]
    assert watch([*own, *canary], LIMIT, alpha=0.5, dispersion=1, begin=BEGIN) == watch(
        own, LIMIT, alpha=0.5, dispersion=1, begin=BEGIN
    )


def test_silence_says_nothing() -> None:
    """Without requests, or without labels, there is neither an alarm nor a pass."""
    labels = ServiceLimit(kind="labels", share=0.1, action="hold")
    assert watch([], LIMIT, alpha=0.01, dispersion=1, begin=BEGIN) is None
    assert watch(samples([(5.0, 0, 0)]), LIMIT, alpha=0.01, dispersion=1, begin=BEGIN) is None
    assert watch(samples([(5.0, 900, 300)]), labels, alpha=0.01, dispersion=1, begin=BEGIN) is None


def test_latency_is_counted_by_the_next_bucket() -> None:
    """The lowest bound that is not below the limit's time is counted by; where there is none, nothing is."""
    limit = ServiceLimit(kind="latency", share=0.05, seconds=0.3, action="alert")
    slow = Sample(
        at=BEGIN + timedelta(minutes=1),
        cohort="2-1000",
        arm=Arm.BASELINE,
        total=1000,
        failed=0,
        latency=((0.25, 100), (0.5, 700), (1.0, 1000)),
    )
    found = watch([slow], limit, alpha=0.01, dispersion=1, begin=BEGIN)
    assert found is not None
    assert (found.bound_seconds, found.counts.bad, found.is_alarm) == (0.5, 300, True)
    assert "requests took longer than 500 ms (30.0 %" in found.words
    assert watch([slow], replace(limit, seconds=2.0), alpha=0.01, dispersion=1, begin=BEGIN) is None


def test_noise_tempers_the_evidence() -> None:
    """Counts that come in bursts are believed less, and their interval is wider."""
    came = [(float(minute), 100, 4) for minute in range(1, 9)]
    calm, noisy = watched(came), watched(came, dispersion=4.0)
    assert calm.highest_log_evidence > noisy.highest_log_evidence
    assert noisy.interval[0] < calm.interval[0] < calm.interval[1] < noisy.interval[1]
