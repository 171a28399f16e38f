"""The two-service driver: what `main` must say at each point of a rollout, and whether it is observed.

A rollout is a list of (edit, expected observation); rolling back is one too. Each entry is a `Desired` value: the edit
is the projection of that value onto `main`, the expected observation is that the engine really serves it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.projection import Desired, Target
from mlgitops.core.rollout import Rollout, RolloutPhase

ALONE: Final = 1000
"""The step of requests that a release answers alone, after promotion; a plan has far fewer."""
Resolve = Callable[[str], Target]
"""From a release's name to where its model is."""
TWINS_WEIGHT: Final = 50
"""Percent of requests that each of two twins gets: equal groups show noise soonest."""
TWINS_PART: Final = 3
"""Part of completing in which they are compared."""


def fields(rollout: Rollout) -> RolloutFields:
    """Return what `rollout.yaml` says for a rollout."""
    proposal = rollout.proposal
    return RolloutFields(
        number=rollout.number,
        release=rollout.release,
        plan=str(proposal.plan["name"]),
        plan_digest=proposal.plan_digest,
    )


def desired(state: EnvironmentState, resolve: Resolve) -> Desired:
    """Return what `main` must say for the state as it is."""
    rollout, live = state.open, state.live
    steady = Desired() if live is None else _alone(live, resolve)
    if rollout is None:
        return steady
    phase = rollout.phase
    match phase:
        case RolloutPhase.PROPOSED:
            return replace(steady, rollout=fields(rollout))
        case RolloutPhase.STARTING | RolloutPhase.STEP | RolloutPhase.ANALYSING:
            return _opening(rollout, state, resolve)
        case RolloutPhase.COMPLETING:
            return completing(rollout, state, resolve)[rollout.part]
        case RolloutPhase.ROLLING_BACK:
            return rolling_back(rollout, state, resolve)[rollout.part]
        case (
            RolloutPhase.LIVE
            | RolloutPhase.RETIRED
            | RolloutPhase.ROLLED_BACK
            | RolloutPhase.WITHDRAWN
            | RolloutPhase.REFUSED
            | RolloutPhase.ERRORED
        ):
            return steady
        case _:
            assert_never(phase)


def completing(rollout: Rollout, state: EnvironmentState, resolve: Resolve) -> tuple[Desired, ...]:
    """Return the parts of completing: all traffic to the canary, the champion's place taken, back, canary gone.

    Where the plan measures noise, both services of the new release share the traffic before it goes back.
    """
    new = resolve(rollout.release)
    final = _alone(rollout, resolve)
    away = replace(final, canary=new, weight_percent=100, cohort=cohort(rollout, len(rollout.proposal.weights) + 1))
    champion = None if state.live is None else resolve(state.live.release)
    # Of two equal parts, the first is over when it is observed, and the second when its time is.
    twins = replace(away, weight_percent=TWINS_WEIGHT, cohort=twins_cohort(rollout))
    compared = (twins, twins) if rollout.proposal.plan.get("noiseSeconds") else ()
    return (replace(away, stable=champion), away, *compared, replace(final, canary=new), final)


def compares_twins(rollout: Rollout) -> bool:
    """Say whether two services of the new release share the traffic now, to be compared until the time is over."""
    completing = rollout.phase is RolloutPhase.COMPLETING
    return completing and rollout.part == TWINS_PART and bool(rollout.proposal.plan.get("noiseSeconds"))


def rolling_back(rollout: Rollout, state: EnvironmentState, resolve: Resolve) -> tuple[Desired, ...]:
    """Return the parts of rolling back: the first takes all traffic off the canary, the last restores."""
    decision = rollout.rollback
    target = _landing(state, decision.target if decision else None)
    if target is None:
        return (Desired(),)
    restored = _alone(target, resolve)
    if rollout.was_serving_all:
        return (restored,)
    return (replace(restored, canary=resolve(rollout.release)), restored)


def _landing(state: EnvironmentState, number: int | None) -> Rollout | None:
    """Return where a rollback ends: what it returns to may be on its way back itself."""
    while number is not None:
        target = state.rollouts[number]
        if target.phase is not RolloutPhase.ROLLING_BACK:
            return target
        number = target.rollback.target if target.rollback else None
    return None


def _alone(rollout: Rollout, resolve: Resolve) -> Desired:
    """Return what `main` says while a rollout serves everything; its requests keep its number, to be watched by."""
    return Desired(rollout=fields(rollout), stable=resolve(rollout.release), cohort=alone(rollout))


def alone(rollout: Rollout) -> str:
    """Return what the router stamps on requests while a rollout serves everything: no step of a rollout is this one.

    A first one has no steps, and serves everything from its beginning.
    """
    return cohort(rollout, 0 if rollout.proposal.champion is None else ALONE)


def twins_cohort(rollout: Rollout) -> str:
    """Return what the router stamps on requests while twins share the traffic: nothing of it judges the rollout."""
    return cohort(rollout, len(rollout.proposal.weights) + 2)


def cohort(rollout: Rollout, step: int) -> str:
    """Return what the router stamps on requests at a step, counted from 1; 0 before the first."""
    return f"{rollout.number}-{step}"


def _opening(rollout: Rollout, state: EnvironmentState, resolve: Resolve) -> Desired:
    new = resolve(rollout.release)
    if state.live is None:
        return _alone(rollout, resolve)
    started = rollout.phase is not RolloutPhase.STARTING
    return Desired(
        rollout=fields(rollout),
        stable=resolve(state.live.release),
        canary=new,
        weight_percent=rollout.proposal.weights[rollout.step] if started else 0,
        cohort=cohort(rollout, rollout.step + 1 if started else 0),
    )
