"""Evidence that a canary is worse, or not much worse, than its concurrent baseline: e-processes over intervals.

An e-value is what a bet against a hypothesis has made of a stake of 1. While the hypothesis holds, no way of betting
gains on average, so the chance of *ever* reaching 1/α is at most α (Ville 1939), however often one looks. Everything
here is in natural logarithms; products over intervals become sums, and counts of 10⁹ requests lose no digit that
matters (the four terms of a block nearly cancel, so they are formed without subtracting rates and added exactly).

Sources: Turner, Ly & Grünwald, *Generic e-variables for exact sequential k-sample tests*, JSPI 2024 (blocks); Lindon &
Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022 (margin).
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mlgitops.core.analysis.counts import ArmCounts, Interval
from mlgitops.core.errors import InvalidInput, Problem

Path = list[tuple[datetime, float]]
"""(moment, ln E of everything known by then), ascending in time."""
Judged = tuple[Interval, ArmCounts]
"""An interval, and what the baseline did strictly before it, history included."""
Counts = tuple[int, int, int, int, int, int]
"""The canary's requests and how many of them were bad, the baseline's, and the baseline's from before the interval."""
Gains = Callable[[Counts], list[float]]
"""What an interval makes of a stake of 1, in logs, for several bets that share most of their arithmetic.

Plain numbers, because a whole rollout is replayed through this.
"""


@dataclass(frozen=True, kw_only=True)
class Bets:
    """Bets that are placed side by side."""

    weights: tuple[float, ...]
    """Share of the stake that each gets; together 1."""
    gains: Gains
    """What they make of an interval, in the order of the weights."""

    @functools.cached_property
    def starts(self) -> tuple[float, ...]:
        """Logs of the weights."""
        return tuple(math.log(weight) for weight in self.weights)

    def of(self, interval: Interval, before: ArmCounts) -> list[float]:
        """Return what the bets make of an interval, given the baseline before it."""
        canary, baseline = interval.canary, interval.baseline
        return self.gains((canary.total, canary.bad, baseline.total, baseline.bad, before.total, before.bad))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Alternatives that are bet on side by side, and the share of the stake that each gets."""

    odds_ratios: tuple[float, ...]
    """Odds of a bad outcome, canary over baseline; each more than 1."""
    weights: tuple[float, ...]
    """Share of each; positive, together 1."""

    def __post_init__(self) -> None:
        problems = []
        if len(self.odds_ratios) != len(self.weights) or not self.weights:
            problems.append("odds ratios and weights are not as many as each other, or none")
        if not all(1 < ratio < math.inf for ratio in self.odds_ratios):
            problems.append("an odds ratio is not more than 1 and finite")
        if not all(0 < weight <= 1 for weight in self.weights) or abs(math.fsum(self.weights) - 1) > 1e-9:
            problems.append("the weights are not positive with sum 1")
        if problems:
            raise InvalidInput([Problem(message=message, pointer="mixture") for message in problems])


DEFAULT_MIXTURE = Mixture(odds_ratios=(1.25, 1.5, 2, 3, 5, 10), weights=(0.35, 0.25, 0.15, 0.10, 0.10, 0.05))
"""For when nobody named an effect: small regressions are likelier than gross ones."""

NAMED_WEIGHT = 0.5
"""Share of the stake on the effect that was named, in `centred_on`."""


def centred_on(effect: float) -> Mixture:
    """Return the mixture for a named effect.

    Half of the stake is on the effect (an odds ratio), a fifth on its root and its square each, and a tenth on
    the default mixture, so that a regression of another size is seen too, a little later.

    Raises:
        InvalidInput: The effect is not more than 1, or too large to be squared.
    """
    if not 1 < effect < 1e150:
        raise InvalidInput(f"the effect is {effect}, not an odds ratio of more than 1")
    rest = DEFAULT_MIXTURE
    return Mixture(
        odds_ratios=(effect, math.sqrt(effect), effect**2, *rest.odds_ratios),
        weights=(NAMED_WEIGHT, 0.2, 0.2, *(0.1 * weight for weight in rest.weights)),
    )


def log_evidence(
    intervals: Sequence[Interval],
    *,
    odds_ratios: Mixture = DEFAULT_MIXTURE,
    dispersion: float = 1.0,
    history: ArmCounts = ArmCounts(),  # noqa: B008 - frozen, so shared safely
) -> float:
    """Return the log of the evidence that the canary is worse than its concurrent baseline.

    Args:
        intervals: Bad and total requests of both arms, per interval and cohort, sorted by their ends.
        odds_ratios: Alternatives (canary odds / baseline odds) and their weights.
        dispersion: Long-run variance over binomial variance, ≥ 1, from A/A history.
        history: What is known of the baseline from before; it shapes the bets, and is never compared with.

    Returns:
        ln E, dimensionless; 0 with no data. Reject "no worse" at level α when it *ever* reached ln(1/α); see
        `path_of` for its course.

    Raises:
        InvalidInput: A count is negative, bad exceeds total, the order is wrong, or dispersion is below 1.
    """
    return last(path_of(with_before(intervals, history), worse_bets(odds_ratios), dispersion=dispersion))


def log_evidence_margin(
    intervals: Sequence[Interval],
    *,
    margin: float,
    odds_ratios: Mixture = DEFAULT_MIXTURE,
    dispersion: float = 1.0,
) -> float:
    """Return the log of the evidence that the canary is worse than `margin` times its baseline's odds.

    The conditional form of Lindon & Malek. It tests the ratio of *rates*, for any two rates: that ratio is never
    above the odds ratio where that exceeds 1, so a canary whose odds ratio is within the margin is safe too.

    Args:
        intervals: As for `log_evidence`.
        margin: Tolerated ratio, at least 1.
        odds_ratios: Alternatives as multiples of the margin.
        dispersion: As for `log_evidence`.

    Returns:
        ln E; 0 with no data.

    Raises:
        InvalidInput: As for `log_evidence`, or the margin is below 1.
    """
    bets = worse_bets(odds_ratios, margin=margin)
    return last(path_of(with_before(intervals, ArmCounts()), bets, dispersion=dispersion))


def log_evidence_within(
    intervals: Sequence[Interval],
    *,
    margin: float,
    dispersion: float = 1.0,
    history: ArmCounts = ArmCounts(),  # noqa: B008 - frozen, so shared safely
) -> float:
    """Return the log of the evidence that the canary's odds are *below* `margin` times its baseline's.

    The margin test reversed: it rejects "the canary is at least `margin` times worse" when it reaches ln(1/α).
    Because the conditional form tests ratios of rates, the margin is first turned into the smallest ratio of rates
    that it allows, for a baseline rate of at most its upper limit (Wilson, z = 3) from before the interval.

    Args:
        intervals: As for `log_evidence`.
        margin: Odds ratio to be ruled out, more than 1.
        dispersion: As for `log_evidence`.
        history: As for `log_evidence`; without any, an interval counts from the second on.

    Returns:
        ln E; 0 with no data.

    Raises:
        InvalidInput: As for `log_evidence`, or the margin is not more than 1.
    """
    return last(path_of(with_before(intervals, history), within_bets(margin), dispersion=dispersion))


@functools.lru_cache(maxsize=256)
def worse_bets(odds_ratios: Mixture, *, margin: float = 1.0) -> Bets:
    """Return weighted bets against "the canary's odds are at most `margin` times its baseline's"."""
    if not 1 <= margin < math.inf:
        raise InvalidInput(f"the margin is {margin}, not an odds ratio of at least 1")
    form = _block if margin == 1 else _conditional
    return Bets(weights=odds_ratios.weights, gains=form(odds_ratios.odds_ratios, margin))


@functools.lru_cache(maxsize=256)
def within_bets(margin: float) -> Bets:
    """Return weighted bets against "the canary's odds are at least `margin` times its baseline's".

    Most is bet on a canary that equals its baseline, the rest on one half-way to the margin and on a better one.
    """
    if not 1 < margin < math.inf:
        raise InvalidInput(f"the margin to rule out is {margin}, not an odds ratio of more than 1")
    return Bets(weights=(0.6, 0.2, 0.2), gains=_reversed((1.0, 0.5, 1.5), margin))


def _block(ratios: Sequence[float], _: float) -> Gains:
    """Bet in a block of both arms that the canary's odds are `ratio` times the baseline's.

    With n requests, x of them bad, in arms c and b: θ_b is Jeffreys' estimate from before the interval, θ_c the rate
    at `ratio` times its odds, θ_0 their mean weighted by requests. The likelihood of (θ_c, θ_b) over that of θ_0 has
    at most mean 1 for every common rate. While fewer baseline requests were seen before than come now, θ_b would be a
    guess that can cost more than the whole interval is worth, and the conditional bet, which needs none, takes its
    place; the two are the same in the limit of rare events. The choice looks at numbers of requests only.

    With d = θ_b·(r − 1), s the canary's share of requests and v = s·d/(1 + d), the log of the definition is
    x_c·ln r − n_c·ln(1 + d) − (good outcomes)·ln(1 − v) − (bad outcomes)·ln(1 + v·(1 − θ_b)/θ_b): three logarithms of
    numbers near 1, each taken without cancellation, where the definition has four quotients of rates.
    """
    unknown = _conditional(ratios, 1.0)
    constants = [(ratio - 1, math.log(ratio)) for ratio in ratios]
    above_one = [more for more, _ in constants]
    log1p = math.log1p

    def gains(counts: Counts) -> list[float]:
        n_c, x_c, n_b, x_b, known, known_bad = counts
        if known < n_b or not n_c or not n_b:
            return unknown(counts)
        requests, bad = n_c + n_b, x_c + x_b
        rate, share = (known_bad + 0.5) / (known + 1), n_c / requests
        if not bad:
            return [-n_c * log1p(d := rate * more) - requests * log1p(-share * d / (1 + d)) for more in above_one]
        fine, odds = requests - bad, (known - known_bad + 0.5) / (known_bad + 0.5)
        return [
            x_c * log_ratio
            - n_c * log1p(d := rate * more)
            - fine * log1p(-(v := share * d / (1 + d)))
            - bad * log1p(v * odds)
            for more, log_ratio in constants
        ]

    return gains


def _conditional(ratios: Sequence[float], margin: float) -> Gains:
    """Bet, given how many were bad in all, that the canary's rate is `ratio` times `margin` times the baseline's.

    For rates p_c ≤ margin·p_b the mean is at most exp(p_b·(c(n_c·m·r + n_b) − n_c·m − n_b)) = 1, with c the factor per
    bad outcome: exact for two binomials, not only for rare events.
    """
    constants = [(ratio - 1, math.log(ratio)) for ratio in ratios]
    nothing, log1p = [0.0] * len(ratios), math.log1p

    def gains(counts: Counts) -> list[float]:
        n_c, x_c, n_b, x_b, _, _ = counts
        bad = x_c + x_b
        if not bad or not n_c or not n_b:
            return nothing
        weighted = n_c * margin
        share = weighted / (weighted + n_b)
        return [x_c * log_ratio - bad * log1p(share * more) for more, log_ratio in constants]

    return gains


def _reversed(exponents: Sequence[float], margin: float) -> Gains:
    """Bet that the baseline's rate is more than 1/`margin` of the canary's: the conditional bet, arms exchanged."""
    nothing = [0.0] * len(exponents)

    def gains(counts: Counts) -> list[float]:
        n_c, x_c, n_b, x_b, known, known_bad = counts
        bad = x_c + x_b
        if not bad or not n_c or not n_b:
            return nothing
        highest = wilson(known_bad, known, z=3.0)[1]
        rates = margin / (1 + (margin - 1) * highest)  # the smallest ratio of rates that the margin allows
        weighted, log_rates = n_b / rates, math.log(rates)
        share = weighted / (weighted + n_c)
        return [x_b * exponent * log_rates - bad * math.log1p(share * (rates**exponent - 1)) for exponent in exponents]

    return gains


def wilson(bad: float, total: float, *, z: float) -> tuple[float, float]:
    """Return Wilson's score limits of a rate; (0, 1) without data.

    Args:
        bad: Bad outcomes; a fraction where counts were divided by the dispersion.
        total: All outcomes.
        z: Normal quantile, 1.96 for two-sided 95 %.
    """
    if total <= 0:
        return 0.0, 1.0
    rate, spread = bad / total, z * z / total
    middle = rate + spread / 2
    half = z * math.sqrt(max(0.0, rate * (1 - rate)) / total + spread / total / 4)
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return (0.0 if bad <= 0 else max(0.0, low)), (1.0 if bad >= total else min(1.0, high))


def with_before(intervals: Sequence[Interval], history: ArmCounts) -> list[Judged]:
    """Pair each interval with the baseline's counts from strictly before its end, history included.

    Raises:
        InvalidInput: Counts are negative, bad exceeds total, or the intervals are not sorted by their ends.
    """
    problems = [problem for interval in intervals for problem in _problems(interval)]
    if any(earlier.at > later.at for earlier, later in itertools.pairwise(intervals)):
        problems.append(Problem(message="intervals are not sorted by their ends", pointer="intervals"))
    if problems:
        raise InvalidInput(problems)
    judged: list[Judged] = []
    before = history
    for _, group in itertools.groupby(intervals, key=lambda interval: interval.at):
        together = list(group)
        judged += [(interval, before) for interval in together]
        before = sum((interval.baseline for interval in together), before)
    return judged


def path_of(judged: Sequence[Judged], bets: Bets, *, dispersion: float) -> Path:
    """Return ln E after each moment at which something became known.

    Args:
        judged: Intervals in order, each with the baseline before it.
        bets: Weighted bets; the weights sum to 1.
        dispersion: Divides every interval's log, at least 1.

    Returns:
        The path; a longer list of intervals continues the path of a shorter one, digit for digit.

    Raises:
        InvalidInput: The dispersion is below 1 or not finite.
    """
    if not 1 <= dispersion < math.inf:
        raise InvalidInput(f"the dispersion is {dispersion}, not a finite number of at least 1")
    sums, path = [0.0] * len(bets.starts), Path()
    for at, group in itertools.groupby(judged, key=lambda pair: pair[0].at):
        for interval, before in group:
            sums = list(map(operator.add, sums, bets.of(interval, before)))
        path.append((at, log_mixture(bets.starts, sums, dispersion)))
    return path


def log_mixture(starts: Sequence[float], sums: Sequence[float], dispersion: float) -> float:
    """Return ln E of bets with these logs of weights and of gains; exactly 0 while no bet gained or lost."""
    if not any(sums):
        return 0.0
    return log_sum_exp([start + gained / dispersion for start, gained in zip(starts, sums, strict=True)])


def log_sum_exp(logs: Sequence[float]) -> float:
    """Return ln Σ exp(log) without overflow."""
    highest = max(logs)
    return highest + math.log(math.fsum([math.exp(log - highest) for log in logs]))


def highest(path: Path) -> float:
    """Return the highest ln E of a path; 0, where every path starts, when it never rose above."""
    return max([0.0, *[value for _, value in path]])


def last(path: Path) -> float:
    """Return ln E at the end of a path; 0 for an empty one."""
    return path[-1][1] if path else 0.0


def _problems(interval: Interval) -> list[Problem]:
    return [
        Problem(message=f"{counts.bad} bad of {counts.total} requests cannot be", pointer=f"{interval.cohort}.{name}")
        for name, counts in (("canary", interval.canary), ("baseline", interval.baseline))
        if not 0 <= counts.bad <= counts.total
    ]
