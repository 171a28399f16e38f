"""Absolute limits: what a first release must keep, without a baseline to compare it with."""

import math
import random
from datetime import UTC, datetime

import pytest

from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.limits import beyond_limits, log_evidence_above
from mlgitops.core.configuration import Limits


def sample(total: int, failed: int = 0, labelled: int = 0, incorrect: int = 0) -> list[Sample]:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    counts = {"total": total, "failed": failed, "labelled": labelled, "incorrect": incorrect}
    return [Sample(at=at, cohort="1-0", arm=Arm.BASELINE, **counts)]  # type: ignore[arg-type]


def told(samples: list[Sample], limits: Limits) -> str:
    return beyond_limits(samples, limits, alpha=0.01, dispersion=1.0)


def test_nothing_seen_is_no_evidence() -> None:
    """Without data there is nothing to hold against a release."""
    assert log_evidence_above(0, 0, 0.05) == pytest.approx(0)
    assert told([], Limits(failed=0.05, wrong=0.1)) == ""


def test_a_release_beyond_a_limit_is_told_with_counts_and_limit() -> None:
    """The words name what was counted, its share, and the limit."""
    words = told(sample(400, failed=80), Limits(failed=0.05))
    assert "80 of 400 requests failed (20.0 %)" in words
    assert "5.0 %" in words
    assert "wrong" in told(sample(400, labelled=200, incorrect=120), Limits(failed=0.05, wrong=0.2))


def test_a_limit_that_is_not_set_limits_nothing() -> None:
    """Failures and wrong answers are limited only where a plan says so."""
    assert told(sample(400, 390, labelled=400, incorrect=390), Limits()) == ""
    assert told(sample(400, failed=200), Limits(failed=0.05)) != ""


def test_a_rate_at_the_limit_is_seldom_taken_for_more_however_often_one_looks() -> None:
    """Ville's bound: at the limit itself, at most a share α of watches ever reaches 1/α."""
    chance, alpha, watches = random.Random(5), 0.05, 400
    reached = 0
    for _ in range(watches):
        bad = total = 0
        for _ in range(60):
            total += 20
            bad += sum(chance.random() < 0.1 for _ in range(20))
            if log_evidence_above(bad, total, 0.1) >= math.log(1 / alpha):
                reached += 1
                break
    assert reached <= watches * alpha


def test_more_bad_outcomes_are_more_evidence() -> None:
    """Of two releases with as many requests, the worse one has more against it."""
    logs = [log_evidence_above(bad, 200, 0.1) for bad in range(20, 200, 20)]
    assert logs == sorted(logs)
