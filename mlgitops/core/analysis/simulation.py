"""What a plan would do with a model's traffic: simulated rollouts, judged by the very code that judges real ones."""

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mlgitops.core.analysis.counts import Arm, Sample, SliceCounts
from mlgitops.core.analysis.foresight import DEFAULT_RATES
from mlgitops.core.analysis.noise import Noise
from mlgitops.core.analysis.outcome import Outcome
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import MetricVerdict, begin, conclude, judge_running
from mlgitops.core.configuration import MetricKind, Plan, Step
from mlgitops.core.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from numpy.random import Generator

LOOKS: Final = 12
"""Looks in the time of a step: a harm is found by half of such a part later than an engine that looks all the time."""
PATIENCE: Final = 1.4
"""While a step waits for data, each look is so many times as long after the last as that one was."""
CORRELATION: Final = 0.7
"""Of `Traffic.noise`, from one minute to the next."""
SLOWER: Final = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Shares of requests that five bucket bounds leave out, as multiples of the rate of slow requests."""
LARGEST_EFFECT: Final = 1000.0
"""Odds ratio that a plan can name at most."""
LATE_LOOKS: Final = 5
"""Looks for labels after the last step, each a mean delay after the one before: all but 1 in 150 have come by then.

Where probation is over sooner, they are spread over its time.
"""
_LARGEST_URN: Final = 1_000_000_000
"""Requests from which numpy draws no hypergeometric number; a binomial one is as good there."""
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
    slices: Mapping[str, float] = field(default_factory=dict)
    """By slice, its share of the requests; a request's slices are independent of each other."""
    noise: float = 0.0
    """Coefficient of variation of each arm's rates, correlated from minute to minute by `CORRELATION`."""

    def __post_init__(self) -> None:
        wrong = [
            (f"rates.{kind}", rate, "a share between 0 and 1") for kind, rate in self.rates.items() if not 0 < rate < 1
        ]
        wrong += [
            (f"slices.{name}", share, "a share of more than 0")
            for name, share in self.slices.items()
            if not 0 < share <= 1
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
    slice: str | None = None
    """Only the requests of this slice meet it; None for all requests."""
    effect: float = 1.0
    """Odds ratio of bad outcomes in that metric, canary over baseline."""

    def rate(self, kind: MetricKind, baseline_rate: float) -> float:
        """Return the canary's share of bad outcomes in a metric, where the harm is met."""
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


def simulate(
    plan: Plan,
    traffic: Traffic,
    harm: Harm,
    *,
    runs: int,
    seed: int,
    noises: Mapping[str, Noise] = MappingProxyType({}),
    probation_seconds: float = 86_400.0,
    looks: int = LOOKS,
) -> tuple[Course, ...]:
    """Let rollouts of a canary be judged by a plan.

    Args:
        plan: The plan; its dispersion is used as a rollout would use it.
        traffic: What users do.
        harm: In what the canary is worse.
        runs: How many rollouts, at least 1.
        seed: The same seed gives the same rollouts; one rollout does not depend on how many there are.
        noises: By the metrics' names, the noise a rollout would be judged by; else the plan's word, or the default.
        probation_seconds: How long after the last step late labels still take a release back.
        looks: In the time of each step.

    Raises:
        InvalidInput: Fewer than one run, a slice whose share of the requests `traffic` does not say, or an odds
            ratio below 1 or above `LARGEST_EFFECT`.
    """
    import numpy as np

    if runs < 1 or not 1 <= harm.effect <= LARGEST_EFFECT:
        raise InvalidInput(f"{runs} rollouts of a canary with an odds ratio of {harm.effect:g} cannot be simulated")
    unknown = {rule.slice for rule in plan.metrics if rule.slice is not None} - traffic.slices.keys()
    if unknown:
        raise InvalidInput(f"nothing says what share of the requests belongs to {', '.join(sorted(unknown))}")
    begun = begin(plan.metrics, dispersion=plan.dispersion, noises=noises)
    dice = (np.random.Generator(np.random.PCG64(one)) for one in np.random.SeedSequence(seed).spawn(runs))
    return tuple(
        _Rollout(plan, begun, _Users(plan, traffic, harm, one), probation_seconds, looks).run() for one in dice
    )


class _Users:
    """What both arms of a rollout were asked so far, drawn request by request."""

    def __init__(self, plan: Plan, traffic: Traffic, harm: Harm, dice: "Generator") -> None:
        self.traffic, self.harm, self.dice = traffic, harm, dice
        self.kinds = {rule.kind for rule in plan.metrics}
        self.slices = {rule.slice: traffic.slices[rule.slice] for rule in plan.metrics if rule.slice is not None}
        self.baseline = {**DEFAULT_RATES, **traffic.rates}
        self.worse = {kind: harm.rate(kind, rate) for kind, rate in self.baseline.items()}
        self.noise = {arm: float(dice.normal()) for arm in Arm}
        self.counts: dict[tuple[str, Arm], dict[str | None, _Counts]] = {}

    @property
    def of_canary(self) -> int:
        """Requests that the canary answered."""
        return sum(counts[None].total for (_, arm), counts in self.counts.items() if arm is Arm.CANARY)

    def requests(self, cohort: str, weight: float, seconds: float) -> None:
        """Let so many seconds of requests be answered, a share of them by the canary."""
        total = int(self.dice.poisson(self.traffic.requests_per_second * seconds))
        of_canary = int(self.dice.binomial(total, weight))
        for arm, count in ((Arm.CANARY, of_canary), (Arm.BASELINE, total - of_canary)):
            known = self.counts.setdefault((cohort, arm), {name: _Counts() for name in (None, *self.slices)})
            factor = self._swing(arm, seconds)
            worse = arm is Arm.CANARY
            inside = self._among(count) if worse and self.harm.slice in self.slices else 0
            part = self._answers(inside, factor, worse=True)
            whole = self._answers(count - inside, factor, worse=worse and self.harm.slice is None)
            whole.add(part)
            known[None].add(whole)
            for name, share in self.slices.items():
                harmed = worse and name == self.harm.slice
                known[name].add(part if harmed else self._of_slice(whole, share))

    def labels(self, seconds: float) -> None:
        """Let labels come for so many seconds."""
        delay = self.traffic.label_delay_seconds
        share = -math.expm1(-seconds / delay) if delay else 1.0
        for known in self.counts.values():
            whole = known[None]
            right, wrong = (int(self.dice.binomial(count, share)) for count in (whole.right, whole.wrong))
            for name in self.slices:
                part = known[name]
                part.label(
                    self._drawn(right, whole.right, part.right),
                    self._drawn(wrong, whole.wrong, part.wrong),
                )
            whole.label(right, wrong)

    def samples(self, seconds: float) -> Iterator[Sample]:
        """Yield the counts of every cohort as of so many seconds since the start."""
        at = _START + timedelta(seconds=seconds)
        for (cohort, arm), known in self.counts.items():
            whole = known[None]
            yield Sample(
                at=at,
                cohort=cohort,
                arm=arm,
                total=whole.total,
                failed=whole.failed,
                latency=whole.latency,
                labelled=whole.labelled,
                incorrect=whole.incorrect,
                slices=tuple(
                    SliceCounts(
                        name=name,
                        total=known[name].total,
                        failed=known[name].failed,
                        latency=known[name].latency,
                        labelled=known[name].labelled,
                        incorrect=known[name].incorrect,
                    )
                    for name in self.slices
                ),
            )

    def _swing(self, arm: Arm, seconds: float) -> float:
        """Return by what an arm's rates are multiplied for the next so many seconds."""
        noise = self.traffic.noise
        if not noise:
            return 1.0
        kept = CORRELATION ** (seconds / 60)
        self.noise[arm] = kept * self.noise[arm] + math.sqrt(1 - kept * kept) * float(self.dice.normal())
        spread = math.sqrt(math.log1p(noise * noise))
        return math.exp(spread * self.noise[arm] - spread * spread / 2)

    def _among(self, count: int) -> int:
        """Return how many of the canary's requests belong to the slice that is harmed."""
        return int(self.dice.binomial(count, self.slices[self.harm.slice or ""]))

    def _answers(self, count: int, factor: float, *, worse: bool) -> "_Counts":
        """Answer requests; those that fail get no label, as they have no prediction."""
        found = _Counts(total=count)
        if not count:
            return found
        rates = {kind: min(0.95, rate * factor) for kind, rate in (self.worse if worse else self.baseline).items()}
        if "errors" in self.kinds:
            found.failed = int(self.dice.binomial(count, rates["errors"]))
        if "latency" in self.kinds:
            left, before = count, 1.0
            for place, multiple in enumerate(SLOWER):
                share = min(before, multiple * rates["latency"])
                left = found.slower[place] = int(self.dice.binomial(left, share / before))
                before = share
        if "labels" in self.kinds:
            labelled = int(self.dice.binomial(count - found.failed, self.traffic.labelled_share))
            found.wrong = int(self.dice.binomial(labelled, rates["labels"]))
            found.right = labelled - found.wrong
        return found

    def _of_slice(self, whole: "_Counts", share: float) -> "_Counts":
        """Return what those of the requests met that belong to a slice."""
        part = _Counts(total=int(self.dice.binomial(whole.total, share)))
        part.failed = self._drawn(whole.failed, whole.total, part.total)
        answered, taken = whole.total - whole.failed, part.total - part.failed
        part.right = self._drawn(whole.right, answered, taken)
        part.wrong = self._drawn(whole.wrong, answered - whole.right, taken - part.right)
        total, taken = whole.total, part.total
        for place, slower in enumerate(whole.slower):
            taken = part.slower[place] = self._drawn(slower, total, taken)
            total = slower
        return part

    def _drawn(self, marked: int, total: int, taken: int) -> int:
        """Return how many are marked of `taken` out of `total`, `marked` of which are."""
        if not marked or not taken:
            return 0
        if total < _LARGEST_URN:
            return int(self.dice.hypergeometric(marked, total - marked, taken))
        found = int(self.dice.binomial(taken, marked / total))
        return max(taken - (total - marked), min(found, marked))


@dataclass(slots=True)
class _Counts:
    """What requests of one arm met."""

    total: int = 0
    failed: int = 0
    slower: list[int] = field(default_factory=lambda: [0] * len(SLOWER))
    right: int = 0
    """Predictions that were right, whose label is still to come."""
    wrong: int = 0
    """The same of wrong ones."""
    labelled: int = 0
    incorrect: int = 0

    @property
    def latency(self) -> tuple[tuple[float, int], ...]:
        """As a sample tells it."""
        return tuple([(0.1 * 2**place, self.total - count) for place, count in enumerate(self.slower)])

    def add(self, other: "_Counts") -> None:
        """Take in what further requests met."""
        self.total += other.total
        self.failed += other.failed
        self.right += other.right
        self.wrong += other.wrong
        for place, count in enumerate(other.slower):
            self.slower[place] += count

    def label(self, right: int, wrong: int) -> None:
        """Let labels come."""
        self.right -= right
        self.wrong -= wrong
        self.labelled += right + wrong
        self.incorrect += wrong


class _Rollout:
    """One rollout under way."""

    def __init__(self, plan: Plan, begun: Running, users: _Users, probation_seconds: float, looks: int) -> None:
        self.plan, self.running, self.users = plan, begun, users
        self.traffic, self.harm = users.traffic, users.harm
        self.probation_seconds, self.looks = probation_seconds, looks
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
        began, cohort, between = self.seconds, f"1-{number}", step.seconds / self.looks
        while True:
            in_time = self.seconds - began < step.seconds * (1 - 1e-9)
            left = round((began + step.seconds - self.seconds) / between)
            # A failure is seen at the next judgement; at which look it came, the evidence's course tells.
            looks = 1 if early or not in_time else min(LOOKS, left)
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
        between = min(self.traffic.label_delay_seconds, self.probation_seconds / LATE_LOOKS)
        for _ in range(LATE_LOOKS if between else 0):
            metrics = self._look(f"1-{last}", None, between, 1)
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
            everything = round(self.traffic.requests_per_second * between) if weight is None else 0
            before = self.answered[-1][1] if weight is None else self.users.of_canary
            self.answered.append((self.seconds, before + everything))
        self.running = self.running.after(samples)
        return judge_running(self.running, alpha=self.plan.alpha, cohort=cohort)

    def _end(self, fate: Fate, step: int, seconds: float) -> Course:
        answered = next((count for at, count in self.answered if at >= seconds * (1 - 1e-9)), self.answered[-1][1])
        kind, share = self.harm.kind, self.traffic.slices[self.harm.slice] if self.harm.slice else 1.0
        more = share * (self.users.worse[kind] - self.users.baseline[kind]) if kind else 0.0
        return Course(fate=fate, seconds=seconds, step=step, canary_requests=answered, extra_bad=more * answered)


def _crossed(metrics: Sequence[MetricVerdict]) -> float:
    """Return when the evidence of the first metric reached its threshold, in seconds since the start."""
    crossings = [
        next(at for at, log in one.course if log >= one.threshold - 1e-9)
        for one in metrics
        if one.outcome is Outcome.FAILED
    ]
    return (min(crossings) - _START).total_seconds()
