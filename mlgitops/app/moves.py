"""One move of one model in one environment: the state after it, and why."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mlgitops.app.context import Context, View
from mlgitops.core import diary, driver
from mlgitops.core import rollout as machine
from mlgitops.core.errors import InvalidInput
from mlgitops.core.events import Event, stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.manifest.fields import GENERATION_FILE
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.projection import Desired, Target
from mlgitops.core.rollout import Rollout, RolloutPhase

AUTOMATION = "mlgitops"
"""Who decides when nobody does."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A decision record to be kept."""

    name: str
    values: dict[str, Any]
    words: str


@dataclass(frozen=True, kw_only=True)
class Move:
    """A new state, and the message that says why."""

    state: EnvironmentState
    message: str
    asked: RolloutFields | None = None
    """What a promotion on `main` asks for: `main` says it already, so the projections are amended with it."""
    record: Record | None = None
    reports: dict[str, Any] = field(default_factory=dict)
    """Evaluation reports to keep, by key."""

    @classmethod
    def of(
        cls,
        state: EnvironmentState,
        rollout: Rollout,
        *,
        asked: RolloutFields | None = None,
        record: Record | None = None,
    ) -> "Move":
        """Return the move that a rollout's newest event makes."""
        return cls(state=state, message=diary.decision(rollout), asked=asked, record=record)


def now(context: Context) -> datetime:
    """Return the present."""
    return context.clock.now()


def rolled_back(  # noqa: PLR0917 - who, why and when belong together
    state: EnvironmentState,
    rollout: Rollout,
    author: str,
    reason: str,
    at: datetime,
    decision: str = "",
    wanted: int | None = None,
) -> EnvironmentState:
    """Return the state with `rollout` rolling back, and automation on hold.

    What serves goes back to `wanted`, where that is as good as last-good: it served, is trusted, and was never rolled
    back; to last-good otherwise.

    Where it is what serves, a rollout under way beside it ends too: what was only proposed is withdrawn, a canary goes
    back first.
    """
    other = state.open
    if other is not None and other.number != rollout.number and other.phase is not RolloutPhase.ROLLING_BACK:
        words = f"rollout {rollout.number} is rolled back: {reason}"
        ended: Event = machine.RollbackDecided(at=at, by=author, reason=words, target=rollout.number)
        if other.phase is RolloutPhase.PROPOSED:
            ended = machine.Withdrawn(at=at, by=author, reason=words)
        state = state.with_rollout(machine.advance(other, ended))
    if rollout.was_serving_all:
        good = state.last_good(rollout.number, wanted)
        target = good.number if good else None
    else:
        target = state.live.number if state.live else None
    event = machine.RollbackDecided(at=at, by=author, reason=reason, target=target, decision=decision)
    hold = Hold(by=author, reason=f"release {rollout.release} was rolled back: {reason}", at=stamp(at))
    return replace(state.with_rollout(machine.advance(rollout, event)), hold=hold, foreign=None)


def target_of(view: View, model: str, release: str) -> Target:
    """Return where a release's model is.

    Raises:
        InvalidInput: The release has no model yet.
    """
    found = view.ledger.release(model, release)
    if found.artifact_digest is None:
        raise InvalidInput(f"release {release} of {model} has no model")
    return Target(release=release, storage_uri=found.submission.artifact_uri, artifact_digest=found.artifact_digest)


def put(view: View, move: Move) -> str:
    """Put a move into the view's ledger and return its message."""
    state = settled(view, _amended(view, move))
    view.ledger.put_state(state)
    if move.record is not None:
        view.ledger.put_decision(
            state.environment, state.model, move.record.name, move.record.values, move.record.words
        )
    for key, report in move.reports.items():
        view.ledger.put_report(state.model, key, report)
    return move.message


def _amended(view: View, move: Move) -> EnvironmentState:
    """Let the projections say what a promotion made `main` say, also the one that `main` still shows."""
    state = move.state
    if move.asked is None:
        return state
    path = f"environments/{state.environment}/{state.model}/{GENERATION_FILE}"
    shown = int(view.main.read(path) or b"0")
    known = {number: state.projections.get(number, Desired()) for number in (shown, state.generation)}
    amended = {number: replace(one, rollout=move.asked) for number, one in known.items()}
    return replace(state, projections={**state.projections, **amended})


def settled(view: View, state: EnvironmentState) -> EnvironmentState:
    """Return the state with a new generation where what `main` must say has changed."""
    wanted = driver.desired(state, lambda release: target_of(view, state.model, release))
    if wanted == state.desired:
        return state
    number = state.generation + 1
    return replace(
        state,
        generation=number,
        decided_on=view.main.revision or "",
        projections={**state.projections, number: wanted},
    )
