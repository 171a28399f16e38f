"""One rollout's way through an environment: what the next move is, from the ledger, `main` and what is observed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from mlgitops.app import judging
from mlgitops.app.absorbing import absorb, waiting_for
from mlgitops.app.context import View, World
from mlgitops.app.evaluating import MODEL_FILE, all_gates, judged
from mlgitops.app.moves import AUTOMATION, Move, now, put, rolled_back, target_of
from mlgitops.app.promoting import automatic_promotion
from mlgitops.app.writing import write
from mlgitops.core import diary, driver
from mlgitops.core import rollout as machine
from mlgitops.core.analysis.verdict import Outcome
from mlgitops.core.configuration import Environment
from mlgitops.core.errors import NotFound
from mlgitops.core.events import moment, stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.loading import load_model
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.projection import Desired
from mlgitops.core.rollout import Rollout, RolloutPhase
from mlgitops.ports.repository import Change
from mlgitops.ports.serving import ServiceObservation, ServingObservation


def advance_environment(world: World, environment: str, model: str) -> bool:
    """Make the next move of one model in one environment; returns whether anything was written.

    Raises:
        MlgitopsError: Something could not be found out; nothing was half-written.
    """

    def decide(view: View) -> str | None:
        unit, folder, state = _unit(view, environment, model)
        move = absorb(world, view, unit, folder, state) or _next(world, view, unit, state)
        return None if move is None else put(view, move)

    def project(view: View) -> Sequence[Change]:
        unit, folder, state = _unit(view, environment, model)
        return projected(view, folder, state) or automatic_promotion(world, view, unit, folder, state)

    return write(world, decide, project)


def _unit(view: View, environment: str, model: str) -> tuple[Environment, Folder, EnvironmentState]:
    configuration = view.configuration
    unit = configuration.environment(environment)
    if unit is None:
        raise NotFound("environment", environment, [one.name for one in configuration.environments])
    return unit, folder_of(view, unit, model), view.ledger.state(environment, model)


def folder_of(view: View, environment: Environment, model: str) -> Folder:
    """Return where a model's manifests for an environment are."""
    last = view.ledger.last_submitted(model)
    text = last.submission.configuration.encode() if last else None
    serving = load_model(text, MODEL_FILE).serving if text else {}
    return Folder(environment=environment.name, model=model, namespace=environment.namespace, serving=serving)


def projected(view: View, folder: Folder, state: EnvironmentState) -> Sequence[Change]:
    """Return the commit that brings `main` to the ledger's generation; none when it is there."""
    asked = folders.rollout(view.main.read, folder)
    pending = asked is not None and asked.number > state.last_number
    if state.foreign is not None or pending or folders.generation(view.main.read, folder) >= state.generation:
        return ()
    files = folders.project(view.main.read, folder, state.desired, state.generation)
    trailers = {"Mlgitops-Generation": f"{state.environment}/{state.model} {state.generation}"}
    return (Change(message=diary.projection(state), files=files, trailers=trailers),)


def _next(world: World, view: View, environment: Environment, state: EnvironmentState) -> Move | None:
    rollout = state.open or state.live
    if rollout is None or state.foreign is not None:
        return None
    if folders.generation(view.main.read, folder_of(view, environment, state.model)) < state.generation:
        return None  # the last decision is not on main yet: show it first
    unsafe = _unsafe(world, view, state, rollout)
    if unsafe is not None:
        return unsafe
    if state.hold is not None and rollout.phase is not RolloutPhase.ROLLING_BACK and rollout.is_open:
        return None
    steps = {
        RolloutPhase.PROPOSED: _proposed,
        RolloutPhase.STARTING: _starting,
        RolloutPhase.STEP: _splitting,
        RolloutPhase.ANALYSING: _analysing,
        RolloutPhase.COMPLETING: _completing,
        RolloutPhase.ROLLING_BACK: _rolling_back,
        RolloutPhase.LIVE: _live,
    }
    return steps[rollout.phase](world, view, environment, state, rollout)


def _unsafe(world: World, view: View, state: EnvironmentState, rollout: Rollout) -> Move | None:
    """Look whether the canary harms, in every state in which it meets users or its late labels come."""
    judging_phases = (RolloutPhase.STEP, RolloutPhase.ANALYSING, RolloutPhase.COMPLETING, RolloutPhase.LIVE)
    if rollout.phase not in judging_phases or rollout.trusted or rollout.proposal.champion is None:
        return _too_old(world, state, rollout)
    verdict = judging.judge(world, rollout)
    if verdict.outcome is not Outcome.FAILED:
        return _too_old(world, state, rollout)
    record = judging.record(world, view, rollout, verdict)
    changed = rolled_back(state, rollout, AUTOMATION, verdict.words, now(world), record.name)
    return Move.of(changed, changed.rollouts[rollout.number], record=record)


def _too_old(world: World, state: EnvironmentState, rollout: Rollout) -> Move | None:
    age = now(world) - rollout.proposal.proposed_at
    limit = timedelta(seconds=rollout.proposal.plan["maximumAgeSeconds"])
    moved = rollout.phase in machine.MOVED and rollout.phase is not RolloutPhase.LIVE
    if not moved or age <= limit:
        return None
    return _back(world, state, rollout, f"it was under way for longer than {limit}")


def _back(world: World, state: EnvironmentState, rollout: Rollout, reason: str) -> Move:
    changed = rolled_back(state, rollout, AUTOMATION, reason, now(world))
    return Move.of(changed, changed.rollouts[rollout.number])


def _proposed(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    if waiting_for(environment, state, rollout, now(world)):
        return None
    release = view.ledger.release(state.model, rollout.release)
    champion = view.ledger.release(state.model, state.live.release) if state.live else None
    result = judged(world, view, release, champion, all_gates(release, environment.gates))
    if result is None:
        return None
    before = view.configuration.before(environment.name)
    refusals = list(result.refusals)
    if before is not None and not rollout.proposal.forced and not _trusted(view, before.name, rollout):
        refusals.append(f"release {rollout.release} is not trusted in {before.name} yet")
    event: machine.Event
    if result.error:
        event = machine.Errored(at=now(world), reason=result.error)
    elif refusals:
        event = machine.Refused(at=now(world), reason="; ".join(refusals), report=result.key)
    else:
        event = machine.Authorised(at=now(world), report=result.key)
    moved = machine.advance(rollout, event)
    reports = {result.key: result.report} if result.report is not None else {}
    return replace(Move.of(state.with_rollout(moved), moved), reports=reports)


def _trusted(view: View, environment: str, rollout: Rollout) -> bool:
    tried = view.ledger.state(environment, rollout.proposal.model).tried(rollout.release)
    return any(one.trusted and one.rollback is None for one in tried)


def _missing(world: World, view: View, state: EnvironmentState) -> str:
    """Say what of the desired state is not observed yet; empty when all of it is."""
    wanted = driver.desired(state, lambda release: target_of(view, state.model, release))
    seen = world.serving.observe(state.environment, state.model)
    return unobserved(wanted, seen)


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


def _starting(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    missing = _missing(world, view, state)
    if missing:
        return _late(world, environment, state, rollout, missing)
    at = now(world)
    event = machine.CanaryReady(at=at) if state.live is not None else machine.ServingAll(at=at)
    moved = machine.advance(rollout, event)
    return Move.of(state.with_rollout(moved), moved)


def _late(
    world: World, environment: Environment, state: EnvironmentState, rollout: Rollout, missing: str
) -> Move | None:
    if now(world) - rollout.since <= timedelta(seconds=environment.start_seconds):
        return None
    return _back(world, state, rollout, f"after {environment.start_seconds:g} s {missing}")


def _splitting(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    missing = _missing(world, view, state)
    if missing:
        return _late(world, environment, state, rollout, missing)
    moved = machine.advance(rollout, machine.SplitObserved(at=now(world)))
    return Move.of(state.with_rollout(moved), moved)


def _analysing(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    verdict = judging.judge(world, rollout)
    if verdict.outcome is not Outcome.PASSED:
        return _inconclusive(world, state, rollout, verdict.words)
    record = judging.record(world, view, rollout, verdict)
    last = rollout.step + 1 >= len(rollout.proposal.weights)
    kind = machine.LastStepPassed if last else machine.StepPassed
    moved = machine.advance(rollout, kind(at=now(world), decision=record.name))
    return Move.of(state.with_rollout(moved), moved, record=record)


def _inconclusive(world: World, state: EnvironmentState, rollout: Rollout, words: str) -> Move | None:
    """Wait, then hold for a person; never promote, never roll back a healthy model."""
    plan = rollout.proposal.plan
    resumed = moment(state.resumed_at) if state.resumed_at else rollout.since
    waited = now(world) - max(rollout.since, resumed)
    extension = plan["extendSeconds"] if plan["insufficientData"] == "wait" else 0
    if waited <= timedelta(seconds=plan["steps"][rollout.step]["seconds"] + extension):
        return None
    hold = Hold(by=AUTOMATION, reason=f"step {rollout.step + 1} has no answer: {words}", at=stamp(now(world)))
    message = f"hold({state.model}): {state.environment} waits for a person\n\n{hold.reason}\n"
    return Move(state=replace(state, hold=hold), message=message)


def _completing(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    missing = _missing(world, view, state)
    if missing:
        return _late(world, environment, state, rollout, missing)
    parts = driver.completing(rollout, state, lambda release: target_of(view, state.model, release))
    if rollout.part + 1 < len(parts):
        moved = machine.advance(rollout, machine.PartReached(at=now(world)))
        return Move.of(state.with_rollout(moved), moved)
    moved = machine.advance(rollout, machine.ServingAll(at=now(world)))
    changed = state.with_rollout(moved)
    if state.live is not None:
        retired = machine.Retired(at=now(world), by_rollout=rollout.number)
        changed = changed.with_rollout(machine.advance(state.live, retired))
    return Move.of(changed, moved)


def _rolling_back(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    missing = _missing(world, view, state)
    if missing:
        world.observer.note(f"{state.model} in {environment.name}: rolling back, {missing}")
        return None
    parts = driver.rolling_back(rollout, state, lambda release: target_of(view, state.model, release))
    if rollout.part + 1 < len(parts):
        moved = machine.advance(rollout, machine.PartReached(at=now(world)))
        return Move.of(state.with_rollout(moved), moved)
    moved = machine.advance(rollout, machine.RolledBack(at=now(world)))
    changed = state.with_rollout(moved)
    decision = rollout.rollback
    if rollout.was_serving_all and decision is not None and decision.target is not None:
        restored = machine.Restored(at=now(world), instead_of=rollout.number)
        changed = changed.with_rollout(machine.advance(state.rollouts[decision.target], restored))
    return Move.of(changed, moved)


def _live(
    world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout
) -> Move | None:
    del view
    if rollout.trusted or now(world) - rollout.since < timedelta(seconds=environment.probation_seconds):
        return None
    moved = machine.advance(rollout, machine.Trusted(at=now(world)))
    return Move.of(state.with_rollout(moved), moved)
