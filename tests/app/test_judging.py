"""What a pass pays for judging, and what the record of a decision rests on."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mlgitops.app import judging
from mlgitops.core.analysis import verdict
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.rollout import RolloutPhase

START = datetime(2026, 3, 1, tzinfo=UTC)
PLAN = {
    "alpha": 0.01,
    "dispersion": 2.0,
    "steps": [{"seconds": 60}],
    "metrics": [{"kind": "errors", "effect": 3.0, "margin": 1.0}],
}
PROPOSAL = SimpleNamespace(environment="production", model="digits", plan=PLAN, weights=(10,), champion=3)
ROLLOUT: Any = SimpleNamespace(
    number=4, step=0, phase=RolloutPhase.ANALYSING, since=START, proposal=PROPOSAL, release="r" * 12
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
    """Numbers of samples of each judgement that was really made."""
    calls: list[int] = []
    real = verdict.judge_metrics

    def counted(samples: Any, *values: Any, **named: Any) -> Any:
        calls.append(len(samples))
        return real(samples, *values, **named)

    monkeypatch.setattr(judging, "judge_metrics", counted)
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
    assert judged == [2, 4]


def test_other_samples_under_the_same_names_are_judged_by_themselves(judged: list[int]) -> None:
    """A process that sees two worlds never takes the verdict of one for the other's."""
    good, bad = Place(), Place()
    good.sample(500, 0)
    bad.sample(500, 400)
    assert [str(one.judge().outcome) for one in (good, bad)] == ["inconclusive", "failed"]
    assert judged == [2, 2]


def test_a_record_rests_on_the_samples_that_were_judged(judged: list[int]) -> None:
    """Counts that come between verdict and record are not in the record, and its evidence is not computed again."""
    place = Place()
    place.sample(500, 400)
    judgement = place.judge()
    place.sample(900, 401)
    view = cast("Any", SimpleNamespace(ledger=SimpleNamespace(decision_names=lambda *_: ())))
    values = judging.record(place.world, view, ROLLOUT, judgement).values
    assert [one["total"] for one in values["counts"]] == [4500, 500]
    assert [one[1] for one in values["evidence"]["errors"]] == [judgement.metrics[0].log_evidence]
    assert judged == [2]
