"""A decision in plain words: numbers of requests, how often chance does that, and no term of statistics."""

import math
import re
from typing import Any

import pytest

from mlgitops.core.analysis import plain

TERMS = re.compile(
    r"\b(odds|evidence|ln E|e-value|p-value|significan\w*|confidence|interval|null|hypothesis|alpha|α|binomial|"
    r"dispersion|estimate|mixture|martingale)\b",
    re.IGNORECASE,
)


def metric(kind: str, reason: str, new: tuple[int, int], old: tuple[int, int], **more: Any) -> dict[str, Any]:
    """Return one metric of a record: (bad, total) on both sides."""
    return {
        "kind": kind,
        "outcome": {"worse": "failed", "effect-ruled-out": "passed", "planned-samples-seen": "passed"}.get(
            reason, "inconclusive"
        ),
        "reason": reason,
        "canary": {"bad": new[0], "total": new[1]},
        "baseline": {"bad": old[0], "total": old[1]},
        "highestLogEvidence": math.log(23_456),
        "threshold": math.log(200),
        "logEvidenceWithin": math.log(860),
        "plannedSamples": 5_651,
        "stepSamples": 120,
        "bounds": [0.1, 0.25, 0.5],
    } | more


TYPICAL = {
    "worse": (
        metric("labels", "worse", (61, 412), (115, 3_720)),
        (
            "Right and wrong answers: of every 100 requests whose right answer is known, 15 were answered wrongly on "
            "the new release and 3.1 on the old one, which answered at the same time (counted: 61 of 412, and 115 of "
            "3,720). If the new release were no worse, a difference like this would ever show in at most 1 of "
            "23,000 rollouts. The plan returns to the old release at 1 of 200, so it did."
        ),
    ),
    "rare errors": (
        metric("errors", "worse", (50, 10_000), (90, 90_000)),
        "Failures: of every 1,000 requests, 5 failed on the new release and 1 on the old one",
    ),
    "never failed": (
        metric("errors", "planned-samples-seen", (0, 4_000), (0, 36_000)),
        "of every 100 requests, none failed on the new release and none on the old one",
    ),
    "slow": (
        metric("latency", "worse", (300, 1_000), (100, 9_000)),
        "Speed: of every 100 requests, 30 took longer than 250 ms on the new release and 1.1 on the old one",
    ),
    "enough seen": (
        metric("errors", "planned-samples-seen", (4, 4_000), (36, 36_000)),
        "had the release been as bad as the plan watches for, the 4,000 requests would have shown it 9 times in 10",
    ),
    "ruled out": (
        metric("labels", "effect-ruled-out", (200, 4_000), (1_800, 36_000)),
        "that it is one is ruled out, 860 to 1",
    ),
    "too little": (
        metric("errors", "insufficient-data", (0, 120), (2, 1_080)),
        "about 5,651 are needed in this step, and 120 came. Nothing was decided: silence is no pass",
    ),
    "silent": (
        metric("labels", "insufficient-data", (0, 0), (2, 1_080)),
        "nothing is known yet of the new release, so nothing follows",
    ),
    "unmeasured": (metric("latency", "metric-unavailable", (1, 10), (1, 10)), "could not be measured, so nothing"),
}


@pytest.mark.parametrize("case", TYPICAL)
def test_typical_decisions_in_plain_words(case: str) -> None:
    """What was counted on both sides, and why it was enough, can be read without any statistics."""
    found, words = TYPICAL[case]
    told = plain.metric(found)
    assert words in told
    assert not TERMS.search(told)


def test_no_more_is_claimed_than_was_found() -> None:
    """A number of rollouts is rounded down, and never beyond a thousand million."""
    assert "at most 1 of 99 " in plain.metric(
        metric("errors", "worse", (9, 10), (1, 10), highestLogEvidence=math.log(99.9))
    )
    assert "1 of 990 " in plain.metric(metric("errors", "worse", (9, 10), (1, 10), highestLogEvidence=math.log(999.9)))
    huge = plain.metric(metric("errors", "worse", (9, 10), (1, 10), highestLogEvidence=5_000.0))
    assert "1 of 1,000,000,000 and more" in huge


def test_a_whole_decision_leads_with_what_decided() -> None:
    """What failed is told, not what did not; then how often a good release is returned, and how noisy counts are."""
    verdict = {
        "metrics": [TYPICAL["enough seen"][0], TYPICAL["worse"][0]],
        "alpha": 0.01,
        "dispersion": 2.0,
        "dispersionAssumed": True,
    }
    told = plain.decision({"verdict": verdict})
    assert told[0].startswith("Right and wrong answers: ")
    assert not any(one.startswith("Failures") for one in told)
    assert "at most 1.0 % of cases, however often one looks" in told[-1]
    assert "nobody has measured yet; they were taken to be 2 times as noisy as chance alone" in told[-1]
    assert not any(TERMS.search(one) for one in told)
