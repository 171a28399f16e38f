"""What a decision rests on, for a reader who knows no statistics: numbers of requests, and how often chance does that.

It reads decision records, so that an old decision is told as well as a new one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mlgitops.core.analysis.words import odds, percent, seconds

_BAD: Final = {
    "errors": "failed",
    "latency": "took longer than {bound}",
    "labels": "were answered wrongly",
}
_WHAT: Final = {
    "errors": "requests",
    "latency": "requests",
    "labels": "requests whose right answer is known",
}
_NAMES: Final = {"errors": "Failures", "latency": "Speed", "labels": "Right and wrong answers"}
_OF: Final = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_MOST: Final = 1e9


def metric(found: Mapping[str, Any]) -> str:
    """Tell one metric of a decision record: what was counted on both sides, and why that was enough, or was not.

    Args:
        found: One of `verdict.metrics` of a record, as `MetricVerdict.to_mapping` writes it.
    """
    kind = str(found["kind"])
    name = _NAMES.get(kind, kind) + (f" in slice {found['slice']}" if found.get("slice") else "")
    canary, baseline = found["canary"], found["baseline"]
    if not canary["total"] or not baseline["total"]:
        silent = "new" if not canary["total"] else "old"
        return f"{name}: nothing is known yet of the {silent} release, so nothing follows."
    bounds: Sequence[float] = found.get("bounds") or ()
    bound = seconds(bounds[len(bounds) // 2]) if bounds else "allowed"
    went = _BAD.get(kind, "went badly").format(bound=bound)
    new, old = canary["bad"] / canary["total"], baseline["bad"] / baseline["total"]
    of = _common(new, old)
    return (
        f"{name}: of every {of:,} {_WHAT.get(kind, 'requests')}, {_frequency(new, of)} {went} on the "
        f"new release and {_frequency(old, of)} on the old one, which answered at the same time "
        f"(counted: {canary['bad']:,} of {canary['total']:,}, and {baseline['bad']:,} of {baseline['total']:,}). "
        f"{_why(found)}"
    )


def _why(found: Mapping[str, Any]) -> str:
    match found["reason"]:
        case "worse":
            return (
                "If the new release were no worse, a difference like this would ever show in at most 1 of "
                f"{_times(found['highestLogEvidence'])} rollouts. The plan returns to the old release at 1 of "
                f"{_times(found['threshold'])}, so it did."
            )
        case "effect-ruled-out":
            return (
                "A release as bad as the plan watches for would look worse than this nearly always: that it is one is "
                f"ruled out, {odds(found['logEvidenceWithin'])}."
            )
        case "planned-samples-seen":
            return (
                f"That is enough to look at: had the release been as bad as the plan watches for, {_counted(found)} "
                "requests would have shown it 9 times in 10, and they did not."
            )
        case "step-time-not-over":
            return "Nothing speaks against the new release so far; the time of this step was not over."
        case "metric-unavailable":
            return "One side could not be measured, so nothing was decided by it."
        case _:
            needed = found.get("plannedSamples")
            much = f"; about {needed:,} are needed in this step, and {found['stepSamples']:,} came" if needed else ""
            return f"That is too little to tell either way{much}. Nothing was decided: silence is no pass."


def _counted(found: Mapping[str, Any]) -> str:
    return f"the {found['canary']['total']:,}"


def _common(*rates: float) -> int:
    """Return the round number of requests in which the rarest of some rates is at least once, if it ever was."""
    seen = [rate for rate in rates if rate > 0]
    return next((of for of in _OF if all(rate * of >= 1 for rate in seen)), _OF[-1]) if seen else 100


def _frequency(rate: float, of: int) -> str:
    times = rate * of
    if times == 0:
        return "none"
    return f"{times:,.0f}" if times >= 10 else f"{times:.1f}".removesuffix(".0")


def _times(log: float) -> str:
    """Return e^log as a round number, rounded down so that no more is claimed than was found."""
    value = math.exp(min(log, math.log(_MOST)))
    digits = max(0, math.floor(math.log10(max(1.0, value))) - 1)
    return f"{math.floor(value / 10**digits + 1e-9) * 10**digits:,}" + (" and more" if log > math.log(_MOST) else "")


def decision(record: Mapping[str, Any]) -> list[str]:
    """Tell a whole decision record, a paragraph for each metric, those that decided first.

    Args:
        record: A decision record (schema `decision-record`).
    """
    verdict = record["verdict"]
    if "shadow" in record:  # counts of a replay, in words that need no others
        return [str(verdict["words"]), "Each request was tried on the old release first; users met neither answer."]
    failed = [one for one in verdict["metrics"] if one["outcome"] == "failed"]
    told = [metric(one) for one in (failed or verdict["metrics"])]
    if failed and len(failed) < len(verdict["metrics"]):
        told.append("What else was measured speaks less against it, and could not outweigh this.")
    chance = percent(verdict["alpha"])
    told.append(
        f"Over the whole rollout, a release that is no worse is returned in at most {chance} of cases, however often "
        f"one looks. {_noise(verdict)}"
    )
    return told


def _noise(verdict: Mapping[str, Any]) -> str:
    times = verdict["dispersion"]
    noise = (
        "as noisy as chance alone makes them" if times == 1 else f"{times:g} times as noisy as chance alone makes them"
    )
    if verdict.get("dispersionAssumed"):
        return f"How bursty these counts are, nobody has measured yet; they were taken to be {noise}."
    return f"These counts are taken to be {noise}, as the plan or history says."
