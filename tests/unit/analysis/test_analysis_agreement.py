"""The evidence against a second implementation, written from the published formulas with numpy and scipy alone."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.verdict import MetricVerdict, judge_metrics
from mlgitops.core.configuration import MetricRule
from tests.support.traffic import BOUNDS, traffic

Row = tuple[int, int, int, int, int, int, int]
"""(step, canary requests, bad ones, baseline requests, bad ones, baseline requests before, bad ones before)."""


def counts(sample: Sample, kind: str, bound: float) -> np.ndarray:
    if kind == "labels":
        return np.array([sample.labelled, sample.incorrect])
    slow = sample.total - dict(sample.latency).get(bound, 0)
    return np.array([sample.total, sample.failed if kind == "errors" else slow])


def rows(samples: Sequence[Sample], kind: str, bound: float = 0.0) -> list[tuple[datetime, Row]]:
    """Cut a series into (moment, row), by differences of cumulative counts."""
    series: defaultdict[str, dict[datetime, dict[Arm, np.ndarray]]] = defaultdict(dict)
    for one in samples:
        series[one.cohort].setdefault(one.at, {})[one.arm] = counts(one, kind, bound)
    found = []
    for cohort, read in series.items():
        newest: dict[Arm, np.ndarray] = {}
        ended = np.zeros((2, 2), dtype=int)
        for at in sorted(read):
            newest |= read[at]
            if len(newest) == 2 and all((now := np.array([newest[arm] for arm in Arm]))[:, 0] > ended[:, 0]):
                found.append((at, int(cohort.split("-")[1]), now - ended))
                ended = now
    found.sort(key=lambda one: (one[0], one[1]))
    known, told = np.zeros(2, dtype=int), []
    for at, together in itertools.groupby(found, key=lambda one: one[0]):
        moment = list(together)
        told += [(at, (step, *gained.ravel().tolist(), *known.tolist())) for _, step, gained in moment]
        known = known + sum(gained[1] for _, _, gained in moment)
    return told


def worse_logs(row: Row, ratios: np.ndarray, margin: float) -> np.ndarray:
    """Return ln of the likelihood of each alternative over that of the null: of both arms, or of who got the bad."""
    _, n_c, x_c, n_b, x_b, known, bad = row
    if margin > 1 or known < n_b:
        null, other = n_c * margin / (n_c * margin + n_b), n_c * margin * ratios / (n_c * margin * ratios + n_b)
        return np.asarray(binom.logpmf(x_c, x_c + x_b, other) - binom.logpmf(x_c, x_c + x_b, null))
    of_b = (bad + 0.5) / (known + 1)
    of_c = ratios * of_b / (1 - of_b + ratios * of_b)
    of_0 = (n_c * of_c + n_b * of_b) / (n_c + n_b)
    alternative = binom.logpmf(x_c, n_c, of_c) + binom.logpmf(x_b, n_b, of_b)
    return np.asarray(alternative - binom.logpmf(x_c, n_c, of_0) - binom.logpmf(x_b, n_b, of_0))


def within_logs(row: Row, effect: float) -> np.ndarray:
    """Return ln of what is bet on a canary equal to, half-way to, and better than its baseline."""
    _, n_c, x_c, n_b, x_b, known, bad = row
    z2 = 9.0
    p = bad / known if known else 0.5
    upper = (
        (p + z2 / 2 / known + 3 * math.sqrt(p * (1 - p) / known + z2 / 4 / known**2)) / (1 + z2 / known) if known else 1
    )
    rates = effect / (1 + (effect - 1) * min(1.0, upper))
    shares = [n_b / (n_b + n_c * rates ** (1 - exponent)) for exponent in (1.0, 0.5, 1.5)]
    null = n_b / (n_b + n_c * rates)
    return np.array([binom.logpmf(x_b, x_b + x_c, one) - binom.logpmf(x_b, x_b + x_c, null) for one in shares])


def reference(samples: Sequence[Sample], rule: MetricRule, dispersion: float) -> tuple[float, float, float]:
    """Return (ln E, its highest, ln E against "worse by the effect")."""
    effect = rule.effect / rule.margin
    ratios = np.array([effect, effect**0.5, effect**2, 1.25, 1.5, 2, 3, 5, 10])
    weights = np.array([0.5, 0.2, 0.2, *(0.1 * np.array([0.35, 0.25, 0.15, 0.10, 0.10, 0.05]))])
    series = slots_of(samples) if rule.kind == "latency" else [rows(samples, rule.kind)]
    path, within = [], []
    for slot in series:
        gains = np.array([worse_logs(row, ratios, rule.margin) for _, row in slot]).reshape(-1, len(ratios))
        steps = np.array([row[0] for _, row in slot])
        moments = [at for at, _ in slot]
        parts = [np.full(len(slot), math.log(0.1 - sum(0.1 / 2 ** (s - 1) for s in range(2, 4))))]
        for step in (1, 2, 3):
            share = 0.9 if step == 1 else 0.1 / 2 ** (step - 1)
            sums = np.cumsum(gains * (steps >= step)[:, None], axis=0) / dispersion
            parts.append(math.log(share) + logsumexp(sums, axis=1, b=weights))
        whole = logsumexp(parts, axis=0)
        path.append(dict(zip(moments, whole, strict=True)))
        total = np.sum([within_logs(row, rule.effect) for _, row in slot], axis=0) / dispersion
        within.append(logsumexp(total, b=[0.6, 0.2, 0.2]))
    every = sorted(set().union(*path))
    course = [logsumexp([_as_of(one, at) for one in path]) - math.log(len(path)) for at in every]
    return course[-1], max([0.0, *course]), logsumexp(within) - math.log(len(within))


def _as_of(path: dict[datetime, float], at: datetime) -> float:
    before = [moment for moment in path if moment <= at]
    return path[max(before)] if before else 0.0


def slots_of(samples: Sequence[Sample]) -> list[list[tuple[datetime, Row]]]:
    """Give each of three slots the bound around the baseline's p99 as it was known before each interval."""
    by_bound = {bound: rows(samples, "latency", bound) for bound in BOUNDS}
    last = {one.at: {bound for bound, _ in one.latency} for one in samples if one.total}
    slots: list[list[tuple[datetime, Row]]] = [[], [], []]
    for place, (at, row) in enumerate(by_bound[BOUNDS[0]]):
        if not row[5]:
            continue
        common = [bound for bound in BOUNDS if all(bound in has for when, has in last.items() if when <= at)]
        slow = [by_bound[bound][place][1][6] / row[5] for bound in common]
        p99 = next((one for one, share in enumerate(slow) if share <= 0.01), len(common) - 1)
        start = min(max(p99 - 1, 0), len(common) - 3)
        for slot, bound in zip(slots, common[start : start + 3], strict=True):
            slot.append(by_bound[bound][place])
    return slots


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "rule",
    [
        MetricRule(kind="errors", effect=3),
        MetricRule(kind="errors", effect=4, margin=1.5),
        MetricRule(kind="labels", effect=2),
        MetricRule(kind="latency", effect=2),
        MetricRule(kind="latency", effect=5, margin=1.2),
    ],
    ids=lambda rule: f"{rule.kind}-{rule.margin}",
)
def test_evidence_is_that_of_a_second_implementation(rule: MetricRule, seed: int) -> None:
    """Over rough traffic of three steps the evidence for and against is that of the published formulas."""
    samples = traffic(random.Random(100 + seed), 45, worse=1.0 + 0.7 * seed)
    found = judge_metrics(samples, [rule], alpha=0.01, dispersion=1.6, cohort="7-3")[0]
    expected = reference(samples, rule, 1.6)
    told = found.log_evidence, found.highest_log_evidence, found.log_evidence_within
    assert told == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert any(expected)


def test_e_values_are_combined_as_the_library_ville_does() -> None:
    """The mixture is the weighted mean of products of e-values, and the p-value is what Ville's inequality gives."""
    ville = pytest.importorskip("ville", reason="the library ville is not installed")
    samples = [one for one in traffic(random.Random(7), 30, worse=2.0) if one.cohort == "7-1"]
    found: MetricVerdict = judge_metrics(
        samples, [MetricRule(kind="errors", effect=3)], alpha=0.01, dispersion=1, cohort="7-1"
    )[0]
    ratios = np.array([3, 3**0.5, 9, 1.25, 1.5, 2, 3, 5, 10])
    weights = [0.5, 0.2, 0.2, 0.035, 0.025, 0.015, 0.01, 0.01, 0.005]
    each = np.exp([worse_logs(row, ratios, 1.0) for _, row in rows(samples, "errors")])
    products = ville.evalues.combine(each, method="product", axis=0)
    mixture = ville.evalues.combine(products, weights=weights)
    assert math.exp(found.log_evidence) == pytest.approx(0.9 * mixture + 0.1)
    assert found.anytime_p_value == pytest.approx(ville.evalues.e_to_p(math.exp(found.highest_log_evidence)))
