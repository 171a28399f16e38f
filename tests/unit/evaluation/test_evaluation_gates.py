"""Gates: what passes, what is refused, and that nothing unmeasured passes."""

import math
from typing import Any

import numpy as np
import pytest

from mlgitops.core.configuration import Gate
from mlgitops.core.evaluation import statistics
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.evaluation.measure import Settings, measure


def metric(value, low=None, high=None, better: str = "higher"):
    return {"value": value, "low": low, "high": high, "method": None, "better": better}


def report(metrics=None, comparison=None, champion=None, slices=None, reported=None):
    return {
        "confidence": 0.95,
        "candidate": {"metrics": metrics or {"accuracy": metric(0.9, 0.87, 0.93)}, "slices": slices or {}},
        "champion": champion,
        "comparison": comparison,
        "selfReported": reported,
    }


def against(difference, low, high, better: str = "higher", name: str = "accuracy"):
    found = {"difference": difference, "low": low, "high": high, "method": "newcombe-paired", "better": better}
    return report(
        {name: metric(0.9, better=better)}, {"metrics": {name: found}, "slices": {}}, {"metrics": {}, "slices": {}}
    )


def judge(given, **limits):
    (result,) = judge_gates(given, [Gate(**{"metric": "accuracy", **limits})])
    return result


def test_absolute_limits_look_at_the_value() -> None:
    """A value at its limit passes; outside it fails, and the reason says both numbers."""
    assert judge(report(), minimum=0.9).passed
    assert judge(report(), maximum=0.9).passed
    failed = judge(report(), minimum=0.95)
    assert not failed.passed
    assert failed.reason == "accuracy is 0.9 (0.87 to 0.93), below the minimum 0.95"
    assert not judge(report(), minimum=0.5, maximum=0.8).passed


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, "0.99", True])
def test_what_is_no_finite_number_fails(value) -> None:
    """NaN, infinity, null and other types never pass a limit, whichever side it is on."""
    given = report({"accuracy": metric(value)})
    assert not judge(given, minimum=-1e9).passed
    assert not judge(given, maximum=1e9).passed


def test_unknown_metric_or_slice_fails() -> None:
    """A misspelt metric or slice fails and the reason names what there is."""
    assert "it has: accuracy" in judge(report(), metric="acuracy", maximum=1).reason
    missing = judge(report(slices={"night": {"examples": 3, "metrics": {}}}), slice="day", minimum=0)
    assert not missing.passed
    assert "it has: night" in missing.reason
    assert not judge(report(slices={"night": {"examples": 0, "metrics": {}}}), slice="night", minimum=0).passed


def test_slice_limits_look_at_the_slice() -> None:
    """A gate on a slice judges the slice's value."""
    given = report(slices={"night": {"examples": 3, "metrics": {"accuracy": metric(0.2)}}})
    assert not judge(given, slice="night", minimum=0.5).passed
    assert judge(given, minimum=0.5).passed


@pytest.mark.parametrize(
    ("difference", "low", "high", "verdict"),
    [
        (-0.05, -0.07, -0.03, "failed"),  # worse, and by more than allowed
        (-0.03, -0.05, -0.005, "failed"),  # worse for sure, and as far as one can tell by too much
        (-0.03, -0.07, 0.01, "warned"),  # perhaps not worse at all
        (-0.01, -0.03, -0.001, "warned"),  # worse for sure, but by little
        (0.0, -0.01, 0.01, "passed"),
        (0.04, 0.01, 0.07, "passed"),
    ],
)
def test_maximum_loss_follows_its_table(difference: float, low: float, high: float, verdict: str) -> None:
    """Each row of the documented table gives its verdict, for both directions of a metric."""
    assert judge(against(difference, low, high), maximum_loss=0.02).verdict == verdict
    turned = against(-difference, -high, -low, better="lower", name="log_loss")
    assert judge(turned, metric="log_loss", maximum_loss=0.02).verdict == verdict


def test_warned_goes_on() -> None:
    """A warning is told and lets the release go on."""
    result = judge(against(-0.03, -0.07, 0.01), maximum_loss=0.02)
    assert result.passed
    assert "too few examples" in result.reason


def test_without_a_champion_a_limit_against_it_passes() -> None:
    """The first release has nothing to be compared with."""
    assert judge(report(), maximum_loss=0.01).passed


def test_champion_that_could_not_be_evaluated_fails_the_comparison() -> None:
    """No comparison is not a good comparison."""
    result = judge(report(champion={"uri": "file:///a", "error": "it cannot be loaded"}), maximum_loss=0.01)
    assert not result.passed
    assert "it cannot be loaded" in result.reason


def test_undefined_difference_fails() -> None:
    """A metric that has no interval against the champion fails a limit against it."""
    assert not judge(against(-0.0, None, None), maximum_loss=0.5).passed


def test_self_reported_metrics_are_marked_and_shadow_nothing() -> None:
    """A command's metric can be gated and is marked; it cannot replace one that the tool computed."""
    given = report(reported={"metrics": {"accuracy": 1.0, "profit": 7.0}})
    assert not judge(given, minimum=0.95).passed
    profit = judge(given, metric="profit", minimum=5)
    assert profit.passed
    assert profit.self_reported
    assert "(self-reported)" in profit.reason
    compared: dict[str, Any] = {"metrics": {}, "slices": {}}
    with_champion = {**given, "champion": {"metrics": {}}, "comparison": compared}
    assert not judge(with_champion, metric="profit", maximum_loss=100).passed


@pytest.mark.parametrize(("accuracy", "at_most", "at_least"), [(0.95, 0.05, 0.0), (0.87, 1.0, 0.95)])
def test_gate_with_500_examples(accuracy: float, at_most: float, at_least: float) -> None:
    """With 500 examples an equal model is hardly ever refused, one that is 8 points worse nearly always."""
    generator = np.random.default_rng(11)
    refused = 0
    for _ in range(60):
        labels = generator.integers(0, 4, 500)
        shared = generator.random(500)
        own = np.where(generator.random(500) < 0.7, shared, generator.random(500))
        champion = np.where(shared < 0.95, labels, (labels + 1) % 4)
        candidate = np.where(own < accuracy, labels, (labels + 1) % 4)
        both = [statistics.classification(labels, statistics.read_scores(one))[:1] for one in (candidate, champion)]
        measured = {"confidence": 0.95, "selfReported": None, **measure(both[0], both[1], {}, Settings())}
        refused += not judge(measured, maximum_loss=0.01).passed
    assert at_least <= refused / 60 <= at_most


def sliced(low: float, high: float, simultaneous: dict[str, list[float]]):
    """Return a report in which slice `night` lost 5 points of accuracy."""
    found = {"difference": -0.05, "low": low, "high": high, "method": "newcombe-paired", "better": "higher"}
    found["simultaneous"] = simultaneous
    whole = {"difference": -0.05, "low": low, "high": high, "method": "newcombe-paired", "better": "higher"}
    night = {"examples": 90, "metrics": {"accuracy": found}}
    given = against(-0.05, low, high)
    given["candidate"]["slices"] = {"night": {"examples": 90, "metrics": {"accuracy": metric(0.9)}}}
    given["comparison"] = {"metrics": {"accuracy": whole}, "slices": {"night": night}}
    return given


def test_gates_on_slices_are_judged_together() -> None:
    """One gate on a slice takes its own interval, several the one that holds for all; the whole set keeps its own."""
    given = sliced(-0.09, -0.01, {"2": [-0.1, 0.0], "3": [-0.11, 0.01]})
    alone = Gate(metric="accuracy", slice="night", maximum_loss=0.02)
    assert [one.verdict for one in judge_gates(given, [alone])] == ["failed"]
    several = [alone, alone, alone, Gate(metric="accuracy", maximum_loss=0.02)]
    results = judge_gates(given, several)
    assert [one.verdict for one in results] == ["warned", "warned", "warned", "failed"]
    assert "95 % interval over 3 comparisons of slices -0.11 to 0.01" in results[0].reason
    assert results[0].difference_interval == (-0.11, 0.01)


def test_a_model_cannot_loosen_its_environments_gates_with_gates_of_its_own() -> None:
    """Gates on slices in the model's configuration do not widen the intervals of the environment's."""
    given = sliced(-0.09, -0.01, {"2": [-0.1, 0.0], "100": [-0.5, 0.5]})
    own = Gate(metric="accuracy", slice="night", maximum_loss=0.02)
    theirs = Gate(metric="accuracy", slice="night", maximum_loss=0.02, measured=True)
    assert judge_gates(given, [theirs, *[own] * 90])[0].verdict == "failed"
