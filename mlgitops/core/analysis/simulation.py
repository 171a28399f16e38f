"""What a plan would do with a model's traffic: simulated rollouts, judged by the very code that judges real ones."""

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.foresight import DEFAULT_RATES
from mlgitops.core.analysis.outcome import Outcome
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import MetricVerdict, begin, conclude, judge_running
from mlgitops.core.configuration import MetricKind, Plan, Step
from mlgitops.core.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from numpy.random import Generator

LOOKS: Final = 8
"""Looks in the time of a step. More of them see a harm little sooner, and cost more."""
PATIENCE: Final = 1.4
"""While a step waits for data, each look is so many times as long after the last as that one was."""
CORRELATION: Final = 0.7
"""Of `Traffic.noise`, from one minute to the next."""
SLOWER: Final = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Shares of requests that five bucket bounds leave out, as multiples of the rate of slow requests."""
LARGEST_EFFECT: Final = 1000.0
"""Odds ratio that a plan can name at most."""
LATE_LOOKS: Final = 5
"""Looks for labels after the last step, each a mean delay after the one before: all but 1 in 150 have come by then."""
_START: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Fate(enum.StrEnum):
    """How a rollout ends; published, so a name never changes its meaning."""

    ROLLED_BACK = "rolledBack"
    """The evidence against the canary reached its threshold."""
    PROMOTED = "promoted"
    """Every step passed, and what came late spoke not against it."""
    HELD = "held"
    """A step had not enough data when its extension was over: a person is asked."""
    EXPIRED = "expired"
    """It was under way for longer than the plan's maximum age, and was taken back for that."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What users do, and what the baseline makes of it."""

    requests_per_second: float
    """Of both arms together."""
    rates: Mapping[MetricKind, float] = field(default_factory=lambda: dict(DEFAULT_RATES))
    """By metric, the baseline's share of bad outcomes."""
    labelled_share: float = 1.0
    """Share of the requests whose label comes, ever."""
    label_delay_seconds: float = 0.0
    """Mean time that a label takes, exponential; 0 for labels that are there at once."""
    noise: float = 0.0
    """Coefficient of variation of each arm's rates, correlated from minute to minute by `CORRELATION`."""

    def __post_init__(self) -> None:
        wrong = [
            (f"rates.{kind}", rate, "a share between 0 and 1") for kind, rate in self.rates.items() if not 0 < rate < 1
        ]
        if not 0 < self.requests_per_second <= 1e7:
            wrong.append(("requestsPerSecond", self.requests_per_second, "more than 0, and at most 10,000,000"))
        if not 0 < self.labelled_share <= 1:
            wrong.append(("labelledShare", self.labelled_share, "a share of more than 0"))
        if not 0 <= self.label_delay_seconds < 1e9:
            wrong.append(("labelDelaySeconds", self.label_delay_seconds, "a time"))
        if not 0 <= self.noise <= 2:
            wrong.append(("noise", self.noise, "a coefficient of variation from 0 to 2"))
        if wrong:
            problems = [Problem(message=f"{value} is not {wanted}", pointer=name) for name, value, wanted in wrong]
            raise InvalidInput(problems)


@dataclass(frozen=True, kw_only=True)
class Harm:
    """In what a canary is worse than its baseline."""

    kind: MetricKind | None = None
    """The metric; None for a canary that is no worse in any."""
    effect: float = 1.0
    """Odds ratio of bad outcomes in that metric, canary over baseline."""

    def rate(self, kind: MetricKind, baseline_rate: float) -> float:
        """Return the canary's share of bad outcomes in a metric."""
        if kind != self.kind:
            return baseline_rate
        return self.effect * baseline_rate / (1 - baseline_rate + self.effect * baseline_rate)


@dataclass(frozen=True, kw_only=True)
class Course:
    """One simulated rollout."""

    fate: Fate
    """How it ended."""
    seconds: float
    """When, since the first step began."""
    step: int
    """In which step, counted from 1; one more than there are where labels came late."""
    canary_requests: int
    """Requests that the canary had answered by then."""
    extra_bad: float
    """Bad outcomes that these would not have had with the baseline, on average."""


def simulate(plan: Plan, traffic: Traffic, harm: Harm, *, runs: int, seed: int) -> tuple[Course, ...]:
    """Let rollouts of a canary be judged by a plan.

    Args:
        plan: The plan; its dispersion is used as a rollout would use it. How much of the traffic a slice has is not
            known here, so each is taken to have all: in truth it needs longer.
        traffic: What users do.
        harm: In what the canary is worse.
        runs: How many rollouts, at least 1.
        seed: The same seed gives the same rollouts; one rollout does not depend on how many there are.

    Raises:
        InvalidInput: Fewer than one run, or an odds ratio below 1 or above `LARGEST_EFFECT`.
    """
    import numpy as np

    if runs < 1 or not 1 <= harm.effect <= LARGEST_EFFECT:
        raise InvalidInput(f"{runs} rollouts of a canary with an odds ratio of {harm.effect:g} cannot be simulated")
    plan = replace(plan, metrics=tuple(replace(rule, slice=None) for rule in plan.metrics))
    dice = (np.random.Generator(np.random.PCG64(one)) for one in np.random.SeedSequence(seed).spawn(runs))
    return tuple(_Rollout(plan, traffic, harm, one).run() for one in dice)


class _Users:
    """What both arms of a rollout were asked so far, drawn request by request."""

    def __init__(self, plan: Plan, traffic: Traffic, harm: Harm, dice: "Generator") -> None:
        self.traffic, self.dice = traffic, dice
        self.kinds = {rule.kind for rule in plan.metrics}
        known = {**DEFAULT_RATES, **traffic.rates}
        self.rates = {
            arm: {kind: harm.rate(kind, known[kind]) if arm is Arm.CANARY else known[kind] for kind in known}
            for arm in Arm
        }
        self.noise = {arm: float(dice.normal()) for arm in Arm}
        self.counts: dict[tuple[str, Arm], list[int]] = {}
        self.slower: dict[tuple[str, Arm], list[int]] = {}
        self.waiting: dict[tuple[str, Arm], list[int]] = {}

    def requests(self, cohort: str, weight: float, seconds: float) -> None:
        """Let so many seconds of requests be answered, a share of them by the canary."""
        total = int(self.dice.poisson(self.traffic.requests_per_second * seconds))
        of_canary = int(self.dice.binomial(total, weight))
        for arm, count in ((Arm.CANARY, of_canary), (Arm.BASELINE, total - of_canary)):
            counts = self.counts.setdefault((cohort, arm), [0, 0, 0, 0])
            rates = self._rates(arm, seconds)
            counts[0] += count
            counts[1] += int(self.dice.binomial(count, rates["errors"])) if "errors" in self.kinds else 0
            if "latency" in self.kinds:
                self._answer_slowly(cohort, arm, count, rates["latency"])
            if "labels" in self.kinds:
                labelled = int(self.dice.binomial(count, self.traffic.labelled_share))
                waiting = self.waiting.setdefault((cohort, arm), [0, 0])
                wrong = int(self.dice.binomial(labelled, rates["labels"]))
                waiting[0] += labelled - wrong
                waiting[1] += wrong

    def labels(self, seconds: float) -> None:
        """Let labels come for so many seconds."""
        delay = self.traffic.label_delay_seconds
        share = -math.expm1(-seconds / delay) if delay else 1.0
        for key, waiting in self.waiting.items():
            right, wrong = (int(self.dice.binomial(count, share)) for count in waiting)
            self.waiting[key] = [waiting[0] - right, waiting[1] - wrong]
            self.counts[key][2] += right + wrong
            self.counts[key][3] += wrong

    def samples(self, seconds: float) -> Iterator[Sample]:
        """Yield the counts of every cohort as of so many seconds since the start."""
        at = _START + timedelta(seconds=seconds)
        for (cohort, arm), (total, failed, labelled, incorrect) in self.counts.items():
            slower = self.slower.get((cohort, arm), ())
            yield Sample(
                at=at,
                cohort=cohort,
                arm=arm,
                total=total,
                failed=failed,
                latency=tuple([(0.1 * 2**place, total - count) for place, count in enumerate(slower)]),
                labelled=labelled,
                incorrect=incorrect,
            )

    def _rates(self, arm: Arm, seconds: float) -> Mapping[MetricKind, float]:
        rates, noise = self.rates[arm], self.traffic.noise
        if not noise:
            return rates
        kept = CORRELATION ** (seconds / 60)
        self.noise[arm] = kept * self.noise[arm] + math.sqrt(1 - kept * kept) * float(self.dice.normal())
        spread = math.sqrt(math.log1p(noise * noise))
        factor = math.exp(spread * self.noise[arm] - spread * spread / 2)
        return {kind: min(0.95, rate * factor) for kind, rate in rates.items()}

    def _answer_slowly(self, cohort: str, arm: Arm, count: int, rate: float) -> None:
        slower, left, before = self.slower.setdefault((cohort, arm), [0] * len(SLOWER)), count, 1.0
        for place, factor in enumerate(SLOWER):
            share = min(before, factor * rate)
            left = int(self.dice.binomial(left, share / before))
            slower[place] += left
            before = share


class _Rollout:
    """One rollout under way."""

    def __init__(self, plan: Plan, traffic: Traffic, harm: Harm, dice: "Generator") -> None:
        self.plan, self.traffic, self.harm = plan, traffic, harm
        self.users = _Users(plan, traffic, harm, dice)
        self.running: Running = begin(plan.metrics, dispersion=plan.dispersion)
        self.seconds, self.answered = 0.0, [(0.0, 0)]

    def run(self) -> Course:
        """Go through the steps as a reconcile would."""
        for number, step in enumerate(self.plan.judged_steps, start=1):
            ended = self._step(number, step)
            if ended is not None:
                return ended
        return self._late_labels()

    def _step(self, number: int, step: Step) -> Course | None:
        """Go through one step; returns the end where it does not pass."""
        wait = self.plan.extend_seconds if self.plan.insufficient_data == "wait" else 0.0
        early = self.plan.early and number <= len(self.plan.steps)  # a probation is not cut short
        began, cohort, between = self.seconds, f"1-{number}", step.seconds / LOOKS
        while True:
            in_time = self.seconds - began < step.seconds * (1 - 1e-9)
            looks = 1 if early or not in_time else LOOKS
            metrics = self._look(cohort, step.weight_percent / 100, between, looks)
            elapsed = self.seconds - began
            verdict = conclude(
                metrics,
                alpha=self.plan.alpha,
                cohort=cohort,
                elapsed_seconds=elapsed * (1 + 1e-9),
                step_seconds=step.seconds,
                early=early,
            )
            if verdict.outcome is Outcome.FAILED:
                return self._end(Fate.ROLLED_BACK, number, _crossed(metrics))
            if self.seconds > self.plan.maximum_age_seconds:
                return self._end(Fate.EXPIRED, number, self.plan.maximum_age_seconds)
            if verdict.outcome is Outcome.PASSED:
                return None
            if elapsed >= (step.seconds + wait) * (1 - 1e-9):
                return self._end(Fate.HELD, number, self.seconds)
            if elapsed >= step.seconds * (1 - 1e-9):
                between = min(between * PATIENCE, step.seconds + wait - elapsed)

    def _late_labels(self) -> Course:
        """Let the labels of the judged steps come while everything is answered by the new release already."""
        promoted, last = self.seconds, len(self.plan.judged_steps)
        awaited = self.traffic.label_delay_seconds and "labels" in self.users.kinds
        if not awaited or self.plan.hold_back:  # what was held back showed what comes late
            return self._end(Fate.PROMOTED, last, promoted)
        for _ in range(LATE_LOOKS):
            metrics = self._look(f"1-{last}", None, self.traffic.label_delay_seconds, 1)
            if any(one.outcome is Outcome.FAILED for one in metrics):
                return self._end(Fate.ROLLED_BACK, last + 1, _crossed(metrics))
        return self._end(Fate.PROMOTED, last, promoted)

    def _look(self, cohort: str, weight: float | None, between: float, looks: int) -> tuple[MetricVerdict, ...]:
        """Let time pass, a sample at each look, and judge at the last; without a weight nobody's requests count."""
        samples: list[Sample] = []
        for _ in range(looks):
            self.seconds += between
            self.users.labels(between)
            if weight is not None:
                self.users.requests(cohort, weight, between)
            if not self.traffic.label_delay_seconds:
                self.users.labels(between)
            samples += self.users.samples(self.seconds)
            answered = sum(counts[0] for (_, arm), counts in self.users.counts.items() if arm is Arm.CANARY)
            everything = round(self.traffic.requests_per_second * between) if weight is None else 0
            before = self.answered[-1][1] if weight is None else answered
            self.answered.append((self.seconds, before + everything))
        self.running = self.running.after(samples)
        return judge_running(self.running, alpha=self.plan.alpha, cohort=cohort)

    def _end(self, fate: Fate, step: int, seconds: float) -> Course:
        answered = next((count for at, count in self.answered if at >= seconds * (1 - 1e-9)), self.answered[-1][1])
        kind = self.harm.kind
        rate = {**DEFAULT_RATES, **self.traffic.rates}[kind] if kind else 0.0
        more = self.harm.rate(kind, rate) - rate if kind else 0.0
        return Course(fate=fate, seconds=seconds, step=step, canary_requests=answered, extra_bad=more * answered)


def _crossed(metrics: Sequence[MetricVerdict]) -> float:
    """Return when the evidence of the first metric reached its threshold, in seconds since the start."""
    crossings = [
        next(at for at, log in one.course if log >= one.threshold - 1e-9)
        for one in metrics
        if one.outcome is Outcome.FAILED
    ]
    return (min(crossings) - _START).total_seconds()
