"""A rollout: one attempt to bring a release into an environment, moved by events."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from mlgitops.core.configuration import judged_steps
from mlgitops.core.errors import IllegalTransition, InvalidInput
from mlgitops.core.events import Event, moment, read_event, stamp


class RolloutPhase(enum.StrEnum):
    """Where a rollout is."""

    PROPOSED = "PROPOSED"
    STARTING = "STARTING"
    STEP = "STEP"
    """A weight is asked for and not yet observed."""
    ANALYSING = "ANALYSING"
    COMPLETING = "COMPLETING"
    LIVE = "LIVE"
    RETIRED = "RETIRED"
    """Replaced by a later one."""
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    WITHDRAWN = "WITHDRAWN"
    """Taken back before anything moved."""
    REFUSED = "REFUSED"
    """A gate or a policy said no before anything moved."""
    ERRORED = "ERRORED"
    """Whether it may start could not be found out."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What was asked for, fixed when the rollout is taken up."""

    number: int
    """Counts the rollouts of one model in one environment, from 1."""
    environment: str
    model: str
    release: str
    plan: Mapping[str, Any]
    """The whole plan, as it was when the rollout was authorised."""
    plan_digest: str
    champion: int | None
    """Number of the rollout that was LIVE; None for a first one."""
    by: str
    """`Name <address>` of the promoting commit's author."""
    revision: str
    """The promoting commit on `main`."""
    proposed_at: datetime
    forced: str = ""
    """Reason a person gave for promoting in spite of an earlier rollback; empty otherwise."""

    @property
    def weights(self) -> tuple[int, ...]:
        """The steps' weights in percent, that of a probation with a hold-back included."""
        return tuple(step["weight"] for step in judged_steps(self.plan))

    def to_mapping(self) -> dict[str, Any]:
        """Return the proposal as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"proposed_at": stamp(self.proposed_at), "plan": dict(self.plan)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Proposal":
        """Return the proposal that `to_mapping` wrote."""
        return cls(**{**values, "proposed_at": moment(values["proposed_at"])})


@dataclass(frozen=True, kw_only=True)
class Authorised(Event):
    """Gates, hold, freeze windows and approvals let it start."""

    report: str = ""
    """Key of the evaluation report that compared it with the champion."""
    noise: Mapping[str, Any] | None = None
    """By the metrics' names, the noise that it is judged by, see `Noise.to_mapping`; None for a first one."""


@dataclass(frozen=True, kw_only=True)
class Refused(Event):
    """A gate or a policy said no."""

    reason: str
    report: str = ""


@dataclass(frozen=True, kw_only=True)
class Withdrawn(Event):
    """Taken back before anything moved."""

    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Errored(Event):
    """Whether it may start could not be found out."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ReplayStarted(Event):
    """The canary answers, and requests are replayed to it before any user meets it."""


@dataclass(frozen=True, kw_only=True)
class CanaryReady(Event):
    """The canary loaded the right bytes and answers."""

    decision: str = ""
    """Name of the record of what was replayed to it; empty where the plan replays nothing."""


@dataclass(frozen=True, kw_only=True)
class SplitObserved(Event):
    """The router really splits as the step says."""


@dataclass(frozen=True, kw_only=True)
class StepPassed(Event):
    """The step's analysis passed; the next weight follows."""

    decision: str = ""
    """Name of the decision record."""


@dataclass(frozen=True, kw_only=True)
class LastStepPassed(Event):
    """The last judged step passed; all traffic follows."""

    decision: str = ""


@dataclass(frozen=True, kw_only=True)
class PartReached(Event):
    """One (edit, expected observation) of completing or rolling back was seen."""

    noise: Mapping[str, Any] | None = None
    """By the metrics' names, the noise that the twins showed in this part; None where none was measured."""


@dataclass(frozen=True, kw_only=True)
class ServingAll(Event):
    """The environment serves this release alone."""


@dataclass(frozen=True, kw_only=True)
class Trusted(Event):
    """Probation is over."""

    decision: str = ""


@dataclass(frozen=True, kw_only=True)
class Alarmed(Event):
    """What serves is beyond a limit of the environment's monitoring, beyond doubt."""

    limit: str
    """Metric and action, like `errors/alert`."""
    words: str
    decision: str = ""


@dataclass(frozen=True, kw_only=True)
class Retired(Event):
    """A later rollout replaced it."""

    by_rollout: int


@dataclass(frozen=True, kw_only=True)
class RollbackDecided(Event):
    """All traffic is to go back."""

    by: str
    reason: str
    target: int | None
    """Rollout that serves afterwards; None for nothing."""
    decision: str = ""


@dataclass(frozen=True, kw_only=True)
class RolledBack(Event):
    """The former state was observed."""


@dataclass(frozen=True, kw_only=True)
class Restored(Event):
    """It serves again, because a later one was rolled back."""

    instead_of: int


_P = RolloutPhase
MOVED: Final = (_P.STARTING, _P.STEP, _P.ANALYSING, _P.COMPLETING, _P.LIVE)
"""Phases from which a rollback starts."""
MEETS_USERS: Final = (_P.STEP, _P.ANALYSING, _P.COMPLETING, _P.LIVE)
"""Phases in which requests of users are, or may soon be, answered by the release."""
OPEN: Final = (_P.PROPOSED, _P.STARTING, _P.STEP, _P.ANALYSING, _P.COMPLETING, _P.ROLLING_BACK)
"""Phases of a rollout that is under way; at most one per model and environment."""
ROLLOUT: Final[Mapping[tuple[RolloutPhase, type[Event]], RolloutPhase]] = {
    (_P.PROPOSED, Authorised): _P.STARTING,
    (_P.PROPOSED, Refused): _P.REFUSED,
    (_P.PROPOSED, Withdrawn): _P.WITHDRAWN,
    (_P.PROPOSED, Errored): _P.ERRORED,
    (_P.STARTING, ReplayStarted): _P.STARTING,
    (_P.STARTING, CanaryReady): _P.STEP,
    (_P.STARTING, ServingAll): _P.LIVE,  # a first rollout has nobody to share traffic with
    (_P.STEP, SplitObserved): _P.ANALYSING,
    (_P.ANALYSING, StepPassed): _P.STEP,
    (_P.ANALYSING, LastStepPassed): _P.COMPLETING,
    (_P.COMPLETING, PartReached): _P.COMPLETING,
    (_P.COMPLETING, ServingAll): _P.LIVE,
    (_P.LIVE, Trusted): _P.LIVE,
    (_P.LIVE, Alarmed): _P.LIVE,
    (_P.LIVE, Retired): _P.RETIRED,
    **{(phase, RollbackDecided): _P.ROLLING_BACK for phase in MOVED},
    (_P.ROLLING_BACK, PartReached): _P.ROLLING_BACK,
    (_P.ROLLING_BACK, RolledBack): _P.ROLLED_BACK,
    (_P.RETIRED, Restored): _P.LIVE,
}
EVENTS: Final[Mapping[str, type[Event]]] = {event.__name__: event for _, event in ROLLOUT}


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A proposal and all that happened to it."""

    proposal: Proposal
    phase: RolloutPhase = RolloutPhase.PROPOSED
    step: int = 0
    """Index of the step it is at, from 0."""
    part: int = 0
    """Index within completing or rolling back, from 0."""
    history: tuple[Event, ...] = ()

    @property
    def number(self) -> int:
        """Its number."""
        return self.proposal.number

    @property
    def release(self) -> str:
        """The release it brings."""
        return self.proposal.release

    @property
    def is_open(self) -> bool:
        """Whether it is under way."""
        return self.phase in OPEN

    @property
    def rollback(self) -> RollbackDecided | None:
        """The decision to roll it back; None when there is none."""
        return next((one for one in reversed(self.history) if isinstance(one, RollbackDecided)), None)

    @property
    def was_serving_all(self) -> bool:
        """Whether it ever served alone."""
        return any(isinstance(one, ServingAll) for one in self.history)

    @property
    def authorised_at(self) -> datetime | None:
        """When it was let start; None before. Its age counts from here: waiting for people makes nothing older."""
        return next((one.at for one in self.history if isinstance(one, Authorised)), None)

    @property
    def noise(self) -> Mapping[str, Any]:
        """The noise that it is judged by, by the metrics' names, as it was settled when it was let start."""
        settled = (one.noise for one in self.history if isinstance(one, Authorised))
        return next(settled, None) or {}

    @property
    def measured_noise(self) -> Mapping[str, Any]:
        """The noise that the twins of its release showed, by the metrics' names; empty where none was measured."""
        measured = (one.noise for one in reversed(self.history) if isinstance(one, PartReached) and one.noise)
        return next(measured, None) or {}

    @property
    def holds_back(self) -> int:
        """Percent of requests that its champion goes on answering through its probation; 0 where that has none."""
        held = self.proposal.plan.get("holdBack")
        return held["percent"] if held and self.proposal.champion is not None else 0

    @property
    def on_probation(self) -> bool:
        """Whether it answers all requests but the hold-back now."""
        at_last = self.step == len(self.proposal.plan["steps"])
        return bool(self.holds_back) and at_last and self.phase in (_P.STEP, _P.ANALYSING)

    @property
    def replays(self) -> bool:
        """Whether requests are, or were, replayed to its canary."""
        return any(isinstance(one, ReplayStarted) for one in self.history)

    @property
    def trusted(self) -> bool:
        """Whether it passed probation."""
        return any(isinstance(one, Trusted) for one in self.history)

    @property
    def reason(self) -> str:
        """Why it ended as it did; empty while it goes on or serves."""
        words = [getattr(one, "reason", "") for one in self.history]
        return next((word for word in reversed(words) if word), "")

    @property
    def since(self) -> datetime:
        """When it came where it is; an alarm moves nothing."""
        moved = (one.at for one in reversed(self.history) if not isinstance(one, Alarmed))
        return next(moved, self.proposal.proposed_at)

    def to_mapping(self) -> dict[str, Any]:
        """Return the rollout as plain values; the phase is there for people and checked when read."""
        return {
            "apiVersion": "mlgitops.dev/v1",
            "kind": "RolloutRecord",
            "phase": str(self.phase),
            "proposal": self.proposal.to_mapping(),
            "history": [event.to_mapping() for event in self.history],
        }


def advance(rollout: Rollout, event: Event) -> Rollout:
    """Return the rollout after `event`; nothing moves that the table does not list.

    Raises:
        IllegalTransition: The rollout's phase does not take this event, or it would skip what must come first.
    """
    phase = ROLLOUT.get((rollout.phase, type(event)))
    last = rollout.step + 1 >= len(rollout.proposal.weights)
    first = rollout.proposal.champion is None
    shadowed = "shadow" in rollout.proposal.plan
    skips = (
        (isinstance(event, StepPassed) and last)
        or (isinstance(event, LastStepPassed) and not last)
        or (isinstance(event, CanaryReady) and (first or shadowed is not rollout.replays))
        or (isinstance(event, ReplayStarted) and (first or not shadowed or rollout.replays))
        or (isinstance(event, ServingAll) and rollout.phase is _P.STARTING and not first)
    )
    if phase is None or skips:
        raise IllegalTransition(f"rollout {rollout.number}", str(rollout.phase), type(event).__name__)
    step = rollout.step + 1 if isinstance(event, StepPassed) else rollout.step
    part = rollout.part + 1 if isinstance(event, PartReached) else 0
    return replace(rollout, phase=phase, step=step, part=part, history=(*rollout.history, event))


def read_rollout(values: Mapping[str, Any], where: str) -> Rollout:
    """Rebuild a rollout by replaying its history."""
    rollout = Rollout(proposal=Proposal.from_mapping(values["proposal"]))
    for one in values["history"]:
        rollout = advance(rollout, read_event(one, EVENTS, where))
    if values["phase"] != rollout.phase:
        raise InvalidInput(f"{where}: the history leads to {rollout.phase}, and the file says {values['phase']}")
    return rollout
