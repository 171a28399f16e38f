"""Labels can neither be forged nor flooded into a rollback."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlgitops.adapters.serving import router
from mlgitops.adapters.serving.budget import Budget
from mlgitops.adapters.serving.routing import Configuration
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.labelling import one_sided
from mlgitops.core.analysis.verdict import Outcome, Reason, judge
from mlgitops.core.configuration import MetricRule

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
RULES = [MetricRule(kind="labels", effect=2, margin=1.2)]


def series(*counts: tuple[tuple[int, int, int], tuple[int, int, int]], cohort: str = "1-1") -> list[Sample]:
    """Return samples from (total, labelled, incorrect) of canary and baseline, a minute apart."""
    return [
        Sample(
            at=START + timedelta(minutes=minute),
            cohort=cohort,
            arm=arm,
            total=total,
            failed=0,
            labelled=labelled,
            incorrect=incorrect,
        )
        for minute, both in enumerate(counts)
        for arm, (total, labelled, incorrect) in zip((Arm.CANARY, Arm.BASELINE), both, strict=True)
    ]


def judged(samples: list[Sample]):
    return judge(
        samples, RULES, alpha=0.01, dispersion=1.0, cohort="1-1", elapsed_seconds=60, step_seconds=600
    ).metrics[0]


def test_a_flood_of_labels_for_the_canary_is_inconclusive() -> None:
    """Thousands of wrong labels for one arm alone roll nothing back: nobody knows what they say about the model."""
    told = judged(series(((5000, 500, 10), (5000, 500, 10)), ((5000, 2500, 2010), (5000, 500, 10))))
    assert (told.outcome, told.reason) == (Outcome.INCONCLUSIVE, Reason.METRIC_UNAVAILABLE)
    assert "more for one arm than chance explains" in told.words


def test_a_flood_that_is_drowned_later_stays_inconclusive() -> None:
    """Labels for the other arm afterwards do not make evidence of what was flooded."""
    flooded = ((20_000, 700, 504), (20_000, 200, 4))
    drowned = ((20_000, 15_000, 800), (20_000, 14_900, 300))
    assert one_sided(series(drowned)) == ""
    told = judged(series(((20_000, 200, 4), (20_000, 200, 4)), flooded, drowned))
    assert told.outcome is Outcome.INCONCLUSIVE


def test_a_flood_of_labels_for_the_baseline_passes_nothing() -> None:
    """Wrong labels for the champion's answers cannot hide a canary that is worse."""
    told = judged(series(((9000, 900, 90), (9000, 900, 30)), ((9000, 900, 90), (9000, 4000, 1500))))
    assert told.outcome is Outcome.INCONCLUSIVE


def test_labels_that_come_to_both_arms_alike_still_roll_back() -> None:
    """A canary that is really worse fails, whatever share of the answers gets a label."""
    told = judged(series(((5000, 0, 0), (5000, 0, 0)), ((9000, 1800, 400), (9000, 1790, 60))))
    assert told.outcome is Outcome.FAILED


def test_honest_labels_are_never_called_one_sided() -> None:
    """Over hundreds of rollouts with batches, delays, any weight and any share of labels, none is called distorted."""
    drawn = random.Random(7)
    for _ in range(300):
        weight, share = drawn.choice([0.01, 0.1, 0.5, 0.95]), drawn.choice([0.01, 0.3, 0.9, 1.0])
        counts, total, labelled = [], [0, 0], [0, 0]
        waiting = [0, 0]
        for _ in range(20):
            for _ in range(drawn.choice([5, 60])):
                arm = int(drawn.random() >= weight)
                total[arm] += 1
                waiting[arm] += drawn.random() < share
            if drawn.random() < 0.3:  # a batch of labels
                labelled = [labelled[arm] + waiting[arm] for arm in (0, 1)]
                waiting = [0, 0]
            counts.append(((total[0], labelled[0], 0), (total[1], labelled[1], 0)))
        assert one_sided(series(*counts)) == ""


def test_only_samples_of_one_moment_are_compared() -> None:
    """A batch that one arm's sample shows already, and the other's not yet, is no distortion."""
    late = series(((1000, 0, 0), (1000, 0, 0)))
    (early,) = [one for one in series(((1000, 900, 0), (1000, 0, 0))) if one.labelled]
    assert one_sided([*late, replace(early, at=START + timedelta(seconds=30))]) == ""


@pytest.mark.parametrize("count", [30, 100, 1000])
def test_small_floods_are_seen(count: int) -> None:
    """Some dozens of labels for a small canary alone are enough to tell."""
    assert one_sided(series(((2000, count, count), (18_000, 0, 0))))


def test_a_step_tells_nothing_about_another_ones_labels() -> None:
    """Each step's requests are compared among themselves, so late labels of an earlier weight distort nothing."""
    first = series(((1000, 900, 0), (9000, 8100, 0)), cohort="1-1")
    second = series(((5000, 50, 0), (5000, 51, 0)), cohort="1-2")
    assert one_sided([*first, *second]) == ""


def test_the_budget_of_labels_is_steady() -> None:
    """What is spent comes back at a steady rate, up to the burst and no further."""
    clock = [0.0]
    budget = Budget(10, 100, now=lambda: clock[0])
    budget.spend(150)
    assert not budget.has_some()
    clock[0] = 5.5
    assert budget.has_some()
    clock[0] = 1e6
    assert budget.has_some()
    budget.spend(100)
    assert not budget.has_some()


@pytest.mark.parametrize("token", ["", " \n", "short"])
def test_a_token_that_could_be_guessed_starts_nothing(tmp_path: Path, token: str) -> None:
    """The router does not start with an empty or short token: an empty one would open everything."""
    for name in ("label", "control"):
        (tmp_path / name).write_text("x" * 40)
    (tmp_path / "label").write_text(token)
    (tmp_path / "config").write_bytes(Configuration(routes={}).to_bytes())
    words = ["--config", "config", "--served-dir", "served", "--replays-dir", "replays", "--ready-file", "ready"]
    words += ["--label-token-file", "label", "--control-token-file", "control"]
    paths = [word if word.startswith("--") else str(tmp_path / word) for word in words]
    assert router.main(paths) == 1
    assert "less than 16 characters" in (tmp_path / "ready").read_text()
