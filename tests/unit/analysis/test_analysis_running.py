"""Evidence that grows with its samples: the same to the last digit, however they came."""

import itertools
import json
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.core.analysis import evidence, measures
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.measures import COURSE_POINTS
from mlgitops.core.analysis.noise import Noise, NoiseSource
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import judge_metrics, judge_running
from mlgitops.core.configuration import MetricRule
from mlgitops.core.errors import InvalidInput
from tests.support.traffic import START, traffic

RULES = (
    MetricRule(kind="errors", effect=3),
    MetricRule(kind="labels", effect=4, margin=1.3),
    MetricRule(kind="latency", effect=2),
)
NOISE = tuple(Noise(dispersion=value, source=NoiseSource.PLAN) for value in (1.0, 2.5, 1.7))


def in_parts(samples: Sequence[Sample], cuts: Sequence[int]) -> Running:
    running = Running.begin(RULES, NOISE)
    for start, end in itertools.pairwise([0, *sorted(cuts), len(samples)]):
        running = running.after(samples[start:end])
        running.look()  # a look changes nothing
    return running


def everything(running: Running) -> object:
    verdicts = judge_running(running, alpha=0.01, cohort="7-2")
    return [(one.to_mapping(), one.course) for one in verdicts], running.to_mapping()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**20), st.lists(st.integers(0, 150), max_size=8))
def test_any_chunks_give_the_same_evidence(seed: int, cuts: list[int]) -> None:
    """Samples that come in any parts, also parts of one moment, give the evidence of all at once, bit by bit."""
    samples = sorted(traffic(random.Random(seed), 30), key=lambda one: one.at)
    whole = in_parts(samples, [])
    parts = in_parts(samples, [cut for cut in cuts if cut < len(samples)])
    assert everything(parts) == everything(whole)
    assert all(metric.log_evidence for metric in judge_running(whole, alpha=0.01, cohort="7-2"))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**20), st.integers(0, 150))
def test_evidence_resumes_from_json(seed: int, cut: int) -> None:
    """What was stored as JSON in the middle of a rollout goes on to the very numbers of a replay of everything."""
    samples = sorted(traffic(random.Random(seed), 30), key=lambda one: one.at)
    stored = json.dumps(in_parts(samples[:cut], []).to_mapping(), allow_nan=False)
    resumed = Running.begin(RULES, NOISE).resumed(json.loads(stored))
    assert everything(resumed.after(samples[cut:])) == everything(in_parts(samples, []))


def test_history_is_part_of_the_beginning() -> None:
    """With history, too, evidence in parts is that of all at once."""
    history, samples = traffic(random.Random(1), 12), traffic(random.Random(2), 12)
    whole = Running.begin(RULES, NOISE, history).after(samples)
    early = Running.begin(RULES, NOISE, history).after(
        [one for one in samples if one.at < START + timedelta(minutes=5)]
    )
    late = [one for one in samples if one.at >= START + timedelta(minutes=5)]
    assert everything(early.after(late)) == everything(whole)
    assert everything(whole) != everything(Running.begin(RULES, NOISE).after(samples))


def test_adding_changes_nothing_that_was() -> None:
    """Evidence that was added to is still what it was."""
    samples = sorted(traffic(random.Random(5), 20), key=lambda one: one.at)
    before = in_parts(samples[:40], [])
    told = everything(before)
    before.after(samples[40:]).look()
    assert everything(before) == told


def test_what_comes_too_late_is_refused() -> None:
    """A sample of a moment before the newest settled one is refused, for the evidence has gone on without it."""
    samples = sorted(traffic(random.Random(5), 20), key=lambda one: one.at)
    running = in_parts(samples, [])
    with pytest.raises(InvalidInput, match="came after that of"):
        running.after(samples[:1])
    assert everything(running.after([])) == everything(running)


def test_state_does_not_grow_with_time() -> None:
    """Ten times as many moments of the same steps take no larger state, and a course of at most so many points."""

    def size(moments: int) -> int:
        samples = sorted(traffic(random.Random(3), moments), key=lambda one: one.at)
        metrics = judge_running(in_parts(samples, []), alpha=0.01, cohort="7-3")
        assert all(len(one.course) <= COURSE_POINTS + 2 for one in metrics)
        assert all(one.course[-1][1] == one.log_evidence for one in metrics)
        state = in_parts(samples, []).to_mapping()
        for metric in state["metrics"]:
            metric["course"].clear()
        return len(json.dumps(state))

    assert size(1_200) < 1.2 * size(120)


def test_highest_evidence_is_that_of_the_whole_course(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest evidence is found, and is in the course for plots, though most moments are not calculated."""
    for seed in range(6):
        samples = traffic(random.Random(seed), 90, worse=1.0 + seed / 4)

        def judged(samples: Sequence[Sample] = samples) -> list[tuple[float, evidence.Path]]:
            metrics = judge_metrics(samples, RULES, alpha=0.01, dispersion=1.5, cohort="7-3")
            return [(one.highest_log_evidence, list(one.course)) for one in metrics]

        whole = judged()
        assert all(highest == max([0.0, *[value for _, value in course]]) for highest, course in whole)
        with monkeypatch.context() as patch:
            patch.setattr(measures, "COURSE_POINTS", 6)
            thinned = judged()
        for (highest, course), (found, kept) in zip(whole, thinned, strict=True):
            assert found == highest
            assert set(kept) < set(course)
            assert highest in {0.0, *[value for _, value in kept]}


def test_steps_that_report_together_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of several steps that come at one moment raise the evidence together, and the highest is not missed."""
    dice = random.Random(9)
    for _ in range(100):
        counts = {(step, arm): [0, 0] for step in (1, 2, 3) for arm in Arm}
        samples = []
        for minute in range(6):
            wrong = {Arm.CANARY: dice.choice([0, 4, 8]), Arm.BASELINE: dice.choice([4, 8])}
            for (step, arm), kept in counts.items():
                kept[:] = [kept[0] + (20 if arm is Arm.CANARY else 40), kept[1] + wrong[arm]]
                at = START + timedelta(minutes=minute)
                samples.append(
                    Sample(
                        at=at,
                        cohort=f"7-{step}",
                        arm=arm,
                        total=kept[0],
                        failed=0,
                        labelled=kept[0],
                        incorrect=kept[1],
                    )
                )
        rule = [MetricRule(kind="labels", effect=2)]
        found = []
        for points in (1_000, 2):
            monkeypatch.setattr(measures, "COURSE_POINTS", points)
            found.append(judge_metrics(samples, rule, alpha=0.01, dispersion=2, cohort="7-3")[0].highest_log_evidence)
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"format": 0},
        {"metrics": []},
        {"rules": [["errors", 3, 1.0, 1.0]]},
        {"newest": [{"at": "x"}]},
        {"pending": [7]},
        {"labels": None},
    ],
)
def test_a_broken_state_is_refused(broken: dict[str, object]) -> None:
    """A state that was cut, changed, or made by other rules or another dispersion is told, never gone on from."""
    state = in_parts(traffic(random.Random(5), 10), []).to_mapping() | broken if broken else {}
    with pytest.raises(InvalidInput, match="judge all samples anew"):
        Running.begin(RULES, NOISE).resumed(json.loads(json.dumps(state)))
    with pytest.raises(InvalidInput, match="judge all samples anew"):
        Running.begin(RULES, NOISE[::-1]).resumed(in_parts([], []).to_mapping())


def test_shares_of_later_steps_are_settled_beforehand() -> None:
    """What a bet that begins with a step gets does not depend on which steps had data before it, so evidence is fair.

    Labels of the first step that come after those of the second leave the second's evidence as it was.
    """

    def labelled(at: int, step: int, counts: tuple[tuple[int, int], tuple[int, int]]) -> list[Sample]:
        return [
            Sample(at=START + timedelta(minutes=at), cohort=f"7-{step}", arm=arm, total=5_000, failed=0,
                   labelled=known, incorrect=wrong)
            for arm, (known, wrong) in zip((Arm.CANARY, Arm.BASELINE), counts, strict=True)
        ]  # fmt: skip

    second = labelled(1, 2, ((500, 60), (500, 20)))
    nothing = labelled(2, 1, ((600, 0), (600, 0)))  # more than is known of the baseline, none wrong: no bet gains
    rule = [MetricRule(kind="labels", effect=3)]

    def found(samples: Sequence[Sample]) -> float:
        return judge_metrics(samples, rule, alpha=0.01, dispersion=1, cohort="7-2")[0].log_evidence

    assert found([*second, *nothing]) == pytest.approx(found(second), abs=1e-12)
    assert found(second) > 3
