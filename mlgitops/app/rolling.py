"""One rollout's way through an environment: what the next move is, from the ledger, `main` and what is observed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from mlgitops.app import judging, shadowing
from mlgitops.app.absorbing import absorb, unanswered, waiting_for
from mlgitops.app.context import View, World, configuration_of
from mlgitops.app.evaluating import judged_in
from mlgitops.app.monitoring import alarm
from mlgitops.app.moves import AUTOMATION, Move, Record, put, rolled_back, target_of
from mlgitops.app.promoting import automatic_promotion, trusted_in
from mlgitops.app.writing import Unit
from mlgitops.core import diary, driver
from mlgitops.core import rollout as machine
from mlgitops.core.analysis import split
from mlgitops.core.analysis.verdict import Outcome
from mlgitops.core.configuration import Environment, judged_steps
from mlgitops.core.errors import NotFound, Unavailable
from mlgitops.core.events import Event, moment, stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.projection import Desired, Target
from mlgitops.core.release import Rejected, Release, ReleasePhase
from mlgitops.core.rollout import Rollout, RolloutPhase
from mlgitops.ports.repository import Change
from mlgitops.ports.serving import ServiceObservation, ServingObservation

PATIENCE: Final = timedelta(seconds=10)
"""A rollback that takes longer is told, at every look: it has no failing exit."""

_REPLAY: Final = "what is replayed to the canary"


def environment_unit(world: World, environment: str, model: str) -> Unit:
    """Return what makes the next move of one model in one environment."""

    def decide(view: View) -> str | None:
        unit, folder, state = _unit(view, environment, model)
        move = absorb(world, view, unit, folder, state) or _next(world, view, unit, state)
        return None if move is None else put(view, move)

    def project(view: View) -> Sequence[Change]:
        unit, folder, state = _unit(view, environment, model)
        return projected(view, folder, state) or automatic_promotion(world, view, unit, folder, state)

    return Unit(decide, project)


def _unit(view: View, environment: str, model: str) -> tuple[Environment, Folder, EnvironmentState]:
    unit = view.environment(environment)
    if unit is None:
        raise NotFound("environment", environment, [one.name for one in view.configuration.environments])
    return unit, folder_of(view, unit, model), view.ledger.state(environment, model)


def folder_of(view: View, environment: Environment, model: str) -> Folder:
    """Return where a model's manifests for an environment are."""
    last = view.ledger.last_submitted(model)
    configuration = configuration_of(last.judged_by) if last and last.judged_by.configuration else None
    return Folder(
        environment=environment.name,
        model=model,
        namespace=environment.namespace,
        serving=configuration.serving if configuration else {},
        label_tolerance=configuration.evaluation.specification.get("labelTolerance") if configuration else None,
    )


def projected(view: View, folder: Folder, state: EnvironmentState) -> Sequence[Change]:
    """Return the commit that brings `main` to the ledger's generation; none when it is there.

    What people did on `main` since, and nobody answered, is not written over: the next pass answers it.
    """
    shown = folders.generation(view.main.read, folder) >= state.generation
    if shown or state.foreign is not None or unanswered(view, folder, state):
        return ()
    files = folders.project(view.main.read, folder, state.desired, state.generation)
    trailers = {"Mlgitops-Generation": f"{state.environment}/{state.model} {state.generation}"}
    return (Change(message=diary.projection(state), files=files, trailers=trailers),)


@dataclass(frozen=True)
class Turn:
    """One look at one rollout: everything its next move depends on."""

    world: World
    view: View
    environment: Environment
    state: EnvironmentState
    rollout: Rollout

    @property
    def at(self) -> datetime:
        """The present."""
        return self.world.clock.now()

    @property
    def goes_on_since(self) -> datetime:
        """When it came where it is, or was let go on after a hold."""
        resumed = self.state.resumed_at
        return max(self.rollout.since, moment(resumed)) if resumed else self.rollout.since

    def target(self, release: str) -> Target:
        """Return where a release's model is."""
        return target_of(self.view, self.state.model, release)

    def move(self, event: Event, *, record: Record | None = None) -> Move:
        """Return the move that `event` makes of the rollout."""
        moved = machine.advance(self.rollout, event)
        return Move.of(self.state.with_rollout(moved), moved, record=record)

    def back(self, reason: str, *, record: Record | None = None, author: str = AUTOMATION) -> Move:
        """Return the move that takes all traffic back."""
        decision = record.name if record else ""
        changed = rolled_back(self.state, self.rollout, author, reason, self.at, decision)
        return Move.of(changed, changed.rollouts[self.rollout.number], record=record)

    def ask(self, reason: str) -> Move | None:
        """Return the move that holds for a person; None where it is on hold already."""
        if self.state.hold is not None:
            return None
        hold = Hold(by=AUTOMATION, reason=reason, at=stamp(self.at))
        message = f"hold({self.state.model}): {self.environment.name} waits for a person\n\n{reason}\n"
        return Move(state=replace(self.state, hold=hold), message=message)

    def missing(self) -> str:
        """Say what of the desired state is not observed yet; empty when all of it is."""
        wanted = driver.desired(self.state, self.target)
        seen = self.world.serving.observe(self.state.environment, self.state.model)
        if self.rollout.phase is RolloutPhase.ROLLING_BACK and wanted.canary is not None:
            # A broken canary is what is being left: nobody waits for it.
            wanted, seen = replace(wanted, canary=None), replace(seen, canary=None)
        return unobserved(wanted, seen)

    def late(self, missing: str) -> Move | None:
        """Return the way back where something was waited for too long."""
        limit = self.environment.start_seconds
        if self.at - self.goes_on_since <= timedelta(seconds=limit):
            return None
        return self.back(f"after {limit:g} s {missing}")


def _next(world: World, view: View, environment: Environment, state: EnvironmentState) -> Move | None:
    if folders.generation(view.main.read, folder_of(view, environment, state.model)) < state.generation:
        return None  # the last decision is not on main yet: show it first
    turns = [Turn(world, view, environment, state, one) for one in (state.open, state.live) if one is not None]
    # What is leaving waits for nothing; safety comes before what goes on; nobody need be asked about a rejected or an
    # old one; what serves is looked at while another one is under way or waits for people, too.
    # A change by hand stands until a person resumes, but safety does not wait for that.
    safety = (_leaving, _ended, _harmful, _beyond)
    looks = (*safety, _going_on) if state.foreign is None else safety
    return next((move for look in looks for turn in turns if (move := look(turn)) is not None), None)


def _leaving(turn: Turn) -> Move | None:
    return _rolling_back(turn) if turn.rollout.phase is RolloutPhase.ROLLING_BACK else None


def _ended(turn: Turn) -> Move | None:
    """Take back what a person refused for good, and what waits or is under way for too long."""
    rollout = turn.rollout
    if rollout.phase is RolloutPhase.PROPOSED:
        return _expired(turn)
    if rollout.phase not in machine.MOVED:
        return None
    release = turn.view.ledger.release(turn.state.model, rollout.release)
    rejected = next((one for one in release.history if isinstance(one, Rejected)), None)
    if rejected is not None:
        return turn.back(f"release {release.name} is rejected: {rejected.reason}", author=rejected.by)
    if release.phase is ReleasePhase.FAILED and rollout.phase is not RolloutPhase.LIVE:
        return turn.back(f"release {release.name} was evaluated anew, and failed: {release.reason}")
    limit = timedelta(seconds=rollout.proposal.plan["maximumAgeSeconds"])
    started = rollout.authorised_at or rollout.proposal.proposed_at
    if rollout.phase is RolloutPhase.LIVE or turn.at - started <= limit:
        return None
    return turn.back(f"it was under way for longer than {limit}")


def _expired(turn: Turn) -> Move | None:
    """Withdraw a proposal that waited for people for too long: what it was judged by has grown old."""
    limit = timedelta(seconds=turn.environment.proposal_seconds)
    if turn.at - turn.rollout.proposal.proposed_at <= limit:
        return None
    waits = waiting_for(turn.view, turn.environment, turn.state, turn.rollout, turn.at)
    reason = f"it was proposed for longer than {limit}" + (f", and still waits: {waits}" if waits else "")
    return turn.move(machine.Withdrawn(at=turn.at, by=AUTOMATION, reason=reason))


def _harmful(turn: Turn) -> Move | None:
    """Look whether the release harms, in every state in which it meets users or its late labels come."""
    rollout = turn.rollout
    meets_users = rollout.phase in machine.MEETS_USERS
    if not meets_users or rollout.trusted or rollout.proposal.champion is None:
        return None
    verdict = judging.judge(turn.world, rollout)
    if verdict.outcome is not Outcome.FAILED:
        return None
    return turn.back(verdict.words, record=judging.record(turn.world, turn.view, rollout, verdict))


def _beyond(turn: Turn) -> Move | None:
    """Look whether what serves is beyond a limit of the environment, on probation and for as long as it serves."""
    return alarm(turn.world, turn.view, turn.environment, turn.state, turn.rollout)


def _going_on(turn: Turn) -> Move | None:
    rollout = turn.rollout
    if rollout.is_open and (turn.state.hold is not None or rollout.phase is RolloutPhase.ROLLING_BACK):
        return None
    return _answerless(turn) or (_STEPS[rollout.phase](turn) if _is_answered(turn) else None)


def _is_answered(turn: Turn) -> bool:
    """Say whether it is known of the release that it may be rolled out: an open rollout waits while it is not."""
    release = turn.view.ledger.release(turn.state.model, turn.rollout.release)
    return not turn.rollout.is_open or release.phase is not ReleasePhase.EVALUATING


def _answerless(turn: Turn) -> Move | None:
    """Ask a person where an evaluation anew gave no answer while a rollout is under way, once."""
    release = turn.view.ledger.release(turn.state.model, turn.rollout.release)
    if turn.rollout.phase not in machine.MOVED or not turn.rollout.is_open or release.phase is not ReleasePhase.ERRORED:
        return None
    resumed = turn.state.resumed_at
    if resumed and moment(resumed) > release.history[-1].at:
        return None
    return turn.ask(f"release {release.name} was evaluated anew, without an answer: {release.reason}")


def _proposed(turn: Turn) -> Move | None:
    release = turn.view.ledger.release(turn.state.model, turn.rollout.release)
    if release.phase is not ReleasePhase.CANDIDATE:
        told = f": {release.reason}" if release.reason else ""
        return turn.move(machine.Refused(at=turn.at, reason=f"release {release.name} is {release.phase} by now{told}"))
    if turn.view.problem or waiting_for(turn.view, turn.environment, turn.state, turn.rollout, turn.at):
        return None
    result = judged_in(turn.world, turn.view, turn.environment, turn.state, release)
    if result is None:
        return None
    _check_metrics(turn)
    refusals = (*result.refusals, *_evaluated_otherwise(turn, release), *_order(turn))
    event: Event
    if result.error:
        event = machine.Errored(at=turn.at, reason=result.error)
    elif refusals:
        event = machine.Refused(at=turn.at, reason="; ".join(refusals), report=result.key)
    else:
        live = turn.state.live
        noise = judging.settled_noise(turn.rollout.proposal.plan, live) if live else None
        event = machine.Authorised(at=turn.at, report=result.key, noise=noise)
    reports = {result.key: result.report} if result.report is not None else {}
    return replace(turn.move(event), reports=reports)


def _check_metrics(turn: Turn) -> None:
    """Make sure that the canary can be judged, on what serves now, before any traffic moves.

    Raises:
        Unavailable: It cannot; the rollout waits, and nothing has moved.
    """
    problem = turn.world.metrics.problem(turn.environment.name, turn.state.model) if turn.state.live else ""
    if problem:
        raise Unavailable("metrics", problem)


def _evaluated_otherwise(turn: Turn, release: Release) -> tuple[str, ...]:
    """Refuse a release that brings another evaluation set than the environment names: its author chose it."""
    wanted = turn.environment.evaluation_sets.get(turn.state.model)
    found = release.judged_by.evaluation_digest
    if wanted in {None, found}:
        return ()
    return (f"it was evaluated on {found}, and {turn.environment.name} asks for the evaluation set {wanted}",)


def _order(turn: Turn) -> tuple[str, ...]:
    """Refuse what is not trusted in the environment before, unless a person forces it."""
    before = turn.view.configuration.before(turn.environment.name)
    if before is None or turn.rollout.proposal.forced:
        return ()
    if trusted_in(turn.view, before.name, turn.state.model, turn.rollout.release):
        return ()
    return (f"release {turn.rollout.release} is not trusted in {before.name} yet",)


def unobserved(wanted: Desired, seen: ServingObservation) -> str:
    """Compare what `main` says with what serves; returns the first difference in words, empty for none."""
    sides = (("champion's", wanted.stable, seen.baseline), ("canary's", wanted.canary, seen.canary))
    for name, target, service in sides:
        if target is None and service is not None:
            return f"the {name} service is still there"
        if target is not None and not _serves(service, target.artifact_digest):
            return f"the {name} service is not ready: {service.message if service else 'there is none'}"
    if wanted.stable is None:
        return ""
    if (seen.weight_percent, seen.cohort) != (wanted.weight_percent, wanted.cohort):
        return (
            f"the router gives the canary {seen.weight_percent} % as step {seen.cohort}, "
            f"not {wanted.weight_percent} % as step {wanted.cohort}"
        )
    return ""


def _serves(service: ServiceObservation | None, digest: str) -> bool:
    return service is not None and service.ready and service.artifact_digest == digest


def _starting(turn: Turn) -> Move | None:
    missing = turn.missing()
    if missing and turn.rollout.replays:  # it was ready once; a server that is started again is no answer either
        return _inconclusive(turn, missing, _REPLAY, turn.environment.start_seconds)
    if missing:
        return turn.late(missing)
    if turn.state.live is None:
        return turn.move(machine.ServingAll(at=turn.at))
    if "shadow" not in turn.rollout.proposal.plan:
        return turn.move(machine.CanaryReady(at=turn.at))
    return _shadowed(turn) if turn.rollout.replays else turn.move(machine.ReplayStarted(at=turn.at))


def _shadowed(turn: Turn) -> Move | None:
    """Let the canary meet users once it answered what is replayed to it; what shows it bad takes it back before."""
    found = shadowing.replayed(turn.world, turn.view, turn.state, turn.rollout)
    if found is None:
        return None
    verdict = shadowing.judge(turn.rollout, found)
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return _inconclusive(turn, verdict.words, _REPLAY, 0)
    record = shadowing.record(turn.world, turn.view, turn.rollout, found, verdict)
    if verdict.outcome is Outcome.FAILED:
        return turn.back(verdict.words, record=record)
    return turn.move(machine.CanaryReady(at=turn.at, decision=record.name), record=record)


def _splitting(turn: Turn) -> Move | None:
    missing = turn.missing()
    return turn.late(missing) if missing else turn.move(machine.SplitObserved(at=turn.at))


def _analysing(turn: Turn) -> Move | None:
    verdict = judging.judge(turn.world, turn.rollout)
    rollout = turn.rollout
    where = f"step {rollout.step + 1}"
    seconds = judged_steps(rollout.proposal.plan)[rollout.step]["seconds"]
    if verdict.outcome is not Outcome.PASSED:
        return _inconclusive(turn, verdict.words, where, seconds)
    weight = rollout.proposal.weights[rollout.step]
    distorted = split.distorted(verdict.samples, driver.cohort(rollout, rollout.step + 1), weight)
    if distorted:  # what compares the sides is worth nothing, in either direction
        return _inconclusive(turn, distorted, where, seconds)
    record = judging.record(turn.world, turn.view, turn.rollout, verdict)
    last = turn.rollout.step + 1 >= len(turn.rollout.proposal.weights)
    kind = machine.LastStepPassed if last else machine.StepPassed
    return turn.move(kind(at=turn.at, decision=record.name), record=record)


def _inconclusive(turn: Turn, words: str, where: str, seconds: float) -> Move | None:
    """Wait, then hold for a person; never promote, never roll back a healthy model."""
    plan = turn.rollout.proposal.plan
    extension = plan["extendSeconds"] if plan["insufficientData"] == "wait" else 0
    if turn.at - turn.goes_on_since <= timedelta(seconds=seconds + extension):
        return None
    return turn.ask(f"{where} has no answer: {words}")


def _completing(turn: Turn) -> Move | None:
    missing = turn.missing()
    if driver.compares_twins(turn.rollout):
        return _comparing(turn, missing)
    if missing:
        return turn.late(missing)
    parts = driver.completing(turn.rollout, turn.state, turn.target)
    if turn.rollout.part + 1 < len(parts):
        return turn.move(machine.PartReached(at=turn.at))
    move = turn.move(machine.ServingAll(at=turn.at))
    former = turn.state.live
    if former is None:
        return move
    retired = machine.advance(former, machine.Retired(at=turn.at, by_rollout=turn.rollout.number))
    return replace(move, state=move.state.with_rollout(retired))


def _comparing(turn: Turn, missing: str) -> Move | None:
    """Let twins share the traffic for their time, then keep what they showed; it measures, and decides nothing."""
    lasts, waited = turn.rollout.proposal.plan["noiseSeconds"], (turn.at - turn.rollout.since).total_seconds()
    if waited < lasts and not missing:
        return None
    return turn.move(machine.PartReached(at=turn.at, noise=judging.twins_noise(turn.world, turn.rollout) or None))


def _rolling_back(turn: Turn) -> Move | None:
    missing = turn.missing()
    if missing:
        if turn.at - turn.rollout.since > PATIENCE:
            turn.world.observer.note(f"{turn.state.model} in {turn.environment.name}: rolling back, {missing}")
        return None
    parts = driver.rolling_back(turn.rollout, turn.state, turn.target)
    if turn.rollout.part + 1 < len(parts):
        return turn.move(machine.PartReached(at=turn.at))
    move = turn.move(machine.RolledBack(at=turn.at))
    decision = turn.rollout.rollback
    if not turn.rollout.was_serving_all or decision is None or decision.target is None:
        return move
    former = turn.state.rollouts[decision.target]
    restored = machine.advance(former, machine.Restored(at=turn.at, instead_of=turn.rollout.number))
    return replace(move, state=move.state.with_rollout(restored))


def _live(turn: Turn) -> Move | None:
    # With a hold-back the probation is over when all requests come; without, late labels of the steps are waited for.
    probation = timedelta(seconds=0 if turn.rollout.holds_back else turn.environment.probation_seconds)
    if turn.rollout.trusted or turn.at - turn.rollout.since < probation:
        return None
    first = turn.rollout.proposal.champion is None
    beyond = judging.beyond_limits(turn.world, turn.rollout) if first else ""
    if beyond and turn.goes_on_since <= turn.rollout.since:
        # Taking a first release away would leave nothing that serves.
        return turn.ask(f"release {turn.rollout.release} is not trusted: {beyond}")
    return turn.move(machine.Trusted(at=turn.at))


_STEPS: Final[Mapping[RolloutPhase, Callable[[Turn], Move | None]]] = {
    RolloutPhase.PROPOSED: _proposed,
    RolloutPhase.STARTING: _starting,
    RolloutPhase.STEP: _splitting,
    RolloutPhase.ANALYSING: _analysing,
    RolloutPhase.COMPLETING: _completing,
    RolloutPhase.LIVE: _live,
}
