"""A shadow: requests replayed to the candidate before any user meets it, and what follows from its answers.

Every request is tried on the champion first, and only those that it answers properly say something about the candidate.
The candidate answers the same requests, so its share of bad answers is a count over those, with Wilson's interval; its
speed is the ratio of the two times of each request, and of these the median, with the interval that order statistics
give it whatever its distribution is.

| what the requests say | verdict |
|---|---|
| the whole interval lies above the limit | failed |
| fewer requests could be compared than the plan asks for | inconclusive |
| the estimate is at or below the limit | passed |
| in between: above the limit, and it may be chance | inconclusive |

With the limit 0, one bad answer is enough to fail, and none is needed to be sure. Nothing here is a pass without data.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Any, Final

from mlgitops.core.analysis.evidence import wilson
from mlgitops.core.analysis.outcome import Outcome, Reason, worst
from mlgitops.core.analysis.words import percent
from mlgitops.core.configuration import Shadow

CONFIDENCE: Final = 0.95
"""Of the two-sided intervals: a limit that is kept is taken for missed in at most 2.5 % of cases."""
FAULTS: Final[Mapping[str, str]] = {
    "refused": "refused",
    "failed": "failed",
    "silent": "without an answer in time",
    "malformed": "with an answer that is not of the protocol",
    "not-finite": "with NaN or infinity",
    "shape": "in another shape than the champion's",
}
"""What can be wrong with an answer, and how it is told."""
_REASONS: Final = {
    Outcome.PASSED: Reason.WITHIN_LIMITS,
    Outcome.FAILED: Reason.BEYOND_LIMITS,
    Outcome.INCONCLUSIVE: Reason.INSUFFICIENT_DATA,
}


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """How a replay went, as counts."""

    tried: int = 0
    """Requests that were sent to the champion."""
    unusable: Mapping[str, int] = field(default_factory=dict)
    """Of these, by fault (see `FAULTS`), those that the champion did not answer properly: they prove nothing."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Of the others, by fault, those that the candidate did not answer as the champion does."""
    comparable: int = 0
    """Requests to which both said something that can be called the same, or not."""
    disagreed: int = 0
    """Of these, those to which they said something else."""
    seconds: Sequence[tuple[float, float]] = ()
    """Times of champion and candidate, for each request that both answered properly."""
    digest: str = ""
    """Digest of the requests, in their order."""
    error: str = ""
    """Why there is no answer, or only part of one; empty with one."""

    @property
    def compared(self) -> int:
        """Requests that say something about the candidate."""
        return self.tried - sum(self.unusable.values())

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record; of the times, medians in milliseconds."""
        times = list(zip(*self.seconds, strict=True)) or [(), ()]
        champion, candidate = (round(1000 * median(one), 3) if one else None for one in times)
        return {
            "tried": self.tried,
            "unusable": dict(self.unusable),
            "compared": self.compared,
            "faults": dict(self.faults),
            "comparable": self.comparable,
            "disagreed": self.disagreed,
            "championMilliseconds": champion,
            "candidateMilliseconds": candidate,
            "requestsDigest": self.digest,
        }


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the replay says of one limit."""

    kind: str
    """`failed`, `disagreement` or `latency`."""
    outcome: Outcome
    words: str
    total: int
    """Requests it rests on."""
    estimate: float | None = None
    """A share, or for latency a ratio (candidate over champion); None without data."""
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end."""
    limit: float | None
    """Highest value that the plan allows; None where it says none, and the value is only told."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a decision record."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"outcome": str(self.outcome)}


@dataclass(frozen=True, kw_only=True)
class ShadowVerdict:
    """What all limits of a shadow come to."""

    outcome: Outcome
    reason: Reason
    words: str
    findings: tuple[Finding, ...]


def judge_shadow(found: Replayed, shadow: Shadow) -> ShadowVerdict:
    """Judge a replay by a plan's limits.

    Args:
        found: How it went.
        shadow: The plan's section.
    """
    findings = tuple(_findings(found, shadow))
    outcomes = [one.outcome for one in findings]
    enough = not found.error and found.compared >= shadow.minimum
    outcome = worst(outcomes if enough else [*outcomes, Outcome.INCONCLUSIVE])
    unread = found.error and outcome is Outcome.INCONCLUSIVE
    told = [one.words for one in findings if one.outcome is outcome or outcome is not Outcome.FAILED]
    return ShadowVerdict(
        outcome=outcome,
        reason=Reason.METRIC_UNAVAILABLE if unread else _REASONS[outcome],
        words=" ".join([*_headline(found, shadow, outcome), *told]),
        findings=findings,
    )


def _headline(found: Replayed, shadow: Shadow, outcome: Outcome) -> Iterator[str]:
    source = {"recorded": "recorded requests", "evaluation": "requests of the evaluation set"}[shadow.requests]
    match outcome:
        case Outcome.PASSED:
            yield f"Passed: {found.compared:,} {source} were replayed to the release before any user met it."
        case Outcome.FAILED:
            yield f"Failed: the release was tried on {source}, and no user met it."
        case Outcome.INCONCLUSIVE:
            yield f"Undecided: of {source}, {found.compared:,} could be compared, and {shadow.minimum:,} are needed."
    if found.error:
        yield f"{found.error[:1].upper()}{found.error[1:]}."
    if unusable := sum(found.unusable.values()):
        yield f"{unusable:,} more prove nothing, as the champion itself did not answer them ({_kinds(found.unusable)})."


def _findings(found: Replayed, shadow: Shadow) -> Iterator[Finding]:
    if not found.compared:
        return
    bad = sum(found.faults.values())
    kinds = f": {_kinds(found.faults)}" if bad else ""
    went = "were not answered as the champion answers"
    yield _share("failed", went + kinds, (bad, found.compared), shadow.failed, shadow.minimum)
    limit = shadow.disagreement
    if found.comparable:
        went, counts = "got another answer than from the champion", (found.disagreed, found.comparable)
        yield _share("disagreement", went, counts, limit, shadow.minimum)
    elif limit is not None and bad < found.compared:
        words = "No two answers could be compared; of a regression, evaluation.labelTolerance says how far is the same."
        yield Finding(kind="disagreement", outcome=Outcome.INCONCLUSIVE, words=words, total=0, limit=limit)
    if found.seconds:
        yield _latency(found.seconds, shadow.latency_ratio, shadow.minimum)


def _share(kind: str, went: str, counts: tuple[int, int], limit: float | None, minimum: int) -> Finding:
    bad, total = counts
    low, high = wilson(bad, total, z=_quantile())
    outcome = _outcome(bad / total, low, limit, enough=total >= minimum)
    words = (
        f"Of {total:,} requests, {bad:,} {went} ({percent(bad / total)}, {_level()} interval {percent(low)} to "
        f"{percent(high)}){_allowed(outcome, limit, percent)}."
    )
    values = {"estimate": _plain(bad / total), "low": _plain(low), "high": _plain(high)}
    return Finding(kind=kind, outcome=outcome, words=words, total=total, limit=limit, **values)


def _latency(seconds: Sequence[tuple[float, float]], limit: float | None, minimum: int) -> Finding:
    ratios = sorted(candidate / max(champion, 1e-6) for champion, candidate in seconds)
    low, high = median_interval(ratios)
    middle = median(ratios)
    outcome = _outcome(middle, low, limit, enough=len(ratios) >= minimum)
    words = (
        f"It took {_times(middle)} times as long as the champion for the same request (median of {len(ratios):,}, "
        f"{_level()} interval {_times(low)} to {_times(high)}){_allowed(outcome, limit, _times)}."
    )
    values = {"estimate": _plain(middle), "low": _plain(low), "high": _plain(high)}
    return Finding(kind="latency", outcome=outcome, words=words, total=len(ratios), limit=limit, **values)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a median from sorted values; 0 to infinity where there are too few for its confidence.

    Source:
        The sign test turned round (Conover, Practical Nonparametric Statistics, 3.2): the k-th smallest and the k-th
        largest of n, with the largest k at which fewer than k of n fair coins come up heads in at most 2.5 % of cases.
    """
    total, below, rank = len(values), 0.0, 0
    while rank < total:
        below += math.exp(math.lgamma(total + 1) - math.lgamma(rank + 1) - math.lgamma(total - rank + 1) - total * _LN2)
        if below > (1 - CONFIDENCE) / 2:
            break
        rank += 1
    return (values[rank - 1], values[total - rank]) if rank else (0.0, math.inf)


_LN2: Final = math.log(2)


def _plain(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _outcome(estimate: float, low: float, limit: float | None, *, enough: bool) -> Outcome:
    if limit is None or (enough and estimate <= limit):
        return Outcome.PASSED
    return Outcome.FAILED if low > limit else Outcome.INCONCLUSIVE


def _allowed(outcome: Outcome, limit: float | None, told: Any) -> str:
    if limit is None:
        return "; the plan sets no limit"
    chance = ", and so few requests do not settle it" if outcome is Outcome.INCONCLUSIVE else ""
    return f"; at most {told(limit)} is allowed{chance}"


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {FAULTS.get(kind, kind)}" for kind, count in sorted(counts.items()) if count)


def _quantile() -> float:
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def _level() -> str:
    return f"{100 * CONFIDENCE:g} %"


def _times(value: float) -> str:
    return f"{value:.3g}"
