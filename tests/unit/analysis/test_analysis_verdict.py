"""The judge: what it decides, when, and in which words."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mlgitops.core.analysis.counts import Arm, ArmCounts, Interval, Sample
from mlgitops.core.analysis.noise import dispersion_from_history, noise_of
from mlgitops.core.analysis.verdict import Outcome, Reason, Verdict, begin, conclude, judge, judge_running, worst
from mlgitops.core.analysis.words import odds, percent, points, seconds
from mlgitops.core.configuration import MetricRule
from mlgitops.core.errors import InvalidInput

START = datetime(2026, 3, 1, tzinfo=UTC)
ERRORS = MetricRule(kind="errors", effect=3)
LABELS = MetricRule(kind="labels", effect=3)
LATENCY = MetricRule(kind="latency", effect=3)
BOUNDS = (0.01, 0.05, 0.1, 0.25, 1.0)


class World:
    """A rollout that is sampled every minute; outcomes come evenly, so nothing is left to chance."""

    def __init__(self) -> None:
        self.minute = 0
        self.samples: list[Sample] = []
        self._made: dict[tuple[str, Arm], list[float]] = {}

    def run(
        self,
        cohort: str,
        minutes: int,
        weight: float,
        *,
        requests: int = 1_000,
        failed: tuple[float, float] = (0.01, 0.01),
        wrong: tuple[float, float] = (0.05, 0.05),
        slow: tuple[float, float] = (0.01, 0.01),
        labelled: float = 0.8,
    ) -> "World":
        """Let traffic flow; rates are (canary, baseline)."""
        for _ in range(minutes):
            self.minute += 1
            for arm, share, place in ((Arm.CANARY, weight, 0), (Arm.BASELINE, 1 - weight, 1)):
                made = self._made.setdefault((cohort, arm), [0.0] * 5)
                n = requests * share
                gained = (n, n * failed[place], n * labelled, n * labelled * wrong[place], n * slow[place])
                made[:] = [old + new for old, new in zip(made, gained, strict=True)]
                self._sample(cohort, arm)
        return self

    def late_labels(self, cohort: str, labelled: int, wrong: tuple[float, float]) -> "World":
        """Let labels of an earlier step come in: so many for the canary, the same share for the baseline."""
        self.minute += 1
        share = labelled / self._made[cohort, Arm.CANARY][0]
        for arm, rate in zip((Arm.CANARY, Arm.BASELINE), wrong, strict=True):
            made = self._made[cohort, arm]
            made[2] += made[0] * share
            made[3] += made[0] * share * rate
            self._sample(cohort, arm)
        return self

    def _sample(self, cohort: str, arm: Arm) -> None:
        total, failed, labelled, wrong, slow = (math.floor(value + 1e-9) for value in self._made[cohort, arm])
        latency = (total // 2, total - 5 * slow, total - slow, total - slow // 2, total - slow // 10)
        at = START + timedelta(minutes=self.minute)
        self.samples.append(
            Sample(
                at=at,
                cohort=cohort,
                arm=arm,
                total=total,
                failed=failed,
                labelled=labelled,
                incorrect=wrong,
                latency=tuple(zip(BOUNDS, (min(count, total) for count in latency), strict=True)),
            )
        )


def decide(
    samples: Sequence[Sample],
    *rules: MetricRule,
    cohort: str = "7-0",
    elapsed: float = 600,
    dispersion: float | None = 1.0,
    early: bool = False,
    history: Sequence[Sample] = (),
) -> Verdict:
    return judge(
        samples,
        rules or (ERRORS, LATENCY, LABELS),
        alpha=0.01,
        dispersion=dispersion,
        cohort=cohort,
        elapsed_seconds=elapsed,
        step_seconds=600,
        early=early,
        history=history,
    )


def outcome(verdict: Verdict) -> tuple[Outcome, Reason]:
    return verdict.outcome, verdict.reason


INSUFFICIENT = (Outcome.INCONCLUSIVE, Reason.INSUFFICIENT_DATA)
UNAVAILABLE = (Outcome.INCONCLUSIVE, Reason.METRIC_UNAVAILABLE)


def test_good_canary_passes() -> None:
    """A canary like its baseline passes once its time is over and the effect is ruled out or was looked for."""
    verdict = decide(World().run("7-0", 20, 0.1).samples)
    assert verdict.outcome is Outcome.PASSED
    assert all(metric.outcome is Outcome.PASSED for metric in verdict.metrics)
    assert verdict.words.startswith("Passed (step 7-0).")


@pytest.mark.parametrize(
    ("kind", "bad"),
    [("errors", {"failed": (0.05, 0.01)}), ("labels", {"wrong": (0.2, 0.05)}), ("latency", {"slow": (0.05, 0.01)})],
)
def test_bad_canary_fails_by_its_metric(kind: str, bad: dict[str, tuple[float, float]]) -> None:
    """Each kind of regression fails the rollout through its own metric, before the step's time is over."""
    verdict = decide(World().run("7-0", 6, 0.1, **bad).samples, elapsed=360)  # type: ignore[arg-type]
    assert outcome(verdict) == (Outcome.FAILED, Reason.WORSE)
    assert [metric.kind for metric in verdict.metrics if metric.outcome is Outcome.FAILED] == [kind]


def test_time_not_over() -> None:
    """However much was seen, a step does not pass before its time is over."""
    verdict = decide(World().run("7-0", 20, 0.1).samples, elapsed=599)
    assert outcome(verdict) == (Outcome.INCONCLUSIVE, Reason.STEP_TIME_NOT_OVER)
    assert "1 s to go" in verdict.words


def test_a_plan_may_let_a_step_pass_early() -> None:
    """Where the plan allows it, a step whose own requests rule every effect out passes before its time, and says so."""
    samples = World().run("7-0", 20, 0.1).samples
    verdict = decide(samples, ERRORS, LABELS, elapsed=300, early=True)
    assert outcome(verdict) == (Outcome.PASSED, Reason.EFFECT_RULED_OUT)
    assert verdict.words.startswith("Passed (step 7-0), 5 min early: what the plan watches for is ruled out.")
    assert decide(samples, ERRORS, LABELS, elapsed=300).outcome is Outcome.INCONCLUSIVE


def test_no_step_passes_early_on_less() -> None:
    """Neither planned samples, nor one metric of two, nor what earlier steps showed, lets a step pass early."""
    quiet = World().run("7-0", 40, 0.1, failed=(0, 0))
    assert outcome(decide(quiet.samples, ERRORS)) == (Outcome.PASSED, Reason.PLANNED_SAMPLES_SEEN)
    waits = (Outcome.INCONCLUSIVE, Reason.STEP_TIME_NOT_OVER)
    assert outcome(decide(quiet.samples, ERRORS, LABELS, elapsed=300, early=True)) == waits
    world = World().run("7-0", 40, 0.1)
    assert decide(world.samples, ERRORS, elapsed=300, early=True).outcome is Outcome.PASSED
    world.run("7-1", 1, 0.5, requests=400)
    later = decide(world.samples, ERRORS, cohort="7-1")
    assert later.outcome is Outcome.PASSED
    assert later.metrics[0].log_evidence_within > later.metrics[0].threshold_within
    assert outcome(decide(world.samples, ERRORS, cohort="7-1", elapsed=300, early=True)) == waits


def test_an_early_failure_is_no_pass() -> None:
    """A canary that fails fails, also where its step could pass early."""
    samples = World().run("7-0", 20, 0.1, wrong=(0.2, 0.05)).samples
    assert decide(samples, ERRORS, LABELS, elapsed=300, early=True).outcome is Outcome.FAILED


def test_no_traffic_is_insufficient_data() -> None:
    """Without traffic the evidence stays exactly 1 and the verdict is `insufficient-data`: no pass, no failure."""
    verdict = decide(World().run("7-0", 20, 0.1, requests=0).samples)
    assert outcome(verdict) == INSUFFICIENT
    assert {metric.highest_log_evidence for metric in verdict.metrics} == {0}
    assert {metric.anytime_p_value for metric in verdict.metrics} == {1}


def test_little_traffic_is_insufficient_data() -> None:
    """A few good requests are no pass; the words say how many are needed for what."""
    verdict = decide(World().run("7-0", 20, 0.1, requests=20).samples, ERRORS)
    assert outcome(verdict) == INSUFFICIENT
    assert f"saw 40 of about {verdict.metrics[0].planned_samples:,} canary requests" in verdict.words


def test_labels_that_never_come_are_insufficient_data() -> None:
    """Traffic without labels does not pass the metric that needs them."""
    verdict = decide(World().run("7-0", 30, 0.1, labelled=0).samples, ERRORS, LABELS)
    assert outcome(verdict) == INSUFFICIENT
    assert [metric.outcome for metric in verdict.metrics] == [Outcome.PASSED, Outcome.INCONCLUSIVE]
    assert "No labelled request of the canary yet" in verdict.words


def test_silent_arm_is_unavailable() -> None:
    """A metric of which one arm has no sample in the step cannot be read, whatever earlier steps said."""
    samples = World().run("7-0", 20, 0.1).run("7-1", 10, 0.5).samples
    alone = [sample for sample in samples if sample.cohort == "7-0" or sample.arm is Arm.CANARY]
    verdict = decide(alone, ERRORS, cohort="7-1")
    assert outcome(verdict) == UNAVAILABLE
    assert "no sample of the baseline in step 7-1" in verdict.words
    assert outcome(decide([], ERRORS)) == UNAVAILABLE


def test_latency_without_buckets_is_unavailable() -> None:
    """Samples without common buckets make latency unavailable; they are not a fast service."""
    samples = [
        Sample(at=one.at, cohort=one.cohort, arm=one.arm, total=one.total, failed=one.failed)
        for one in World().run("7-0", 20, 0.1).samples
    ]
    verdict = decide(samples, ERRORS, LATENCY)
    assert outcome(verdict) == UNAVAILABLE
    assert "no latency bucket in common" in verdict.words


def test_every_step_needs_its_own_data() -> None:
    """What earlier steps saw never passes a step that has seen next to nothing itself."""
    world = World().run("7-0", 40, 0.1)
    assert decide(world.samples, ERRORS).outcome is Outcome.PASSED
    assert outcome(decide(world.run("7-1", 1, 0.5, requests=20).samples, ERRORS, cohort="7-1")) == INSUFFICIENT
    assert decide(world.run("7-1", 5, 0.5).samples, ERRORS, cohort="7-1").outcome is Outcome.PASSED


def test_service_that_never_fails_can_pass() -> None:
    """Two arms without any failure pass on the planned samples, though no ratio of their rates can be known."""
    verdict = decide(World().run("7-0", 40, 0.1, failed=(0, 0)).samples, ERRORS)
    assert outcome(verdict) == (Outcome.PASSED, Reason.PLANNED_SAMPLES_SEEN)
    assert "from 1.0 % to 2.9 %" in verdict.words


def test_margin_is_tolerated() -> None:
    """A canary worse by less than the margin is kept, where one without a margin fails."""
    samples = World().run("7-0", 60, 0.1, failed=(0.026, 0.02)).samples
    assert decide(samples, MetricRule(kind="errors", effect=3, margin=1.5)).outcome is Outcome.PASSED
    samples = World().run("7-0", 60, 0.1, failed=(0.06, 0.02)).samples
    verdict = decide(samples, MetricRule(kind="errors", effect=3, margin=1.5))
    assert outcome(verdict) == (Outcome.FAILED, Reason.WORSE)
    assert "at most 1.5 times the odds" in verdict.words


def test_failure_is_never_taken_back() -> None:
    """Once the evidence reached its threshold the rollout has failed, whatever good comes afterwards."""
    world = World().run("7-0", 4, 0.1, failed=(0.08, 0.01))
    assert decide(world.samples, ERRORS).outcome is Outcome.FAILED
    world.run("7-0", 400, 0.1, failed=(0.0, 0.01))
    verdict = decide(world.samples, ERRORS)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.metrics[0].log_evidence < verdict.metrics[0].threshold


def test_late_labels_of_an_earlier_step_fail_the_rollout() -> None:
    """Labels that come when the next step has begun are judged with the step of their requests, and count."""
    world = World().run("7-0", 20, 0.1, labelled=0).run("7-1", 5, 0.5, wrong=(0.05, 0.05))
    assert decide(world.samples, LABELS, cohort="7-1").outcome is not Outcome.FAILED
    world.late_labels("7-0", 400, (0.3, 0.05))
    verdict = decide(world.samples, LABELS, cohort="7-1")
    assert verdict.outcome is Outcome.FAILED
    assert {detail.cohort: detail.canary.bad for detail in verdict.metrics[0].cohorts}["7-0"] == 120


def test_a_canary_that_fails_only_under_more_traffic_fails() -> None:
    """Quiet first steps, in which the canary did better, do not pay for a later step in which it does far worse."""
    rule = MetricRule(kind="errors", effect=12, margin=3)
    world = World().run("7-1", 30, 0.1, failed=(0.0, 0.02))
    world.run("7-2", 10, 0.95, failed=(0.2, 0.01))
    assert decide(world.samples, rule, cohort="7-2").outcome is Outcome.FAILED


def test_a_far_better_canary_passes_where_the_baseline_is_mostly_wrong() -> None:
    """A margin at a high rate leaves nothing to be shown in any number of requests; that keeps no healthy canary."""
    rule = MetricRule(kind="labels", effect=5, margin=1.5)
    verdict = decide(World().run("7-0", 20, 0.1, wrong=(0.04, 0.65)).samples, rule)
    assert verdict.outcome is Outcome.PASSED


def test_metrics_share_alpha() -> None:
    """With three metrics each needs evidence of 3/α, so that together they fail a good canary at most at α."""
    samples = World().run("7-0", 3, 0.1).samples
    assert {metric.threshold for metric in decide(samples).metrics} == {math.log(300)}
    assert decide(samples, ERRORS).metrics[0].threshold == pytest.approx(math.log(100))


def test_weights_divide_alpha() -> None:
    """A metric's part of α is its weight among all, whatever the weights' sum, and a larger part needs less."""
    samples = World().run("7-0", 3, 0.1).samples
    rules = replace(ERRORS, weight=6), replace(LABELS, weight=2), LATENCY
    metrics = decide(samples, *rules).metrics
    assert [math.exp(-one.threshold) for one in metrics] == pytest.approx([0.01 * 6 / 9, 0.01 * 2 / 9, 0.01 / 9])
    assert metrics[0].planned_samples < decide(samples).metrics[0].planned_samples  # type: ignore[operator]
    alone = decide(samples, replace(ERRORS, weight=0.2)).metrics[0]
    assert replace(alone, rule=ERRORS) == decide(samples, ERRORS).metrics[0]
    for weight in (0, -1, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="the weight"):
            decide(samples, replace(ERRORS, weight=weight))


def test_noise_that_was_measured_is_used_and_told() -> None:
    """A metric with A/A history is judged by the dispersion that it shows, and the verdict says who says what."""
    dice = random.Random(11)
    groups = [[ArmCounts(total=500, bad=4 * dice.randrange(3)) for _ in Arm] for _ in range(200)]
    history = [
        Interval(at=START + timedelta(minutes=minute), cohort="", canary=one, baseline=other)
        for minute, (one, other) in enumerate(groups)
    ]
    rules, samples = (ERRORS, LABELS), World().run("7-0", 20, 0.1).samples

    def judged(dispersion: float | None) -> Verdict:
        running = begin(rules, dispersion=dispersion, noises={"errors": noise_of(dispersion, history)}).after(samples)
        metrics = judge_running(running, alpha=0.01, cohort="7-0")
        return conclude(metrics, alpha=0.01, cohort="7-0", elapsed_seconds=600, step_seconds=600)

    verdict = judged(None)
    errors, labels = verdict.metrics
    assert errors.noise.dispersion == dispersion_from_history(history) != 2
    assert [(one.noise.source, one.noise.blocks) for one in verdict.metrics] == [("history", 20), ("default", None)]
    assert (labels.noise.dispersion, verdict.dispersion_assumed) == (2.0, True)
    assert f"Noise of errors: 3 h of two groups of one version show a dispersion of {errors.noise.dispersion:.3g}." in (
        verdict.words
    )
    assert "Noise of labelled correctness: no history says how much" in verdict.words
    planned = judged(1.5)
    assert {(one.noise.dispersion, one.noise.source) for one in planned.metrics} == {(1.5, "plan")}
    assert "Noise" not in planned.words


def test_default_dispersion_is_told() -> None:
    """Without a dispersion the default of 2 is used, and the verdict says that it was assumed."""
    samples = World().run("7-0", 20, 0.1).samples
    verdict = decide(samples, ERRORS, dispersion=None)
    assert (verdict.dispersion, verdict.dispersion_assumed) == (2.0, True)
    assert "a dispersion of 2 was assumed" in verdict.words
    assert "assumed" not in decide(samples, ERRORS, dispersion=1.3).words


def test_order_of_samples_is_irrelevant() -> None:
    """The same samples in any order give the same verdict, to the last digit."""
    samples = World().run("7-0", 10, 0.1).run("7-1", 5, 0.5).late_labels("7-0", 30, (0.1, 0.1)).samples
    shuffled = random.Random(4).sample(samples, len(samples))
    assert decide(shuffled, cohort="7-1") == decide(samples, cohort="7-1")


def test_order_of_metrics_and_names_of_rollouts_are_irrelevant() -> None:
    """Metrics in another order, and another number of the rollout, change nothing that is found."""
    samples = (
        World().run("7-1", 10, 0.1, wrong=(0.09, 0.05)).run("7-2", 5, 0.5).late_labels("7-1", 30, (0.1, 0.1)).samples
    )
    found = decide(samples, cohort="7-2").metrics
    assert decide(samples, LABELS, ERRORS, LATENCY, cohort="7-2").metrics == (found[2], found[0], found[1])
    renamed = [replace(sample, cohort=f"12{sample.cohort[1:]}") for sample in samples]
    other = decide(renamed, cohort="12-2").metrics
    assert [one.course for one in other] == [one.course for one in found]
    assert [one.words for one in other] == [one.words for one in found]


def test_history_shapes_bets_only() -> None:
    """History lets latency be judged from the first interval on, but never makes a difference by itself."""
    history = World().run("6-0", 10, 0.5).samples
    first = World().run("7-0", 1, 0.5, slow=(0.1, 0.01)).samples
    assert decide(first, LATENCY).metrics[0].log_evidence == 0
    assert decide(first, LATENCY, history=history).metrics[0].log_evidence > 1
    slower = World().run("6-0", 10, 0.5, slow=(0.001, 0.001), failed=(0, 0)).samples
    same = World().run("7-0", 10, 0.5, failed=(0.02, 0.02)).samples
    assert decide(same, ERRORS, history=slower).metrics[0].anytime_p_value > 0.5


def test_latency_bounds_lie_around_the_baselines_p99() -> None:
    """Latency is judged at the bound that 1 % of the baseline exceeds and at its neighbours."""
    verdict = decide(World().run("7-0", 10, 0.1).samples, LATENCY)
    assert verdict.metrics[0].bounds == (0.05, 0.1, 0.25)
    assert "took longer than 100 ms" in verdict.words


def test_record_is_plain_json() -> None:
    """The decision record survives JSON without NaN or infinity, and holds what the verdict holds."""
    verdict = decide(World().run("7-0", 30, 0.1, failed=(0.5, 0), wrong=(1, 0)).samples)
    record = json.loads(json.dumps(verdict.to_mapping(), allow_nan=False))
    assert record == verdict.to_mapping()
    assert (record["outcome"], record["reason"], record["cohort"]) == ("failed", "worse", "7-0")
    errors = record["metrics"][0]
    assert errors["canary"] == {"total": 3000, "bad": 1500}
    assert errors["estimate"]["difference"] == pytest.approx(0.5)
    assert errors["estimate"]["oddsRatio"] is None
    assert errors["anytimePValue"] < 1e-9


def test_words_for_the_person_on_call() -> None:
    """The words give counts, rates, difference, evidence, threshold and the conclusion."""
    words = decide(World().run("7-0", 10, 0.1, requests=500, wrong=(0.15, 0.03)).samples, LABELS).words
    assert words.startswith("Failed: the canary is worse (step 7-0). Labelled correctness: Of 400 labelled canary ")
    assert "requests 60 were wrong (15.0 %), against 3.0 % of 3,600 on the baseline." in words
    assert "+12.0 points (95 % interval +8.8 to +15.9)" in words
    assert "threshold 100 to 1. The canary is worse." in words


def test_evidence_over_time() -> None:
    """The course for plots ends in the verdict's evidence, ascends in time, and keeps its points when more comes."""
    world = World().run("7-0", 8, 0.1, failed=(0.03, 0.01))
    early = decide(world.samples, ERRORS, dispersion=2.0).metrics[0]
    metric = decide(
        world.run("7-1", 4, 0.5, failed=(0.03, 0.01)).samples, ERRORS, cohort="7-1", dispersion=2.0
    ).metrics[0]
    assert metric.course[: len(early.course)] == early.course
    assert [at for at, _ in metric.course] == sorted({sample.at for sample in world.samples})
    assert metric.course[-1][1] == metric.log_evidence


def test_verdict_counts_every_cohort() -> None:
    """A metric tells the newest counts of both arms in each cohort."""
    metric = decide(World().run("7-0", 2, 0.1).run("7-1", 3, 0.5).samples, ERRORS, cohort="7-1").metrics[0]
    assert {one.cohort: (one.canary.total, one.baseline.total) for one in metric.cohorts} == {
        "7-0": (200, 1800),
        "7-1": (1500, 1500),
    }


def test_worst_of_an_explicit_list() -> None:
    """Failed is worse than Inconclusive, that is worse than Passed, and nothing at all is Inconclusive."""
    passed, failed, unknown = Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE
    assert worst([passed, unknown, failed]) is failed
    assert worst([passed, unknown]) is unknown
    assert worst([passed, passed]) is passed
    assert worst([]) is unknown


def test_impossible_plans_are_refused() -> None:
    """Every problem of the arguments is told at once; contradicting samples are refused as well."""
    with pytest.raises(InvalidInput) as caught:
        judge(
            [],
            [MetricRule(kind="errors", effect=1)],
            alpha=1,
            dispersion=0.5,
            cohort="7-0",
            elapsed_seconds=math.nan,
            step_seconds=-1,
        )
    assert [problem.pointer for problem in caught.value.problems] == [
        "metrics[0]", "alpha", "dispersion", "elapsed_seconds", "step_seconds",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="no metric judges"):
        judge([], [], alpha=0.01, dispersion=None, cohort="7-0", elapsed_seconds=0, step_seconds=0)
    with pytest.raises(InvalidInput, match="fell"):
        decide(list(reversed([
            Sample(at=START + timedelta(minutes=minute), cohort="7-0", arm=Arm.CANARY, total=5 - minute, failed=0)
            for minute in range(2)
        ])), ERRORS)  # fmt: skip


def test_numbers_in_words() -> None:
    """Numbers are written as a person would."""
    assert [percent(rate) for rate in (0, 1, 0.148, 0.00031, 0.9999)] == [
        "0 %",
        "100 %",
        "14.8 %",
        "0.031 %",
        "99.99 %",
    ]
    assert [odds(math.log(e)) for e in (1, 2.345, 23_456, 3e15, 1e-9)] == [
        "1 to 1", "2.3 to 1", "23,000 to 1", "more than 10^15 to 1", "less than 1 to 100",
    ]  # fmt: skip
    assert [points(rate) for rate in (0.117, -0.0035, 0, -1e-9)] == ["+11.7", "-0.35", "0", "0"]
    assert [seconds(value) for value in (0.25, 2.5, 90, 600, 10_800)] == ["250 ms", "2.5 s", "90 s", "10 min", "3 h"]
