"""What a plan says of alpha's shares and of time, and what older plans keep."""

from dataclasses import replace

import pytest

from mlgitops.core.configuration import MetricRule, Plan, Step
from mlgitops.core.errors import InvalidInput
from mlgitops.core.loading import load_environments

PLAN = Plan(
    name="standard",
    steps=(Step(weight_percent=10, seconds=60), Step(weight_percent=99, seconds=60)),
    metrics=(MetricRule(kind="errors", effect=3.0), MetricRule(kind="labels", effect=2.0, margin=1.2)),
)


def test_a_plan_without_the_newer_fields_keeps_its_digest() -> None:
    """Plans that say nothing of weights and early passes are written, and so identified, as they always were."""
    written = PLAN.to_mapping()
    assert "early" not in written
    assert written["metrics"][1] == {"kind": "labels", "effect": 2.0, "margin": 1.2}


def test_a_plan_with_them_is_another_one() -> None:
    """A weight and an early pass are part of a plan's identity, and survive being written and read."""
    weighty = replace(PLAN.metrics[0], weight=3.0)
    assert MetricRule.from_mapping(weighty.to_mapping()) == weighty
    assert MetricRule.from_mapping({"kind": "errors", "effect": 3.0}) == PLAN.metrics[0]
    others = [replace(PLAN, early=True), replace(PLAN, metrics=(weighty, PLAN.metrics[1]))]
    assert len({PLAN.digest, *(one.digest for one in others)}) == 3
    assert others[0].to_mapping()["early"] is True


def test_a_slice_is_part_of_a_plan() -> None:
    """A slice survives being written and read, tells two metrics of one kind apart, and makes another plan."""
    mobile = replace(PLAN.metrics[1], slice="mobile")
    assert MetricRule.from_mapping(mobile.to_mapping()) == mobile
    assert (mobile.name, PLAN.metrics[1].name) == ("labels/mobile", "labels")
    assert replace(PLAN, metrics=(*PLAN.metrics, mobile)).digest != PLAN.digest


def test_a_metric_comes_once_for_each_slice() -> None:
    """A kind may stand once for all requests and once for each slice; a second time is refused with its line."""
    text = (
        "apiVersion: mlgitops.dev/v1\nkind: Environments\nenvironments: [{name: production, plan: p}]\n"
        "plans:\n  - name: p\n    steps: [{weight: 10, seconds: 1}]\n    metrics:\n"
        "      - {kind: labels, effect: 2}\n      - {kind: labels, slice: eu, effect: 2}\n"
    )
    plan = load_environments(text.encode(), "e").environments[0].plan
    assert [one.name for one in plan.metrics] == ["labels", "labels/eu"]
    with pytest.raises(InvalidInput, match="'labels/eu' is on line 9 already"):
        load_environments(f"{text}      - {{kind: labels, slice: eu, effect: 3}}\n".encode(), "e")
    with pytest.raises(InvalidInput, match="slice"):
        load_environments(f"{text}      - {{kind: labels, slice: a/b, effect: 3}}\n".encode(), "e")
