"""Simulated rollouts are those that the judge would have judged."""

import dataclasses

import pytest

from mlgitops.core.analysis.simulation import Fate, Harm, Traffic, simulate
from mlgitops.core.configuration import MetricRule, Plan, Step
from mlgitops.core.errors import InvalidInput

PLAN = Plan(
    name="standard",
    steps=(Step(weight_percent=10, seconds=600), Step(weight_percent=50, seconds=600)),
    metrics=(MetricRule(kind="errors", effect=3.0),),
    dispersion=1.0,
)
BUSY = Traffic(requests_per_second=30.0)


def fates(plan: Plan, traffic: Traffic, harm: Harm, runs: int = 20) -> list[Fate]:
    return [one.fate for one in simulate(plan, traffic, harm, runs=runs, seed=7)]


def test_one_rollout_does_not_depend_on_how_many_there_are() -> None:
    """The first rollouts of a seed are the same, however many follow."""
    few, many = (simulate(PLAN, BUSY, Harm(kind="errors", effect=3), runs=runs, seed=1) for runs in (3, 6))
    assert many[:3] == few
    assert len(set(many)) > 1


def test_the_named_effect_is_found_as_often_as_planned() -> None:
    """Nine in ten canaries that are worse by the named effect are rolled back, and hardly a good one."""
    assert fates(PLAN, BUSY, Harm(kind="errors", effect=3.0), 60).count(Fate.ROLLED_BACK) >= 48
    assert fates(PLAN, BUSY, Harm(), 60).count(Fate.ROLLED_BACK) <= 2


@pytest.mark.parametrize("kind", ["errors", "latency", "labels"])
def test_each_metric_sees_its_own_harm(kind) -> None:
    """A gross harm in one metric is found by the rule of that metric, and by no other."""
    for judged in ("errors", "latency", "labels"):
        plan = dataclasses.replace(PLAN, metrics=(MetricRule(kind=judged, effect=3.0),))
        found = fates(plan, BUSY, Harm(kind=kind, effect=10.0), 5)
        assert (found.count(Fate.ROLLED_BACK) == 5) == (judged == kind)


def test_silence_asks_a_person() -> None:
    """Hardly any traffic ends held after the extension, at once where the plan says hold, and never promoted."""
    quiet = Traffic(requests_per_second=0.05)
    waited = simulate(PLAN, quiet, Harm(), runs=3, seed=1)
    assert {(one.fate, one.step, round(one.seconds)) for one in waited} == {(Fate.HELD, 1, 4200)}
    asked = simulate(dataclasses.replace(PLAN, insufficient_data="hold"), quiet, Harm(), runs=3, seed=1)
    assert {(one.fate, round(one.seconds)) for one in asked} == {(Fate.HELD, 600)}


def test_what_is_too_old_is_taken_back() -> None:
    """A rollout that waits for longer than its plan's maximum age expires then."""
    plan = dataclasses.replace(PLAN, maximum_age_seconds=1300.0)
    found = simulate(plan, Traffic(requests_per_second=0.05), Harm(), runs=3, seed=1)
    assert {(one.fate, one.seconds) for one in found} == {(Fate.EXPIRED, 1300.0)}


def test_early_steps_are_shorter() -> None:
    """With `early` a good canary under much traffic is through before the steps' time."""
    found = simulate(dataclasses.replace(PLAN, early=True), Traffic(requests_per_second=300), Harm(), runs=5, seed=1)
    assert {one.fate for one in found} == {Fate.PROMOTED}
    assert max(one.seconds for one in found) < 1000


def test_late_labels_are_waited_for() -> None:
    """A harm whose labels come after the last step is found then, and its users until then are counted."""
    errors, labels = MetricRule(kind="errors", effect=20.0), MetricRule(kind="labels", effect=1.5)
    plan = dataclasses.replace(PLAN, metrics=(errors, labels), steps=(Step(weight_percent=50, seconds=600),))
    soon = Traffic(requests_per_second=20)
    late = dataclasses.replace(soon, label_delay_seconds=1200.0)
    harm = Harm(kind="labels", effect=3.0)
    first, after = (simulate(plan, traffic, harm, runs=5, seed=2) for traffic in (soon, late))
    assert {one.fate for one in (*first, *after)} == {Fate.ROLLED_BACK}
    assert max(one.seconds for one in first) < min(one.seconds for one in after)
    assert max(one.canary_requests for one in first) < min(one.canary_requests for one in after)


def test_noise_that_the_plan_knows_nothing_of_is_shown() -> None:
    """Bursts make a plan that says they are not there roll back good canaries, and one that says so does not."""
    noisy = Traffic(requests_per_second=200, noise=0.7)
    assert fates(PLAN, noisy, Harm(), 30).count(Fate.ROLLED_BACK) >= 10
    tempered = dataclasses.replace(PLAN, dispersion=300.0, insufficient_data="hold")
    assert fates(tempered, noisy, Harm(), 30).count(Fate.ROLLED_BACK) == 0


def test_every_number_out_of_range_is_told() -> None:
    """All problems of a traffic are told at once."""
    with pytest.raises(InvalidInput) as caught:
        Traffic(requests_per_second=0, rates={"errors": 1.0}, labelled_share=0, label_delay_seconds=-1, noise=3)
    assert len(caught.value.problems) == 5
