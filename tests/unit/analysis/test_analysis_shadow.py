"""What replayed requests say of a candidate."""

import math
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mlgitops.core.analysis.outcome import Outcome, Reason
from mlgitops.core.analysis.shadow import FAULTS, Replayed, judge_shadow, median_interval
from mlgitops.core.configuration import Shadow

RULE = Shadow(requests="recorded", minimum=50, disagreement=0.1, latency_ratio=1.5)
FINE = Replayed(tried=200, comparable=200, disagreed=4, seconds=[(0.010, 0.011)] * 200)
COUNTS = st.integers(min_value=0, max_value=400)


def test_a_release_within_every_limit_passes_and_says_what_was_seen() -> None:
    """Every limit is told with its number of requests, estimate and interval, in words that need no table."""
    verdict = judge_shadow(FINE, RULE)
    assert (verdict.outcome, verdict.reason) == (Outcome.PASSED, Reason.WITHIN_LIMITS)
    assert verdict.words == (
        "Passed: 200 recorded requests were replayed to the release before any user met it. Of 200 requests, 0 were "
        "not answered as the champion answers (0 %, 95 % interval 0 % to 1.9 %); at most 0 % is allowed. Of 200 "
        "requests, 4 got another answer than from the champion (2.0 %, 95 % interval 0.78 % to 5.0 %); at most 10.0 % "
        "is allowed. It took 1.1 times as long as the champion for the same request (median of 200, 95 % interval 1.1 "
        "to 1.1); at most 1.5 is allowed."
    )


@given(COUNTS, COUNTS, COUNTS, st.sampled_from(sorted(FAULTS)), st.booleans())
def test_what_is_not_enough_never_passes(tried: int, unusable: int, bad: int, kind: str, broken: bool) -> None:
    """With fewer comparable requests than the plan asks for, or an error, nothing passes; one fault always fails."""
    unusable = min(unusable, tried)
    bad = min(bad, tried - unusable)
    good = tried - unusable - bad
    found = Replayed(
        tried=tried,
        unusable={"refused": unusable},
        faults={kind: bad},
        comparable=good,
        seconds=[(0.01, 0.01)] * good,
        error="the answers took too long" if broken else "",
    )
    verdict = judge_shadow(found, RULE)
    if bad:
        assert verdict.outcome is Outcome.FAILED
    elif broken or tried - unusable < RULE.minimum:
        assert verdict.outcome is Outcome.INCONCLUSIVE
    else:
        assert verdict.outcome is Outcome.PASSED


@given(COUNTS, st.integers(min_value=0, max_value=50))
def test_more_disagreement_is_never_better(disagreed: int, more: int) -> None:
    """One more request with another answer never turns a failure into doubt, nor doubt into a pass."""
    order = [Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.FAILED]
    one, other = (
        judge_shadow(replace(FINE, disagreed=min(200, count)), RULE).outcome for count in (disagreed, disagreed + more)
    )
    assert order.index(one) <= order.index(other)


def test_doubt_is_told_as_doubt() -> None:
    """A share above its limit that may be chance is neither a pass nor a failure."""
    verdict = judge_shadow(replace(FINE, disagreed=24), RULE)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.INSUFFICIENT_DATA)
    assert "so few requests do not settle it" in verdict.words


def test_a_limit_is_judged_on_enough_requests_of_its_own() -> None:
    """Answers that cannot be compared are no agreement, where the plan limits disagreement."""
    few = replace(FINE, comparable=10, disagreed=0)
    assert judge_shadow(few, RULE).outcome is Outcome.INCONCLUSIVE
    assert judge_shadow(few, replace(RULE, disagreement=None)).outcome is Outcome.PASSED
    none = replace(FINE, comparable=0, disagreed=0)
    assert "labelTolerance" in judge_shadow(none, RULE).words


def test_an_error_is_told_first() -> None:
    """Why there is no answer is said, with what the champion itself did not answer."""
    found = Replayed(
        tried=70, unusable={"refused": 60, "silent": 3}, comparable=7, error="the canary's server went away"
    )
    verdict = judge_shadow(found, RULE)
    assert verdict.reason is Reason.METRIC_UNAVAILABLE
    assert "The canary's server went away." in verdict.words
    assert "63 more prove nothing" in verdict.words
    assert "60 refused, 3 without an answer in time" in verdict.words
    broken = judge_shadow(replace(FINE, error="the answers took too long"), RULE)
    assert broken.outcome is Outcome.INCONCLUSIVE, "many good answers before an error are no pass"


@pytest.mark.parametrize("total", [6, 7, 20, 51, 200, 1000])
def test_the_median_s_interval_is_the_binomial_s(total: int) -> None:
    """The ranks are those of an exact sign test at 2.5 % on each side, by an independent implementation."""
    values = [float(one) for one in range(1, total + 1)]
    low, high = median_interval(values)
    rank = int(low)
    assert stats.binom.cdf(rank - 1, total, 0.5) <= 0.025 < stats.binom.cdf(rank, total, 0.5)
    assert high == total + 1 - rank
    assert low <= median(values) <= high


def test_too_few_times_have_no_interval() -> None:
    """Five requests cannot bound a median at 95 %, and say so rather than guess; nothing fails by them."""
    assert median_interval([1.0] * 5) == (0.0, math.inf)
    assert median_interval([]) == (0.0, math.inf)
    slow = Replayed(tried=5, comparable=5, seconds=[(0.01, 0.1)] * 5)
    assert judge_shadow(slow, RULE).outcome is Outcome.INCONCLUSIVE
