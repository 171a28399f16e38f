"""The e-processes: exact means under their hypotheses, an independent calculation, monotony, replay."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.core.analysis import evidence
from mlgitops.core.analysis.counts import ArmCounts, Interval
from mlgitops.core.analysis.evidence import (
    DEFAULT_MIXTURE,
    Bets,
    Mixture,
    centred_on,
    highest,
    log_evidence,
    log_evidence_margin,
    log_evidence_within,
    path_of,
    wilson,
    with_before,
    within_bets,
    worse_bets,
)
from mlgitops.core.errors import InvalidInput

START = datetime(2026, 3, 1, tzinfo=UTC)
HISTORY = ArmCounts(total=5_000, bad=100)


def interval(minute: int, canary: tuple[int, int], baseline: tuple[int, int], cohort: str = "7-0") -> Interval:
    """(bad, total) of both arms."""
    return Interval(
        at=START + timedelta(minutes=minute),
        cohort=cohort,
        canary=ArmCounts(bad=canary[0], total=canary[1]),
        baseline=ArmCounts(bad=baseline[0], total=baseline[1]),
    )


def counts(largest: int = 300) -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(0, largest).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


blocks = st.lists(st.tuples(counts(), counts()), max_size=8).map(
    lambda pairs: [interval(minute, *pair) for minute, pair in enumerate(pairs)]
)
ratios = st.floats(1.01, 30)
rates = st.floats(0, 1)


def means_of(
    bets: Bets, sizes: tuple[int, int], p_canary: float, p_baseline: float, before: ArmCounts
) -> Sequence[float]:
    """Return the exact mean of each bet's result over all outcomes of two binomials."""
    n_c, n_b = sizes

    def chance(bad: int, total: int, rate: float) -> float:
        return math.comb(total, bad) * rate**bad * (1 - rate) ** (total - bad)

    worth = [
        [
            chance(x_c, n_c, p_canary) * chance(x_b, n_b, p_baseline) * math.exp(gained)
            for gained in bets.of(interval(0, (x_c, n_c), (x_b, n_b)), before)
        ]
        for x_c in range(n_c + 1)
        for x_b in range(n_b + 1)
    ]
    return [math.fsum(one) for one in zip(*worth, strict=True)]


small = st.tuples(st.integers(0, 7), st.integers(0, 7))


@given(small, rates, ratios, counts(50))
def test_bet_on_worse_gains_nothing_while_equal(
    sizes: tuple[int, int], rate: float, ratio: float, before: tuple[int, int]
) -> None:
    """Whatever the common rate, sizes, guess and alternative, the mean of the bet is at most 1, exactly."""
    bets = worse_bets(Mixture(odds_ratios=(ratio,), weights=(1.0,)))
    assert max(means_of(bets, sizes, rate, rate, ArmCounts(bad=before[0], total=before[1]))) <= 1 + 1e-9


@given(small, rates, rates, ratios, st.floats(1, 8))
def test_bet_beyond_margin_gains_nothing_within_it(
    sizes: tuple[int, int], rate: float, part: float, ratio: float, margin: float
) -> None:
    """For every canary within the margin (in odds), better ones included, the mean of the margin bet is at most 1."""
    limit = margin * rate / (1 - rate + margin * rate)
    bets = worse_bets(Mixture(odds_ratios=(ratio,), weights=(1.0,)), margin=margin + 1e-12)
    assert max(means_of(bets, sizes, part * limit, rate, ArmCounts())) <= 1 + 1e-9


@given(small, st.floats(0, 0.2), st.floats(1, 3), st.floats(1.1, 8))
def test_bet_on_within_gains_nothing_beyond_it(
    sizes: tuple[int, int], rate: float, excess: float, margin: float
) -> None:
    """For every canary at the named effect or beyond, the mean of the reversed bets is at most 1."""
    odds = excess * margin
    worse = odds * rate / (1 - rate + odds * rate)
    known = ArmCounts(total=1_000, bad=round(1_000 * rate))
    assert max(means_of(within_bets(margin), sizes, worse, rate, known)) <= 1 + 1e-9


@given(small, rates, ratios)
def test_better_canary_loses_the_bet(sizes: tuple[int, int], rate: float, ratio: float) -> None:
    """A canary with half the baseline's rate makes no gain on average either."""
    bets = worse_bets(Mixture(odds_ratios=(ratio,), weights=(1.0,)))
    known = ArmCounts(total=1_000, bad=round(1_000 * rate))
    assert max(means_of(bets, sizes, rate / 2, rate, known)) <= 1 + 1e-9


def by_likelihoods(intervals: list[Interval], mixture: Mixture, history: ArmCounts) -> Decimal:
    """Return E by multiplying likelihoods in 80-digit decimals: the definition, without a logarithm."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 80, -(10**15), 10**15
        total = Decimal(0)
        for ratio, weight in zip(mixture.odds_ratios, mixture.weights, strict=True):
            product, before = Decimal(1), history
            for one in intervals:
                n_c, n_b = one.canary.total, one.baseline.total
                odds = (Decimal(before.bad) + Decimal("0.5")) / (before.total - before.bad + Decimal("0.5"))
                of_b, of_c = odds / (1 + odds), odds * Decimal(ratio) / (1 + odds * Decimal(ratio))
                of_0 = (n_c * of_c + n_b * of_b) / (n_c + n_b)
                for arm, rate in ((one.canary, of_c), (one.baseline, of_b)):
                    product *= (rate / of_0) ** arm.bad * ((1 - rate) / (1 - of_0)) ** (arm.total - arm.bad)
                before += one.baseline
            total += Decimal(weight) * product
        return +total


@given(st.lists(st.tuples(counts(), counts()), min_size=1, max_size=6))
@settings(max_examples=40)
def test_equals_the_product_of_likelihoods(pairs: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    """The evidence is the mixture of likelihood ratios, to twelve digits of an 80-digit calculation."""
    intervals = [interval(k, *pair) for k, pair in enumerate(pairs) if pair[0][1] and pair[1][1]]
    expected = float(by_likelihoods(intervals, DEFAULT_MIXTURE, HISTORY).ln()) if intervals else 0.0
    assert log_evidence(intervals, history=HISTORY) == pytest.approx(expected, rel=1e-12, abs=1e-10)


def test_a_thousand_million_requests_keep_their_digits() -> None:
    """Counts of 10⁹ requests with rates of 10⁻³ lose nothing that matters to cancellation."""
    history = ArmCounts(total=9 * 10**9, bad=9 * 10**6)
    intervals = [interval(0, (1_003_000, 10**9), (9 * 10**6, 9 * 10**9))]
    expected = float(by_likelihoods(intervals, DEFAULT_MIXTURE, history).ln())
    assert log_evidence(intervals, history=history) == pytest.approx(expected, abs=1e-5)
    assert abs(expected) > 1


def test_first_interval_needs_no_guess() -> None:
    """Before anything is known of the baseline the conditional bet is made, which no guess of a rate can spoil."""
    unknown = [interval(0, (30, 1_000), (90, 9_000))]
    assert log_evidence(unknown) == pytest.approx(log_evidence_margin(unknown, margin=1 + 1e-15), rel=1e-12)
    assert log_evidence(unknown) > math.log(100)
    little = [interval(0, (0, 3), (0, 3)), interval(1, (30, 1_000), (90, 9_000))]
    assert log_evidence(little) > math.log(100)


def test_no_data_no_evidence() -> None:
    """Without data, or with data of one arm alone, the evidence stays 1, exactly."""
    alone = [interval(0, (5, 5), (0, 0)), interval(1, (0, 0), (5, 5))]
    for intervals in ([], alone):
        assert log_evidence(intervals) == pytest.approx(0, abs=1e-15)
        assert log_evidence_margin(intervals, margin=2) == pytest.approx(0, abs=1e-15)
        assert log_evidence_within(intervals, margin=2) == pytest.approx(0, abs=1e-15)
    assert highest([]) == 0


@settings(max_examples=40)
@given(blocks.filter(len), st.data())
def test_a_bad_outcome_more_is_evidence_more(intervals: list[Interval], data: st.DataObject) -> None:
    """Turning a good outcome of the canary into a bad one never lowers the evidence that it is worse, anywhere."""
    place = data.draw(st.integers(0, len(intervals) - 1))
    one = intervals[place]
    if one.canary.bad == one.canary.total:
        return
    changed = list(intervals)
    changed[place] = interval(place, (one.canary.bad + 1, one.canary.total), (one.baseline.bad, one.baseline.total))
    bets = worse_bets(centred_on(3))
    less = path_of(with_before(intervals, HISTORY), bets, dispersion=2)
    more = path_of(with_before(changed, HISTORY), bets, dispersion=2)
    assert all(after >= before - 1e-9 for (_, before), (_, after) in zip(less, more, strict=True))
    assert log_evidence_margin(changed, margin=1.5) >= log_evidence_margin(intervals, margin=1.5) - 1e-9
    assert (
        log_evidence_within(changed, margin=3, history=HISTORY)
        <= log_evidence_within(intervals, margin=3, history=HISTORY) + 1e-9
    )


@given(small, small, ratios, st.floats(1, 3), counts(50))
def test_a_bad_outcome_of_the_baseline_is_no_evidence_against_the_canary(
    sizes: tuple[int, int], bad: tuple[int, int], ratio: float, margin: float, before: tuple[int, int]
) -> None:
    """Within an interval, one more bad outcome of the baseline never raises what a bet on a worse canary gains."""
    (n_c, n_b), (x_c, x_b) = sizes, (min(one, n) for one, n in zip(bad, sizes, strict=True))
    known = ArmCounts(bad=before[0], total=before[1])
    bets = worse_bets(Mixture(odds_ratios=(ratio,), weights=(1.0,)), margin=margin)
    if x_b == n_b:
        return
    less, more = (bets.of(interval(0, (x_c, n_c), (x_b + one, n_b)), known)[0] for one in (0, 1))
    assert more <= less + 1e-9


@given(counts(40), counts(40), ratios, counts(80))
def test_good_and_bad_exchange(
    canary: tuple[int, int], baseline: tuple[int, int], ratio: float, before: tuple[int, int]
) -> None:
    """A bet on odds of bad outcomes `ratio` times as high is one on odds of good outcomes that are as much lower."""
    (x_c, n_c), (x_b, n_b), (bad, known) = canary, baseline, before
    if known < n_b:
        return
    (one,) = evidence._block([ratio], 1.0)((n_c, x_c, n_b, x_b, known, bad))
    (other,) = evidence._block([1 / ratio], 1.0)((n_c, n_c - x_c, n_b, n_b - x_b, known, known - bad))
    assert one == pytest.approx(other, abs=1e-9)


@given(counts(40), counts(40), st.floats(1.1, 8), counts(80))
def test_ruling_out_is_the_margin_test_with_arms_exchanged(
    canary: tuple[int, int], baseline: tuple[int, int], margin: float, before: tuple[int, int]
) -> None:
    """What is bet on a canary within the effect is what the margin test bets on a baseline that is worse."""
    known = ArmCounts(bad=before[0], total=before[1])
    rates = margin / (1 + (margin - 1) * wilson(known.bad, known.total, z=3)[1])
    exponents = (1.0, 0.5, 1.5)
    exchanged = evidence._conditional([rates**exponent for exponent in exponents], 1 / rates)
    found = within_bets(margin).of(interval(0, canary, baseline), known)
    (x_c, n_c), (x_b, n_b) = canary, baseline
    assert found == pytest.approx(exchanged((n_b, x_b, n_c, x_c, 0, 0)), abs=1e-9)


@settings(max_examples=40)
@given(blocks, st.integers(0, 8))
def test_replay_to_the_last_digit(intervals: list[Interval], stop: int) -> None:
    """Evidence calculated again, and with later data, repeats every earlier point exactly."""
    bets = worse_bets(DEFAULT_MIXTURE)
    whole = path_of(with_before(intervals, HISTORY), bets, dispersion=1.7)
    part = path_of(with_before(intervals[:stop], HISTORY), bets, dispersion=1.7)
    assert whole[: len(part)] == part
    assert whole == path_of(with_before(intervals, HISTORY), bets, dispersion=1.7)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(1, 20), st.data())
def test_splitting_at_equal_shares_changes_nothing(parts: int, n_c: int, n_b: int, data: st.DataObject) -> None:
    """The margin test does not depend on how often one scrapes, where the split of traffic stays the same."""
    pairs = [((data.draw(st.integers(0, n_c)), n_c), (data.draw(st.integers(0, n_b)), n_b)) for _ in range(parts)]
    pieces = [interval(minute, *pair) for minute, pair in enumerate(pairs)]
    bad = [sum(pair[side][0] for pair in pairs) for side in (0, 1)]
    whole = [interval(parts, (bad[0], n_c * parts), (bad[1], n_b * parts))]
    assert log_evidence_margin(pieces, margin=1.4) == pytest.approx(log_evidence_margin(whole, margin=1.4), abs=1e-9)


def test_same_moment_does_not_inform_itself() -> None:
    """Two cohorts that report at one moment are both judged with what was known before it."""
    first, second = interval(1, (3, 50), (5, 450)), interval(1, (2, 200), (9, 200), cohort="7-1")
    judged = with_before([interval(0, (0, 50), (4, 450)), first, second], ArmCounts())
    assert [before for _, before in judged] == [ArmCounts(), ArmCounts(total=450, bad=4), ArmCounts(total=450, bad=4)]
    assert len(path_of(judged, worse_bets(DEFAULT_MIXTURE), dispersion=1)) == 2


def test_dispersion_divides_the_logs() -> None:
    """A single alternative's log evidence is divided by the dispersion, and nothing else changes."""
    one = Mixture(odds_ratios=(3,), weights=(1,))
    intervals = [interval(0, (9, 100), (20, 900)), interval(1, (8, 100), (22, 900))]
    assert log_evidence(intervals, odds_ratios=one, dispersion=4) * 4 == pytest.approx(
        log_evidence(intervals, odds_ratios=one)
    )


@given(st.floats(1.01, 1e6))
def test_named_mixture_is_one(effect: float) -> None:
    """Every named effect gives weights that sum to 1, with half of the stake on the effect."""
    mixture = centred_on(effect)
    assert math.fsum(mixture.weights) == pytest.approx(1)
    assert mixture.weights[mixture.odds_ratios.index(effect)] == 0.5


def test_wilson_limits() -> None:
    """Wilson's limits agree with scipy's, and stay within 0 and 1."""
    from scipy.stats import binomtest

    for bad, total in ((0, 10), (3, 17), (10, 10), (81, 263)):
        expected = binomtest(bad, total).proportion_ci(0.95, method="wilson")
        assert wilson(bad, total, z=1.959963984540054) == pytest.approx((expected.low, expected.high))
    assert wilson(0, 0, z=2) == (0, 1)


def test_impossible_input_is_refused() -> None:
    """Impossible counts, orders, margins, mixtures and dispersions are told, not calculated with."""
    good = interval(1, (0, 5), (0, 5))
    with pytest.raises(InvalidInput, match="6 bad of 5") as caught:
        log_evidence([interval(0, (6, 5), (-1, 5))])
    assert len(caught.value.problems) == 2
    for call in (
        lambda: log_evidence([good, interval(0, (0, 5), (0, 5))]),
        lambda: log_evidence([good], dispersion=0.9),
        lambda: log_evidence([good], dispersion=math.nan),
        lambda: log_evidence_margin([good], margin=0.5),
        lambda: log_evidence_within([good], margin=1),
        lambda: centred_on(1),
        lambda: centred_on(math.nan),
        lambda: Mixture(odds_ratios=(2, 3), weights=(0.5, 0.6)),
        lambda: Mixture(odds_ratios=(1,), weights=(1,)),
        lambda: Mixture(odds_ratios=(), weights=()),
    ):
        with pytest.raises(InvalidInput):
            call()
