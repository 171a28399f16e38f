"""What a plan says of alpha's shares and of time, and what older plans keep."""

from dataclasses import replace

from mlgitops.core.configuration import MetricRule, Plan, Step

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
