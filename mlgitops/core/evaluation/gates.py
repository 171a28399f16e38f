"""Gates: limits on the metrics of an evaluation report.

An absolute limit looks at the value itself. A limit against the champion (`maximumLoss: d`) looks at the paired
difference on the same examples, turned so that positive is better, with its two-sided interval (95 % by default):

| what the examples say | verdict |
|---|---|
| upper end below 0 and difference below −d: it is worse, and by more than d as far as one can tell | failed |
| lower end at or above −d: it is shown not to be worse by more than d | passed |
| in between: neither is shown | passed, with a warning |

So an equally good model is refused in at most 2.5 % of cases, whatever d is (in 1 % or less with d = 0.02). With 500
examples and 95 % right, a model that is 4 points worse is refused in 95 % of cases and one that is 8 points worse
always; with 100 examples in 25 % and 70 %. The canary judges what lies in between. A stricter rule, "refuse unless
shown not to be worse", would refuse most equally good models at such sizes.

Several such limits on slices are several chances to refuse an equally good model. Their intervals therefore hold for
all of them at once: with k gates of one file against the champion on slices, each has the confidence 1 − (1 − c)/k
(Bonferroni), so that an equally good model still fails any of them in at most 2.5 % of cases. Gates on the whole set
keep theirs.

A limit on a cost (`core/evaluation/costs.py`) looks at the value, or with `maximumRatio` at the candidate's over the
champion's; costs have no interval.

What cannot be measured fails: a metric or slice the report does not have, NaN and infinity, a champion that could not
be evaluated. Only when there is no champion does a limit against it pass.

The model's author has no say in an environment's gates: what the model's own command reports does not count for them,
and an interval of more than 95 % confidence, which would call every loss uncertain, fails them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlgitops.core.configuration import Gate
from mlgitops.core.evaluation.costs import COSTS, cost

Verdict = Literal["passed", "warned", "failed"]
_WORST = ("passed", "warned", "failed")
_CONFIDENCE = 0.95
"""Highest confidence of the intervals that an environment's gates are judged by."""


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What became of one gate."""

    gate: Gate
    """The limits."""
    value: float | None
    """The candidate's value; None when it cannot be told."""
    interval: tuple[float, float] | None
    """The value's interval; None when there is none."""
    difference: float | None
    """Candidate − champion, as measured (not turned); None without a limit against a champion."""
    difference_interval: tuple[float, float] | None
    """The difference's interval."""
    verdict: Verdict
    """Whether it may go on; `warned` goes on."""
    reason: str
    """Why, in words."""
    self_reported: bool = False
    """Whether the value comes from the user's own command."""

    @property
    def passed(self) -> bool:
        """Whether the gate lets the release go on."""
        return self.verdict != "failed"

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for a record."""
        return {
            "gate": self.gate.to_mapping(),
            "value": self.value,
            "interval": list(self.interval) if self.interval else None,
            "difference": self.difference,
            "differenceInterval": list(self.difference_interval) if self.difference_interval else None,
            "verdict": self.verdict,
            "reason": self.reason,
            "selfReported": self.self_reported,
        }


def judge_gates(report: Mapping[str, Any], gates: Sequence[Gate]) -> list[GateResult]:
    """Judge an evaluation report (schema `evaluation-report`) by each gate.

    Args:
        report: From the evaluator.
        gates: In order; every one is judged.

    Returns:
        One result per gate, in the same order.
    """
    # An environment's gates and the model's are counted apart: a model with many would loosen the environment's.
    many = Counter(one.measured for one in gates if one.slice is not None and one.maximum_loss is not None)
    return [
        _judge_cost(report, one) if one.metric in COSTS else _judge(report, one, many[one.measured]) for one in gates
    ]


def _judge_cost(report: Mapping[str, Any], gate: Gate) -> GateResult:
    value, name = _finite(cost(report, "candidate", gate.metric)), gate.metric
    judged: list[tuple[Verdict, str]] = []
    if value is None:
        judged.append(("failed", f"{name} was not measured"))
    else:
        if (gate.minimum, gate.maximum) != (None, None):
            judged.append(_absolute(name, value, None, gate))
        if gate.maximum_ratio is not None:
            judged.append(_ratio(report, gate.maximum_ratio, name, value))
    return GateResult(
        gate=gate,
        value=value,
        interval=None,
        difference=None,
        difference_interval=None,
        verdict=max((verdict for verdict, _ in judged), key=_WORST.index, default="passed"),
        reason="; ".join(reason for _, reason in judged),
    )


def _ratio(report: Mapping[str, Any], allowed: float, name: str, value: float) -> tuple[Verdict, str]:
    champion = report.get("champion")
    if champion is None:
        return "passed", f"{name}: there is no champion to compare with"
    other = _finite(cost(report, "champion", name))
    if other is None:
        return "failed", f"{name} of the champion was not measured, so there is nothing to compare with"
    told = f"{name} is {value:.4g}, the champion's {other:.4g}; at most {allowed:g} times as much is allowed"
    return ("passed" if value <= allowed * other else "failed"), told


def _judge(report: Mapping[str, Any], gate: Gate, comparisons: int) -> GateResult:
    found, own, problem = _find(report, gate)
    value = _finite(found.get("value"))
    name = gate.metric + (f" on slice {gate.slice}" if gate.slice else "")
    if problem or value is None:
        return GateResult(
            gate=gate,
            value=None,
            interval=None,
            difference=None,
            difference_interval=None,
            verdict="failed",
            reason=problem or f"{name} is no finite number",
            self_reported=own,
        )
    interval = _pair(found)
    judged = [_absolute(name, value, interval, gate)] if (gate.minimum, gate.maximum) != (None, None) else []
    difference: Mapping[str, Any] = {}
    if gate.maximum_loss is not None:
        difference, outcome = _against(report, gate, gate.maximum_loss, name, comparisons if gate.slice else 1)
        judged.append(outcome)
    verdicts = [verdict for verdict, _ in judged]
    return GateResult(
        gate=gate,
        value=value,
        interval=interval,
        difference=_finite(difference.get("difference")),
        difference_interval=_pair(difference),
        verdict=max(verdicts, key=_WORST.index, default="passed"),
        reason="; ".join(reason for _, reason in judged) + (" (self-reported)" if own else ""),
        self_reported=own,
    )


def _find(report: Mapping[str, Any], gate: Gate) -> tuple[Mapping[str, Any], bool, str]:
    """Return the metric the gate is about, whether it is self-reported, and what is wrong if it is not there."""
    candidate = report["candidate"]
    if gate.slice is None:
        known: Mapping[str, Any] = candidate["metrics"]
    elif gate.slice in candidate["slices"]:
        known = candidate["slices"][gate.slice]["metrics"]
        if not known:
            return {}, False, f"slice {gate.slice} has no examples"
    else:
        slices = ", ".join(sorted(candidate["slices"])) or "none"
        return {}, False, f"the evaluation has no slice {gate.slice!r}; it has: {slices}"
    if gate.metric in known:
        return known[gate.metric], False, ""
    reported: Mapping[str, Any] = (report.get("selfReported") or {}).get("metrics", {})
    if gate.slice is None and gate.metric in reported:
        problem = (
            f"{gate.metric} is self-reported, and this environment counts what is measured" if gate.measured else ""
        )
        return {"value": reported[gate.metric]}, True, problem
    names = ", ".join(sorted({*known, *reported})) or "none"
    return {}, False, f"the evaluation has no metric {gate.metric!r}; it has: {names}"


def _absolute(name: str, value: float, interval: tuple[float, float] | None, gate: Gate) -> tuple[Verdict, str]:
    told = f"{name} is {value:.4g}" + (f" ({_span(*interval)})" if interval else "")
    if gate.minimum is not None and not value >= gate.minimum:
        return "failed", f"{told}, below the minimum {gate.minimum:g}"
    if gate.maximum is not None and not value <= gate.maximum:
        return "failed", f"{told}, above the maximum {gate.maximum:g}"
    limits = [f"at least {gate.minimum:g}"] if gate.minimum is not None else []
    limits += [f"at most {gate.maximum:g}"] if gate.maximum is not None else []
    return "passed", f"{told}, {' and '.join(limits)}"


def _against(
    report: Mapping[str, Any], gate: Gate, allowed: float, name: str, comparisons: int
) -> tuple[Mapping[str, Any], tuple[Verdict, str]]:
    comparison = report.get("comparison")
    if comparison is None or (gate.measured and not float(report["confidence"]) <= _CONFIDENCE):
        return {}, _incomparable(report, name)
    part = comparison if gate.slice is None else comparison["slices"].get(gate.slice, {})
    found: Mapping[str, Any] = _together(part.get("metrics", {}).get(gate.metric, {}), comparisons)
    difference, interval = _finite(found.get("difference")), _pair(found)
    if difference is None or interval is None:
        return found, ("failed", f"{name}: there is no paired difference from the champion to judge")
    # Turned so that positive is better.
    turn = 1 if found["better"] == "higher" else -1
    gain = turn * difference
    low, high = sorted(turn * end for end in interval)
    confidence = f"{100 * float(report['confidence']):g} % interval"
    confidence += f" over {comparisons} comparisons of slices" if comparisons > 1 else ""
    told = (
        f"{name} is {abs(gain):.4g} {'better' if gain >= 0 else 'worse'} than the champion's "
        f"(difference, positive is better: {confidence} {_span(low, high)})"
    )
    if high < 0 and gain < -allowed:
        return found, ("failed", f"{told}; at most {allowed:g} worse is allowed")
    if low >= -allowed:
        return found, ("passed", f"{told}; not worse by more than {allowed:g}")
    return found, ("warned", f"{told}; too few examples to show that it is not worse by more than {allowed:g}")


def _incomparable(report: Mapping[str, Any], name: str) -> tuple[Verdict, str]:
    """Say what a limit against the champion comes to where the two cannot be compared."""
    champion = report.get("champion")
    if champion is None:
        return "passed", f"{name}: there is no champion to compare with"
    if report.get("comparison") is None:
        return "failed", f"{name}: the champion could not be evaluated: {champion.get('error', 'no reason')}"
    told = f"evaluation.confidence is {report['confidence']:g}; this environment judges at {_CONFIDENCE:g} at most"
    return "failed", f"{name}: {told}"


def _together(found: Mapping[str, Any], comparisons: int) -> Mapping[str, Any]:
    """Return a difference with the interval that holds for so many comparisons at once, where the report has one."""
    known: Mapping[str, Any] = found.get("simultaneous") or {}
    ready = sorted(int(many) for many in known if int(many) >= comparisons)
    if comparisons <= 1 or not ready:
        return found
    low, high = known[str(ready[0])]
    return {**found, "low": low, "high": high}


def _span(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _finite(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _pair(found: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = _finite(found.get("low")), _finite(found.get("high"))
    return None if low is None or high is None else (low, high)
