"""Slices among the metrics of a canary: each is judged on its own requests, and all share one α."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from mlgitops.core.analysis.counts import Arm, Sample, SliceCounts, check_samples
from mlgitops.core.analysis.noise import noise_of
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import Outcome, Reason, begin, conclude, judge, judge_running
from mlgitops.core.configuration import MetricRule
from mlgitops.core.errors import InvalidInput

START = datetime(2026, 3, 1, tzinfo=UTC)
COUNTS = ("total", "failed", "labelled", "incorrect")
RULES = tuple(
    MetricRule(kind=kind, effect=3, slice=name)
    for kind in ("errors", "latency", "labels")
    for name in (None, "mobile", "eu")
)
EVERY, MOBILE = RULES[6], RULES[7]


def rollout(
    minutes: int,
    rates: dict[str, tuple[float, float]],
    *,
    seed: int = 1,
    requests: int = 400,
    weight: float = 0.5,
    rest: int = 1,
) -> list[Sample]:
    """Return samples of a rollout; rates of bad outcomes by slice are (canary, baseline).

    `rest` are the requests outside slices; there are `rest` times as many of them.
    """
    dice, samples = np.random.default_rng(seed), list[Sample]()
    counts = {(arm, name): [0, 0, 0, 0, 0] for arm in Arm for name in rates}
    for minute in range(1, minutes + 1):
        for arm, share in ((Arm.CANARY, weight), (Arm.BASELINE, 1 - weight)):
            for name, pair in rates.items():
                n = int(requests * share) * (rest if name == "rest" else 1)
                rate = pair[arm is Arm.BASELINE]
                bad = [int(dice.binomial(n, rate)) for _ in range(3)]
                counts[arm, name] = [
                    old + new for old, new in zip(counts[arm, name], (n, bad[0], n, bad[1], n - bad[2]), strict=True)
                ]
            parts = {name: _counts(counts[arm, name]) for name in rates}
            whole = _counts([sum(column) for column in zip(*(counts[arm, name] for name in rates), strict=True)])
            slices = tuple(SliceCounts(name=name, **one) for name, one in parts.items() if name != "rest")
            at = START + timedelta(minutes=minute)
            samples.append(Sample(at=at, cohort="7-1", arm=arm, slices=slices, **whole))
    return samples


def _counts(values: list[int]) -> dict[str, Any]:
    total, failed, labelled, incorrect, fast = values
    named = dict(zip(COUNTS, (total, failed, labelled, incorrect), strict=True))
    return {**named, "latency": ((0.1, fast), (1.0, total))}


def running(samples: list[Sample], *rules: MetricRule) -> Running:
    return begin(rules, dispersion=1.0).after(samples)


def test_a_slice_is_judged_as_if_its_requests_were_all_there_are() -> None:
    """Evidence, estimate and needs of a slice are, to the last digit, those of a rollout of its requests alone."""
    samples = rollout(20, {"rest": (0.02, 0.02), "mobile": (0.05, 0.02), "eu": (0.02, 0.03)})
    for rule in RULES:
        own = [one.of(rule.slice) for one in samples]
        (found,) = judge_running(running(samples, rule), alpha=0.01, cohort="7-1")
        (alone,) = judge_running(running(own, replace(rule, slice=None)), alpha=0.01, cohort="7-1")
        assert found.course == alone.course
        assert found.estimate == alone.estimate
        assert (found.log_evidence, found.planned_samples, found.reason) == (
            alone.log_evidence,
            alone.planned_samples,
            alone.reason,
        )


def test_a_canary_that_harms_one_slice_fails_by_it() -> None:
    """What vanishes in the whole of the traffic is seen in its slice, and the words name it."""
    samples = rollout(30, {"rest": (0.05, 0.05), "mobile": (0.20, 0.05)}, requests=100, rest=50)
    verdict = judge(
        samples, (EVERY, MOBILE), alpha=0.01, dispersion=1.0, cohort="7-1", elapsed_seconds=600, step_seconds=600
    )
    assert verdict.outcome is Outcome.FAILED
    assert [one.name for one in verdict.metrics if one.outcome is Outcome.FAILED] == ["labels/mobile"]
    assert "Labelled correctness of slice mobile: Of 1,500 labelled canary requests in slice mobile" in verdict.words
    assert verdict.metrics[1].to_mapping()["slice"] == "mobile"


def test_a_slice_without_data_is_never_a_pass() -> None:
    """All other metrics pass, and a slice that nobody asked for keeps the step undecided."""
    samples = rollout(60, {"rest": (0.02, 0.02), "eu": (0.02, 0.02)}, requests=4_000)
    whole = judge_running(running(samples, EVERY), alpha=0.01, cohort="7-1")
    assert whole[0].outcome is Outcome.PASSED
    for known in (samples, [replace(one, slices=()) for one in samples]):
        metrics = judge_running(running(known, EVERY, MOBILE), alpha=0.01, cohort="7-1")
        verdict = conclude(metrics, alpha=0.01, cohort="7-1", elapsed_seconds=9_999, step_seconds=1, early=True)
        assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.INSUFFICIENT_DATA)
        assert "No labelled request of the canary in slice mobile yet." in verdict.words


def test_metrics_and_slices_share_one_alpha() -> None:
    """The chances with which each metric may fail a release that is no worse add up to α, slices included."""
    weighty = (*RULES[:-1], replace(RULES[-1], weight=3))
    metrics = judge_running(begin(weighty, dispersion=1.0), alpha=0.02, cohort="7-1")
    shares = [math.exp(-one.threshold) for one in metrics]
    assert math.fsum(shares) == pytest.approx(0.02)
    assert shares[-1] == pytest.approx(3 * shares[0])


def test_perfect_canaries_are_seldom_failed_by_any_slice() -> None:
    """Of many perfect canaries, judged by three metrics in three slices at α = 10 %, few are ever failed."""
    beginning = Running.begin(RULES, [noise_of(1.0)] * len(RULES))
    failed = 0
    for seed in range(150):
        samples = rollout(25, dict.fromkeys(("rest", "mobile", "eu"), (0.04, 0.04)), seed=seed, weight=0.3)
        metrics = judge_running(beginning.after(samples), alpha=0.1, cohort="7-1")
        failed += any(one.outcome is Outcome.FAILED for one in metrics)
    assert failed <= 20  # at 15 expected at most, more than 20 would come in 7 % of repetitions; seeds are fixed


def test_slices_resume_and_replay_to_the_last_digit() -> None:
    """Evidence of slices that is stopped, written, read and gone on with is what one look at all of it gives."""
    samples = rollout(20, {"rest": (0.02, 0.02), "mobile": (0.05, 0.02), "eu": (0.02, 0.03)})
    beginning = begin(RULES, dispersion=1.5)
    part = json.loads(json.dumps(beginning.after(samples[:21]).to_mapping()))
    resumed = beginning.resumed(part).after(samples[21:])
    assert resumed.look() == beginning.after(samples).look()
    with pytest.raises(InvalidInput, match="other metrics"):
        begin([replace(rule, slice=None) for rule in RULES], dispersion=1.5).resumed(part)


def test_labels_for_one_side_of_a_slice_are_not_judged() -> None:
    """Labels that come for one side of a slice alone, in a whole that looks even, are not compared."""
    samples = rollout(30, {"rest": (0.05, 0.05), "mobile": (0.05, 0.05)})
    aimed = []
    for one in samples:
        mobile = one.slices[0]
        if one.arm is Arm.CANARY:
            mobile = replace(mobile, labelled=mobile.labelled // 2, incorrect=0)
        aimed.append(replace(one, slices=(mobile,)))
    metrics = judge_running(running(aimed, EVERY, MOBILE), alpha=0.01, cohort="7-1")
    assert metrics[1].reason is Reason.METRIC_UNAVAILABLE
    assert "more for one arm than chance explains" in metrics[1].words
    assert metrics[0].reason is not Reason.METRIC_UNAVAILABLE


@pytest.mark.parametrize(("spoil", "told"), [
    ({"total": 10_000, "latency": ()}, "more than the 400 of all requests"),
    ({"failed": -1}, "not a whole number"),
    ({"incorrect": 399, "labelled": 3}, "more than labelled 3"),
])  # fmt: skip
def test_slices_that_cannot_be_are_refused_with_their_place(spoil: dict[str, Any], told: str) -> None:
    """A slice counts part of its requests; one that says otherwise is refused, and named."""
    samples = rollout(2, {"rest": (0.1, 0.1), "mobile": (0.1, 0.1)}, requests=400)
    check_samples(samples)
    first = samples[0]
    samples[0] = replace(first, slices=(replace(first.slices[0], **spoil),))
    with pytest.raises(InvalidInput, match=told) as refused:
        check_samples(samples)
    assert all("slices.mobile" in (one.pointer or "") for one in refused.value.problems)


def test_a_slice_that_falls_vanishes_or_is_told_twice_is_refused() -> None:
    """Counts of slices never fall, not by being left out either, and a name comes once."""
    samples = rollout(2, {"rest": (0.1, 0.1), "mobile": (0.1, 0.1)}, requests=400)
    last = samples[-1]
    for wrong in (
        replace(last, slices=()),
        replace(last, slices=(replace(last.slices[0], total=1, failed=0, labelled=0, incorrect=0, latency=()),)),
        replace(last, slices=last.slices * 2),
    ):
        with pytest.raises(InvalidInput, match=r"fell|more than once"):
            check_samples([*samples[:-1], wrong])
