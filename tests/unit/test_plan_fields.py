"""What a plan says of alpha's shares and of time, and what older plans keep."""

from dataclasses import replace

import pytest

from mlgitops.core.configuration import HoldBack, MetricRule, Plan, Step, judged_steps
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


WITH = (
    "apiVersion: mlgitops.dev/v1\nkind: Environments\nenvironments: [{name: production, plan: p}]\n"
    "plans:\n  - name: p\n    steps: [{weight: 50, seconds: 60}, {weight: %d, seconds: 60}]\n"
    "    metrics: [{kind: labels, effect: 2}]\n    maximumAgeSeconds: %d\n    holdBack: {percent: %d, seconds: 3600}\n"
)


def test_a_hold_back_is_the_last_judged_step() -> None:
    """A probation with a hold-back is judged like a step, is part of a plan's identity, and written as it is read."""
    plan = load_environments((WITH % (95, 3_721, 5)).encode(), "e").environments[0].plan
    assert plan.hold_back == HoldBack(percent=5, seconds=3_600)
    assert [(one.weight_percent, one.seconds) for one in plan.judged_steps] == [(50, 60), (95, 60), (95, 3_600)]
    assert judged_steps(plan.to_mapping())[-1] == {"weight": 95, "seconds": 3_600}
    assert plan.digest != replace(plan, hold_back=None).digest
    assert len(replace(plan, hold_back=None).judged_steps) == 2


@pytest.mark.parametrize(("weight", "age", "percent", "told"), [
    (96, 9_999, 5, "weight 96 leaves less than the 5 % that holdBack holds back"),
    (95, 3_720, 5, "3720 seconds, and a rollout older than maximumAgeSeconds"),
    (95, 9_999, 6, "6"),
    (95, 9_999, 0, "0"),
])  # fmt: skip
def test_a_hold_back_that_cannot_be_is_refused(weight: int, age: int, percent: int, told: str) -> None:
    """A hold-back is 1 to 5 %, no step takes of it, and a rollout may be as old as all of it takes."""
    with pytest.raises(InvalidInput, match=told):
        load_environments((WITH % (weight, age, percent)).encode(), "e")
