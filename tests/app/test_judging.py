"""What a pass pays for judging, and what the record of a decision rests on."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from mlgitops.app import judging
from mlgitops.core.analysis.counts import Arm, Sample, SliceCounts
from mlgitops.core.analysis.running import Running
from mlgitops.core.rollout import RolloutPhase
from mlgitops.core.schemas import schema

START = datetime(2026, 3, 1, tzinfo=UTC)
PLAN = {
    "alpha": 0.01,
    "dispersion": 2.0,
    "steps": [{"seconds": 60}],
    "metrics": [{"kind": "errors", "effect": 3.0, "margin": 1.0}],
}
PROPOSAL = SimpleNamespace(environment="production", model="digits", plan=PLAN, weights=(10,), champion=3)
ROLLOUT: Any = SimpleNamespace(
    number=4,
    step=0,
    phase=RolloutPhase.ANALYSING,
    since=START,
    proposal=PROPOSAL,
    release="r" * 12,
    noise={},
    on_probation=False,
)


class Place:
    """A world in which only time passes and samples come."""

    def __init__(self) -> None:
        self.seconds, self.samples = 0, list[Sample]()
        metrics = SimpleNamespace(samples=lambda *_: tuple(self.samples))
        clock = SimpleNamespace(now=lambda: START + timedelta(seconds=self.seconds))
        self.world = cast("Any", SimpleNamespace(metrics=metrics, clock=clock))

    def sample(self, total: int, failed: int) -> None:
        """Let both arms be read, the canary with failures."""
        self.seconds += 1
        at = START + timedelta(seconds=self.seconds)
        self.samples += [
            Sample(at=at, cohort="4-1", arm=Arm.CANARY, total=total, failed=failed),
            Sample(at=at, cohort="4-1", arm=Arm.BASELINE, total=9 * total, failed=0),
        ]

    def judge(self) -> judging.Judgement:
        return judging.judge(self.world, ROLLOUT)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of samples that were added to evidence, of each time."""
    calls: list[int] = []
    real = Running.after

    def counted(running: Running, samples: Any) -> Running:
        calls.append(len(samples))
        return real(running, samples)

    monkeypatch.setattr(Running, "after", counted)
    judging._remembered.clear()
    return calls


def test_nothing_is_judged_again_until_a_sample_comes(judged: list[int]) -> None:
    """Passes over the same samples cost no judgement, and still see the step's time go by."""
    place = Place()
    place.sample(100, 1)
    first = place.judge()
    place.seconds += 30
    second = place.judge()
    assert judged == [2]
    assert (first.elapsed_seconds, second.elapsed_seconds) == (1, 31)
    assert first.words != second.words
    assert first.metrics == second.metrics
    place.sample(200, 2)
    assert place.judge().metrics[0].canary.total == 200
    assert judged == [2, 2], "what is known was judged again"


def test_evidence_that_grew_is_that_of_a_process_that_begins_anew(judged: list[int]) -> None:
    """A look costs the new samples alone, and says to the last digit what a fresh process says of all of them."""
    place = Place()
    looks = []
    for minute in range(1, 30):
        place.sample(100 * minute, 2 * minute)
        looks.append(place.judge())
    assert judged == [2] * 29
    judging._remembered.clear()
    assert place.judge() == looks[-1]
    assert judged[-1] == 58


def test_a_sample_that_comes_late_is_judged_in_its_place(judged: list[int]) -> None:
    """A reading of the past that a source tells only now makes everything be judged anew."""
    place = Place()
    for minute in (1, 2, 3):
        place.sample(100 * minute, minute)
    place.judge()
    place.samples.append(replace(place.samples[0], at=START + timedelta(seconds=1.5), total=150))
    late = place.judge()
    assert judged == [6, 1, 7]
    judging._remembered.clear()
    assert place.judge() == late


def test_other_samples_under_the_same_names_are_judged_by_themselves(judged: list[int]) -> None:
    """A process that sees two worlds never takes the verdict of one for the other's."""
    good, bad = Place(), Place()
    good.sample(500, 0)
    bad.sample(500, 400)
    assert [str(one.judge().outcome) for one in (good, bad)] == ["inconclusive", "failed"]
    assert judged == [2, 2]


def test_a_plan_decides_about_early_passes_and_shares(judged: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout is judged by the `early` and the weights of its own plan."""
    metrics = [
        {"kind": "errors", "effect": 5.0, "margin": 1.0, "weight": 3},
        {"kind": "labels", "effect": 5.0, "margin": 1.0},
    ]
    place = Place()
    for minute in range(1, 20):
        place.sample(1_000 * minute, 20 * minute)
        place.samples[-1] = replace(place.samples[-1], failed=180 * minute)
    monkeypatch.setitem(PLAN, "metrics", metrics[:1])
    assert str(place.judge().outcome) == "inconclusive"
    monkeypatch.setitem(PLAN, "early", True)
    assert str(place.judge().outcome) == "passed"
    monkeypatch.setitem(PLAN, "metrics", metrics)
    verdict = place.judge()
    assert str(verdict.outcome) == "inconclusive"
    assert [round(math.exp(-one.threshold), 6) for one in verdict.metrics] == [0.0075, 0.0025]


def test_a_record_rests_on_the_samples_that_were_judged(judged: list[int]) -> None:
    """Counts that come between verdict and record are not in the record, and its evidence is not computed again."""
    place = Place()
    place.sample(500, 400)
    judgement = place.judge()
    place.sample(900, 401)
    view = cast("Any", SimpleNamespace(ledger=SimpleNamespace(decision_names=lambda *_: ())))
    values = judging.record(place.world, view, ROLLOUT, judgement).values
    assert [one["total"] for one in values["counts"]] == [4500, 500]
    assert [one[1] for one in values["evidence"]["errors"]] == [round(judgement.metrics[0].log_evidence, 3)]
    assert judged == [2]


def test_a_slice_is_judged_and_recorded_under_its_name(judged: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's slice rolls a release back by its own requests, and the record says which metric it was."""
    harmed = {"kind": "errors", "slice": "mobile", "effect": 3.0, "margin": 1.0}
    monkeypatch.setitem(PLAN, "metrics", [*PLAN["metrics"], harmed])  # type: ignore[misc]
    place = Place()
    place.sample(50_000, 50)
    canary, baseline = place.samples
    mobile = SliceCounts(name="mobile", total=200, failed=50)
    place.samples = [
        replace(canary, slices=(mobile,)),
        replace(baseline, failed=450, slices=(replace(mobile, total=1_800, failed=0),)),
    ]
    judgement = place.judge()
    assert str(judgement.outcome) == "failed"
    view = cast("Any", SimpleNamespace(ledger=SimpleNamespace(decision_names=lambda *_: ())))
    record = judging.record(place.world, view, ROLLOUT, judgement)
    assert [one["slice"] for one in record.values["verdict"]["metrics"]] == [None, "mobile"]
    assert {*record.values["evidence"]} == {"errors", "errors/mobile"}
    assert "| errors/mobile | 50 of 200 | 0 of 1800 |" in record.words
    Draft202012Validator(schema("decision-record")).validate(
        {**record.values, "name": "00004-01-failed", "release": "0123456789ab"}
    )


def test_a_plot_keeps_the_peak_and_the_end() -> None:
    """However long a course was, its highest point and its last one are among the few that are kept."""
    course = [(START + timedelta(seconds=number), float(number % 7)) for number in range(5_000)]
    course[3_333] = (course[3_333][0], 99.0)
    kept = judging.thinned(course)
    assert course[3_333] in kept
    assert kept[-1] == course[-1]
    assert len(kept) <= judging.PATH_POINTS + 1
    assert [at for at, _ in kept] == sorted({at for at, _ in kept})
    assert judging.thinned(course[:3]) == course[:3]
    assert judging.thinned([]) == []
