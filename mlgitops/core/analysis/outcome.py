"""The three outcomes of a verdict, and the reasons for them."""

import enum
from collections.abc import Iterable
from typing import Final


class Outcome(enum.StrEnum):
    """What a verdict comes to."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Reason(enum.StrEnum):
    """Why a verdict came out as it did; published, so a name never changes its meaning."""

    WORSE = "worse"
    """Failed: the evidence against "no worse" reached its threshold."""
    EFFECT_RULED_OUT = "effect-ruled-out"
    """Passed: a canary worse by the named effect was rejected."""
    PLANNED_SAMPLES_SEEN = "planned-samples-seen"
    """Passed: the named effect would have shown by now with about 90 % chance."""
    INSUFFICIENT_DATA = "insufficient-data"
    """Inconclusive: too few requests with a known outcome."""
    METRIC_UNAVAILABLE = "metric-unavailable"
    """Inconclusive: the metric cannot be read for one of the arms."""
    STEP_TIME_NOT_OVER = "step-time-not-over"
    """Inconclusive: nothing speaks against the canary, and the step's time is not over."""
    BEYOND_LIMITS = "beyond-limits"
    """Failed: replayed requests showed the candidate beyond a limit of the plan."""
    WITHIN_LIMITS = "within-limits"
    """Passed: replayed requests showed it within every limit."""


WORST_FIRST: Final = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.PASSED)
GRAVEST_FIRST: Final = (
    Reason.WORSE,
    Reason.METRIC_UNAVAILABLE,
    Reason.INSUFFICIENT_DATA,
    Reason.STEP_TIME_NOT_OVER,
    Reason.PLANNED_SAMPLES_SEEN,
    Reason.EFFECT_RULED_OUT,
)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome of an explicit list; Inconclusive of an empty one, for silence is never a pass."""
    return min(outcomes, key=WORST_FIRST.index, default=Outcome.INCONCLUSIVE)
