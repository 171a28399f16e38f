"""The evidence of a whole rollout, as its samples come: checked, in the order of their moments, for every metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from mlgitops.core.analysis.counts import Arm, Newest, Sample, both_arms, check_samples, moments
from mlgitops.core.analysis.labelling import Labelling
from mlgitops.core.analysis.measures import MetricEvidence, Reading, begun
from mlgitops.core.analysis.noise import Noise
from mlgitops.core.configuration import MetricRule
from mlgitops.core.errors import InvalidInput

FORMAT: Final = 2
"""Version of what `Running.to_mapping` gives; an older or younger one is calculated anew."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is known of a rollout at one time."""

    readings: tuple[Reading, ...]
    """One for each metric."""
    newest: Newest
    """The newest sample of each (cohort, arm)."""
    one_sided: Mapping[str | None, str]
    """Where labels came to one arm more than chance explains, by slice, None for all requests; empty for nowhere."""


class _State:
    """What was settled: counts and evidence up to a moment."""

    def __init__(
        self,
        metrics: Sequence[MetricEvidence],
        labelling: Mapping[str | None, Labelling],
        newest: dict[tuple[str, Arm], Sample],
    ) -> None:
        self.metrics, self.labelling, self.newest = metrics, labelling, newest

    def after(self, settled: Iterable[tuple[datetime, list[Sample]]]) -> "_State":
        """Return the state after further moments."""
        labelling = {name: one.copy() for name, one in self.labelling.items()}
        other = _State([metric.copy() for metric in self.metrics], labelling, dict(self.newest))
        for at, together in settled:
            other.newest.update({(sample.cohort, sample.arm): sample for sample in together})
            pairs = both_arms(other.newest, together)
            for metric in other.metrics:
                metric.take(at, together, pairs)
            for name, one in labelling.items():
                one.take([sample.of(name) for sample in together])
        return other

    def to_mapping(self) -> dict[str, Any]:
        return {
            "metrics": [metric.to_mapping() for metric in self.metrics],
            "labels": [[name, one.known_mapping(), one.told] for name, one in self.labelling.items()],
            "newest": [sample.to_mapping() for sample in self.newest.values()],
        }

    def resume(self, values: Mapping[str, Any]) -> None:
        for metric, one in zip(self.metrics, values["metrics"], strict=True):
            metric.resume(one)
        self.labelling = {
            name: Labelling({cohort: (one[0], one[1]) for cohort, one in known.items()}, told)
            for name, known, told in values["labels"]
        }
        newest = map(Sample.from_mapping, values["newest"])
        self.newest = {(sample.cohort, sample.arm): sample for sample in newest}


@dataclass(frozen=True, kw_only=True)
class Running:
    """Evidence that more samples can be added to; itself it never changes.

    A moment is settled when a later one has come: what is read of one moment may come in several parts. So the numbers
    do not depend on how the samples were divided into looks.
    """

    rules: tuple[MetricRule, ...]
    """The plan's metrics."""
    noises: tuple[Noise, ...]
    """By what the log evidence of each is divided."""
    state: _State
    """What was settled."""
    pending: tuple[Sample, ...] = ()
    """The samples of the newest moment."""

    @classmethod
    def begin(cls, rules: Sequence[MetricRule], noises: Sequence[Noise], history: Sequence[Sample] = ()) -> "Running":
        """Return the evidence of a rollout before anything came.

        Args:
            rules: The plan's metrics.
            noises: Of each, by what its log evidence is divided.
            history: Checked samples from before the rollout; their baseline arm shapes the bets.
        """
        metrics = [begun(rule, noise.dispersion, history) for rule, noise in zip(rules, noises, strict=True)]
        labelling = {name: Labelling() for name in dict.fromkeys((None, *(rule.slice for rule in rules)))}
        return cls(rules=tuple(rules), noises=tuple(noises), state=_State(metrics, labelling, {}))

    def after(self, samples: Sequence[Sample]) -> "Running":
        """Return the evidence with these samples added.

        Args:
            samples: In any order, none older than the newest moment of before.

        Raises:
            InvalidInput: Counts contradict each other or those of before, or a sample comes too late; all at once.
        """
        if not samples:
            return self
        unsettled = [*self.pending, *samples]
        check_samples(unsettled, self.state.newest)
        *settled, (_, pending) = moments(unsettled)
        return replace(self, state=self.state.after(settled) if settled else self.state, pending=tuple(pending))

    def look(self) -> Look:
        """Return what is known now, the newest moment included."""
        now = self.state.after(moments(self.pending))
        readings = tuple(metric.reading(now.newest) for metric in now.metrics)
        return Look(
            readings=readings, newest=now.newest, one_sided={name: one.told for name, one in now.labelling.items()}
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; their size depends on the steps and metrics, and hardly on the time."""
        pending = [sample.to_mapping() for sample in self.pending]
        return {"format": FORMAT, "rules": self._identity(), **self.state.to_mapping(), "pending": pending}

    def resumed(self, values: Mapping[str, Any]) -> "Running":
        """Return the evidence of `to_mapping`, to go on from to the last digit; this is its beginning.

        Args:
            values: From evidence of the same rules, noises and history.

        Raises:
            InvalidInput: It is no such state.
        """
        state = self.state.after(())
        try:
            if values["format"] != FORMAT or values["rules"] != self._identity():
                raise InvalidInput("this is evidence of other metrics; judge all samples anew")
            state.resume(values)
            pending = tuple([Sample.from_mapping(one) for one in values["pending"]])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InvalidInput("evidence was cut or changed; judge all samples anew") from error
        return replace(self, state=state, pending=pending)

    def _identity(self) -> list[list[Any]]:
        both = zip(self.rules, self.noises, strict=True)
        return [[rule.name, rule.effect, rule.margin, noise.dispersion] for rule, noise in both]
