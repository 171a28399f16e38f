"""Simulated rollouts are those that the judge would have judged."""

import dataclasses
import statistics

import numpy as np
import pytest

from mlgitops.core.analysis.labelling import one_sided
from mlgitops.core.analysis.noise import Noise, NoiseSource
from mlgitops.core.analysis.simulation import Fate, Harm, Traffic, _Users, simulate
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


LONG = Plan(
    name="long",
    steps=(Step(weight_percent=10, seconds=36_000),),
    metrics=(MetricRule(kind="errors", effect=3.0),),
    dispersion=1.0,
)


@pytest.mark.parametrize(
    ("kind", "rate", "worse", "requests"),
    [("errors", 0.01, 0.03, 564), ("labels", 0.08, 0.15, 244), ("labels", 0.08, 0.10, 2513)],
)
def test_harms_are_found_as_fast_as_was_measured_elsewhere(kind, rate, worse, requests) -> None:
    """At 10 % weight the canary's requests to detection are those of an independent simulation, within a quarter."""
    effect = worse / (1 - worse) / (rate / (1 - rate))
    plan = dataclasses.replace(LONG, metrics=(MetricRule(kind=kind, effect=effect),))
    traffic = Traffic(requests_per_second=10.0, rates={kind: rate})
    courses = simulate(plan, traffic, Harm(kind=kind, effect=effect), runs=60, seed=3, looks=2400)
    assert {one.fate for one in courses} == {Fate.ROLLED_BACK}
    assert 0.75 * requests < statistics.mean(one.canary_requests for one in courses) < 1.25 * requests


def test_good_releases_are_hardly_ever_rolled_back() -> None:
    """Of 400 releases that are no worse, with three metrics, no more go back than a chance of 1 % explains."""
    rules = (*LONG.metrics, MetricRule(kind="latency", effect=2.0), MetricRule(kind="labels", effect=2.0))
    plan = dataclasses.replace(PLAN, metrics=rules, insufficient_data="hold")
    assert fates(plan, Traffic(requests_per_second=40), Harm(), 400).count(Fate.ROLLED_BACK) <= 10


def test_a_harm_in_a_slice_is_found_by_the_metric_of_that_slice() -> None:
    """What a tenth of the users meet is found by their own metric, and in nobody else's; its extra harm is theirs."""
    sliced = [MetricRule(kind="labels", effect=5.0, slice=name) for name in ("eu", "mobile")]
    traffic = Traffic(requests_per_second=60, slices={"mobile": 0.1, "eu": 0.6})
    harm = Harm(kind="labels", slice="mobile", effect=8.0)
    ends = {}
    for rule in sliced:
        plan = dataclasses.replace(PLAN, metrics=(rule,))
        ends[rule.slice] = simulate(plan, traffic, harm, runs=10, seed=4)
    assert {(one.fate, one.step) for one in ends["mobile"]} == {(Fate.ROLLED_BACK, 1)}
    assert Fate.ROLLED_BACK not in {one.fate for one in ends["eu"]}
    worse = 8 * 0.1 / (0.9 + 8 * 0.1) - 0.1
    for one in ends["mobile"]:
        assert one.extra_bad == pytest.approx(0.1 * worse * one.canary_requests)


def test_all_kinds_of_a_slice_are_counted_consistently() -> None:
    """Slices that overlap, with late labels, failures and latency, are counts that the judge accepts."""
    rules = [
        MetricRule(kind=kind, effect=9.0, slice=of) for kind in ("errors", "latency", "labels") for of in ("a", "b")
    ]
    plan = dataclasses.replace(PLAN, metrics=tuple(rules))
    traffic = Traffic(requests_per_second=5, slices={"a": 0.9, "b": 0.7}, label_delay_seconds=300, labelled_share=0.5)
    assert len(fates(plan, traffic, Harm(kind="errors", slice="a", effect=30.0), 5)) == 5


def test_a_slice_of_unknown_size_is_refused() -> None:
    """Nothing is made up about how many users belong to a slice."""
    plan = dataclasses.replace(PLAN, metrics=(MetricRule(kind="errors", effect=3.0, slice="mobile"),))
    with pytest.raises(InvalidInput, match="mobile"):
        simulate(plan, BUSY, Harm(), runs=1, seed=1)


def test_failures_take_labels_with_them_on_both_sides_alike() -> None:
    """The labels of a canary that fails many requests are not taken for distorted: what failed gets no label."""
    rules = (MetricRule(kind="errors", effect=3.0), MetricRule(kind="labels", effect=3.0))
    plan = dataclasses.replace(PLAN, metrics=rules)
    traffic = Traffic(requests_per_second=100, rates={"errors": 0.01}, labelled_share=0.3)
    users = _Users(plan, traffic, Harm(kind="errors", effect=40.0), np.random.default_rng(1))
    users.requests("1-1", 0.5, 600)
    users.labels(600)
    samples = list(users.samples(600))
    assert min(one.labelled for one in samples) > 5000
    assert one_sided(samples) == ""


def test_the_measured_noise_is_used() -> None:
    """A dispersion that was measured makes evidence slower, as it does in a rollout that is judged by it."""
    plan = dataclasses.replace(LONG, dispersion=None)
    noisy = {"errors": Noise(dispersion=8.0, source=NoiseSource.HISTORY, blocks=20)}
    harm, traffic = Harm(kind="errors", effect=3.0), Traffic(requests_per_second=10.0)
    usual, slower = (
        statistics.mean(one.seconds for one in simulate(plan, traffic, harm, runs=15, seed=5, looks=200, noises=one))
        for one in ({}, noisy)
    )
    assert slower > 3 * usual


def test_labels_after_probation_change_nothing() -> None:
    """A harm whose labels come when the release is trusted already is not found, as a rollout would not look."""
    labels = MetricRule(kind="labels", effect=20.0)
    plan = dataclasses.replace(PLAN, metrics=(labels,), steps=(Step(weight_percent=50, seconds=600),))
    late = Traffic(requests_per_second=20, label_delay_seconds=60_000.0)
    harm = Harm(kind="labels", effect=2.5)
    for time, end in ((1.0, Fate.PROMOTED), (3e5, Fate.ROLLED_BACK)):
        found = simulate(plan, late, harm, runs=5, seed=2, probation_seconds=time)
        assert {one.fate for one in found} == {end}
