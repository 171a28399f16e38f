"""A release: one training attempt and the model it yields, moved by events."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from mlgitops.core.configuration import canonical
from mlgitops.core.errors import IllegalTransition, InvalidInput
from mlgitops.core.events import Event, moment, read_event, stamp
from mlgitops.core.names import RELEASE_LENGTH, Digest


class ReleasePhase(enum.StrEnum):
    """Where a release is."""

    SUBMITTED = "SUBMITTED"
    QUEUED = "QUEUED"
    TRAINING = "TRAINING"
    EVALUATING = "EVALUATING"
    CANDIDATE = "CANDIDATE"
    FAILED = "FAILED"
    """The answer was no."""
    ERRORED = "ERRORED"
    """No answer could be had."""
    ABORTED = "ABORTED"
    """A person stopped it."""
    REJECTED = "REJECTED"
    """A person refused it, for good."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What was pushed: everything a release is made of, fixed when it is submitted."""

    model: str
    code_digest: str
    """Over the declared training inputs, without data."""
    data_digest: str
    """Over the declared data."""
    specification_digest: str
    """Over the training specification."""
    attempt: int = 1
    """1 unless a rerun was asked for."""
    sequence: int
    """Order of submission within the model, from 1."""
    cause: tuple[str, ...]
    """What differs from the release submitted before: code, data, specification; `first` for the first."""
    revision: str
    """Commit of the model repository."""
    author: str
    """`Name <address>` of that commit's author."""
    subject: str
    """First line of that commit's message."""
    submitted_at: datetime
    image: str
    """`repository@sha256:…`"""
    image_tag: str
    variables: Mapping[str, str]
    """Environment variables that the tool gives the job: where its data is, where its model goes."""
    artifact_uri: str
    """Where the model will be."""
    evaluation_uri: str
    """The evaluation set in the store."""
    evaluation_digest: str
    configuration: str
    """Text of `mlgitops.yaml` at that commit."""
    source_uri: str = ""
    """The training inputs in the store, for `evaluation.command`; empty without one."""

    @property
    def identity(self) -> Digest:
        """The release's identity: the same code, data, specification and attempt give the same."""
        parts = [self.code_digest, self.data_digest, self.specification_digest, self.attempt]
        return Digest.of(canonical([self.model, *parts]))

    def to_mapping(self) -> dict[str, Any]:
        """Return the submission as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {
            "cause": list(self.cause),
            "variables": dict(self.variables),
            "submitted_at": stamp(self.submitted_at),
        }

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Submission":
        """Return the submission that `to_mapping` wrote."""
        times = {"submitted_at": moment(values["submitted_at"]), "cause": tuple(values["cause"])}
        return cls(**{**values, **times})


@dataclass(frozen=True, kw_only=True)
class Queued(Event):
    """Another training of this model is open, or none is: this one waits its turn."""


@dataclass(frozen=True, kw_only=True)
class TrainingStarted(Event):
    """Its TFJob is to be on `main`."""

    not_carried: tuple[str, ...] = ()
    """What its training section says otherwise than the TFJob that people edited, which wins; empty for nothing."""


@dataclass(frozen=True, kw_only=True)
class TrainingSucceeded(Event):
    """The job ended well and its model is there."""

    artifact_digest: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Reported by the job itself."""
    history: tuple[Mapping[str, float], ...] = ()
    """Per epoch, as far as the job reported it."""
    restarts: int = 0
    started_at: str = ""
    finished_at: str = ""


@dataclass(frozen=True, kw_only=True)
class EvaluationPassed(Event):
    """The model met its own limits and answered a real request."""

    report: str
    """Key of the evaluation report in the ledger."""


@dataclass(frozen=True, kw_only=True)
class Revised(Event):
    """A push of the same training says otherwise how the model is judged: it is evaluated by that from now on."""

    by: str
    """`Name <address>` of that commit's author."""
    revision: str
    """That commit of the model repository."""
    changed: tuple[str, ...]
    """What differs from before; empty where an evaluation that gave no answer is asked for again."""
    configuration: str
    """Text of `mlgitops.yaml` at that commit."""
    evaluation_uri: str
    """The evaluation set in the store."""
    evaluation_digest: str
    source_uri: str = ""
    """The training inputs in the store, for `evaluation.command`; empty without one."""


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """The answer was no."""

    reason: str
    report: str = ""


@dataclass(frozen=True, kw_only=True)
class Errored(Event):
    """No answer could be had."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Aborted(Event):
    """A person stopped it, or a newer push superseded it."""

    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Rejected(Event):
    """A person refused it for good."""

    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Collected(Event):
    """Its model was deleted, as no rollback could need it; it cannot be rolled out again."""


_P = ReleasePhase
OPEN: Final = (_P.SUBMITTED, _P.QUEUED, _P.TRAINING, _P.EVALUATING)
"""Phases from which a release still moves by itself."""
REVISED: Final = (_P.CANDIDATE, _P.FAILED, _P.ERRORED)
"""Phases in which a release whose model is there can be evaluated anew."""
RELEASE: Final[Mapping[tuple[ReleasePhase, type[Event]], ReleasePhase]] = {
    (_P.SUBMITTED, Queued): _P.QUEUED,
    (_P.QUEUED, TrainingStarted): _P.TRAINING,
    (_P.TRAINING, TrainingSucceeded): _P.EVALUATING,
    (_P.EVALUATING, EvaluationPassed): _P.CANDIDATE,
    (_P.CANDIDATE, Collected): _P.CANDIDATE,
    **{(phase, Revised): phase for phase in OPEN},
    **{(phase, Revised): _P.EVALUATING for phase in REVISED},
    (_P.TRAINING, Failed): _P.FAILED,
    (_P.EVALUATING, Failed): _P.FAILED,
    **{(phase, Errored): _P.ERRORED for phase in OPEN},
    **{(phase, Aborted): _P.ABORTED for phase in OPEN},
    **{(phase, Rejected): _P.REJECTED for phase in (*OPEN, _P.CANDIDATE, _P.FAILED, _P.ERRORED, _P.ABORTED)},
}
EVENTS: Final[Mapping[str, type[Event]]] = {event.__name__: event for _, event in RELEASE}


@dataclass(frozen=True, kw_only=True)
class Release:
    """A submission and all that happened to it."""

    submission: Submission
    phase: ReleasePhase = ReleasePhase.SUBMITTED
    history: tuple[Event, ...] = ()

    @property
    def name(self) -> str:
        """The twelve hexadecimal digits people use."""
        return self.submission.identity.hex[:RELEASE_LENGTH]

    @property
    def identity(self) -> Digest:
        """The full identity."""
        return self.submission.identity

    @property
    def trained(self) -> TrainingSucceeded | None:
        """How its training ended well; None before that."""
        return next((one for one in self.history if isinstance(one, TrainingSucceeded)), None)

    @property
    def artifact_digest(self) -> str | None:
        """Digest of its model's files; None before it is trained."""
        return self.trained.artifact_digest if self.trained else None

    @property
    def training_started(self) -> TrainingStarted | None:
        """When its TFJob was asked for; None before that."""
        return next((one for one in self.history if isinstance(one, TrainingStarted)), None)

    @property
    def not_carried(self) -> tuple[str, ...]:
        """What its training section says and its TFJob does not, as people edited that; empty before it is trained."""
        return self.training_started.not_carried if self.training_started else ()

    @property
    def training_hours(self) -> float | None:
        """Hours from the start of its job to its end; None where the job told no times."""
        done = self.trained
        if done is None or not done.started_at or not done.finished_at:
            return None
        took = datetime.fromisoformat(done.finished_at) - datetime.fromisoformat(done.started_at)
        return max(0.0, took.total_seconds() / 3600)

    @property
    def judged_by(self) -> Submission:
        """The submission with the configuration and the evaluation set that the model is judged by now."""
        last = next((one for one in reversed(self.history) if isinstance(one, Revised)), None)
        if last is None:
            return self.submission
        return replace(
            self.submission,
            configuration=last.configuration,
            evaluation_uri=last.evaluation_uri,
            evaluation_digest=last.evaluation_digest,
            source_uri=last.source_uri,
        )

    @property
    def revisable(self) -> bool:
        """Whether it can be judged by something else: it is on its way, or its model is there and nobody refused it."""
        model = self.artifact_digest is not None and not self.collected
        return self.phase in OPEN or (self.phase in REVISED and model)

    @property
    def unanswered(self) -> int:
        """How many evaluations of its model gave no answer."""
        return sum(isinstance(one, Errored) for one in self.history) if self.trained else 0

    @property
    def collected(self) -> bool:
        """Whether its model was deleted."""
        return any(isinstance(one, Collected) for one in self.history)

    @property
    def report(self) -> str | None:
        """Key of its evaluation report; None before it was evaluated."""
        keys = [one.report for one in self.history if isinstance(one, EvaluationPassed | Failed) and one.report]
        return keys[-1] if keys else None

    @property
    def reason(self) -> str:
        """Why it ended as it did; empty while it goes on."""
        last = self.history[-1] if self.history else None
        return getattr(last, "reason", "")

    def to_mapping(self) -> dict[str, Any]:
        """Return the release as plain values; the phase is there for people and checked when read."""
        return {
            "apiVersion": "mlgitops.dev/v1",
            "kind": "Release",
            "release": self.name,
            "identity": str(self.identity),
            "phase": str(self.phase),
            "submission": self.submission.to_mapping(),
            "history": [event.to_mapping() for event in self.history],
        }


def advance(release: Release, event: Event) -> Release:
    """Return the release after `event`; nothing moves that the table does not list.

    Raises:
        IllegalTransition: The release's phase does not take this event.
    """
    phase = RELEASE.get((release.phase, type(event)))
    if phase is None or (isinstance(event, Revised) and not release.revisable):
        raise IllegalTransition(f"release {release.name}", str(release.phase), type(event).__name__)
    return replace(release, phase=phase, history=(*release.history, event))


def read_release(values: Mapping[str, Any], where: str) -> Release:
    """Rebuild a release by replaying its history."""
    release = Release(submission=Submission.from_mapping(values["submission"]))
    for one in values["history"]:
        release = advance(release, read_event(one, EVENTS, where))
    if values["phase"] != release.phase:
        raise InvalidInput(f"{where}: the history leads to {release.phase}, and the file says {values['phase']}")
    return release
