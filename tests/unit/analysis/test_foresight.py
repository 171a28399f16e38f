"""What the steps of a plan need is foretold as the judge will ask for it."""

import dataclasses

import pytest

from mlgitops.core.analysis.foresight import Known, needs
from mlgitops.core.analysis.simulation import Fate, Harm, Traffic, simulate
from mlgitops.core.configuration import HoldBack, MetricRule, Plan, Step
from mlgitops.core.manifest.lint.plans import lint_plans

ERRORS = MetricRule(kind="errors", effect=3.0)
PLAN = Plan(
    name="standard",
    steps=tuple(Step(weight_percent=weight, seconds=600) for weight in (10, 50, 95)),
    metrics=(ERRORS,),
    dispersion=1.0,
)
FILE = """\
apiVersion: mlgitops.dev/v1
kind: Environments
environments:
  - {{name: staging, plan: standard}}
  - name: production
    plan: standard
    expectedRequestsPerSecond: {rate}
plans:
  - name: standard
    steps: [{{weight: 10, seconds: 600}}, {{weight: 50, seconds: 600}}]
    metrics: [{{kind: errors, effect: 3}}, {{kind: latency, effect: 20}}]
    dispersion: 1
"""


@pytest.mark.parametrize("rate", [5.0, 30.0])
def test_a_step_that_is_foretold_to_wait_does(rate: float) -> None:
    """A step passes in its time where its need is foretold to be met, and waits where it is not."""
    first = needs(PLAN, rate)[0]
    quick = dataclasses.replace(PLAN, steps=PLAN.steps[:1], insufficient_data="hold")
    ends = [one.fate for one in simulate(quick, Traffic(requests_per_second=rate), Harm(), runs=20, seed=3)]
    assert first.waits == (rate == 5.0)
    assert ends.count(Fate.HELD if first.waits else Fate.PROMOTED) >= 18


def test_steps_add_up() -> None:
    """What the first step waited for is not asked for again, and nothing is told of steps that come after a hold."""
    found = needs(PLAN, 10.0)
    assert [one.step for one in found] == [1, 2, 3]
    assert found[0].waits
    assert not found[0].held
    assert found[1].needed < found[0].needed / 5  # only a gross harm is left to be shown
    assert [one.step for one in needs(PLAN, 0.1)] == [1]


def test_labels_that_never_come_are_not_counted() -> None:
    """Half the labels need twice the time."""
    plan = dataclasses.replace(PLAN, metrics=(MetricRule(kind="labels", effect=2.0),))
    all_of_them, half = (needs(plan, 1.0, Known(rates={"labels": 0.1}, labelled=share))[0] for share in (1.0, 0.5))
    assert half.needed == all_of_them.needed
    assert half.seconds == pytest.approx(2 * all_of_them.seconds)


def test_a_plan_that_cannot_see_is_warned_of_where_traffic_is_said() -> None:
    """The warning names environment, step, metric, what it needs and what it gets; enough traffic gives none."""
    (found,) = lint_plans(FILE.format(rate=5).encode(), "environments.yaml")
    assert (found.severity, found.rule, found.pointer) == ("warning", "tree-blind-plan", "environments[1].plan")
    assert found.line == 6
    assert "step 1 of plan standard needs about 1," in found.message
    assert "to see errors worse by an odds ratio of 3, and gets 300 in 10 min" in found.message
    assert lint_plans(FILE.format(rate=50).encode(), "environments.yaml") == []


def test_a_plan_that_would_stop_says_so() -> None:
    """Where the extension is not enough either, the warning says that a person would be asked."""
    found = lint_plans(FILE.format(rate=0.1).encode(), "environments.yaml")
    assert ["it would stop and ask a person" in one.message for one in found] == [True, True]


def test_a_file_that_is_wrong_is_told_by_others() -> None:
    """A file that cannot be read gives no warning of its plans."""
    assert lint_plans(FILE.format(rate=-1).encode(), "environments.yaml") == []


def test_slices_are_foretold_one_by_one() -> None:
    """Each slice that cannot be seen is warned of by its name; it is taken to have all of the traffic."""
    sliced = FILE.format(rate=5).replace("{kind: latency", "{kind: errors, slice: eu, effect: 3}, {kind: latency")
    found = lint_plans(sliced.encode(), "environments.yaml")
    assert [" errors of slice eu worse by an odds ratio of 3" in one.message for one in found] == [False, True]
    plan = dataclasses.replace(PLAN, metrics=(ERRORS, dataclasses.replace(ERRORS, slice="eu")))
    whole, of_slice, *_ = needs(plan, 5.0)
    assert whole.needed == of_slice.needed
    ends = [
        one.fate for one in simulate(plan, Traffic(requests_per_second=60, slices={"eu": 1.0}), Harm(), runs=6, seed=3)
    ]
    assert ends.count(Fate.PROMOTED) >= 5


def test_a_probation_with_a_hold_back_is_simulated_as_it_is_judged() -> None:
    """It is the last step, at its full length even where steps pass early, and needs are told for it, too."""
    held = dataclasses.replace(
        PLAN, steps=PLAN.steps[:2], early=True, hold_back=HoldBack(percent=5, seconds=1_800), maximum_age_seconds=9_999
    )
    assert [one.step for one in needs(held, 60.0)] == [1, 2, 3]
    for one in simulate(held, Traffic(requests_per_second=60), Harm(), runs=5, seed=3):
        assert one.fate is Fate.PROMOTED
        assert one.seconds >= 1_800
    worse = Harm(kind="errors", effect=5)
    ends = [one.fate for one in simulate(held, Traffic(requests_per_second=60), worse, runs=5, seed=3)]
    assert {*ends} == {Fate.ROLLED_BACK}
