"""Watching what serves after promotion: from counts and limits to an alarm, its record, and what follows."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from mlgitops.app.context import View, World
from mlgitops.app.judging import next_name, thinned
from mlgitops.app.moves import AUTOMATION, Move, Record, now, rolled_back
from mlgitops.core import driver
from mlgitops.core import rollout as machine
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.noise import DEFAULT_DISPERSION
from mlgitops.core.analysis.watching import Watch, measure_of, watch
from mlgitops.core.configuration import Environment, Monitoring, ServiceLimit
from mlgitops.core.events import stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.rollout import Rollout, RolloutPhase

AGAIN: Final = timedelta(days=1)
"""After an alarm its limit is watched anew from then on: trouble that lasts is told once a day, not at every look."""
REMEMBERED: Final = 4_096
"""Watches whose last answer is kept in the process."""


class _Memory:
    """The last answer of each watch: most looks see nothing new."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], tuple[Sequence[Sample], Watch | None]] = OrderedDict()
        self._one_at_a_time = Lock()

    def watch(self, key: tuple[object, ...], samples: Sequence[Sample]) -> tuple[bool, Watch | None]:
        """Return whether the answer for these samples is known, and the answer."""
        with self._one_at_a_time:
            known = self._known.get(key)
            return (True, known[1]) if known is not None and known[0] == samples else (False, None)

    def keep(self, key: tuple[object, ...], samples: Sequence[Sample], found: Watch | None) -> None:
        """Keep an answer; the oldest go first."""
        with self._one_at_a_time:
            self._known[key] = (samples, found)
            self._known.move_to_end(key)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


_remembered = _Memory()


def alarm(world: World, view: View, environment: Environment, state: EnvironmentState, rollout: Rollout) -> Move | None:
    """Return what follows from the first limit that a LIVE rollout is beyond; None where it is beyond none.

    Raises:
        Unavailable: The metrics cannot be asked.
    """
    monitoring = environment.monitoring
    if monitoring is None or rollout.phase is not RolloutPhase.LIVE:
        return None
    # What takes a release off comes before what only tells.
    gravest_first = sorted(
        monitoring.limits, key=lambda one: ("rollback", "hold", "retrain", "alert").index(one.action)
    )
    due = [limit for limit in gravest_first if now(world) >= _begin(rollout, limit)]
    samples = _samples(world, state, rollout) if due else ()
    for limit in due:
        found = _watched(world, rollout, monitoring, limit, samples)
        if found is not None and found.is_alarm:
            return _move(view, state, rollout, found, alpha=monitoring.alpha, at=now(world))
    return None


def _since(rollout: Rollout) -> datetime:
    """Return when a rollout came to serve last."""
    times = [one.at for one in rollout.history if isinstance(one, machine.ServingAll | machine.Restored)]
    return times[-1] if times else rollout.since


def _begin(rollout: Rollout, limit: ServiceLimit) -> datetime:
    """Return when a limit's watch began, or is to begin."""
    raised = [one.at + AGAIN for one in rollout.history if isinstance(one, machine.Alarmed) and one.limit == limit.name]
    return max([_since(rollout), *raised[-1:]])


def _samples(world: World, state: EnvironmentState, rollout: Rollout) -> tuple[Sample, ...]:
    """Return the counts of a release while it serves: alone, and as the champion beside canaries."""
    proposal = rollout.proposal
    ask = (proposal.environment, proposal.model)
    found = [one for one in world.metrics.samples(*ask, rollout.number) if one.cohort == driver.alone(rollout)]
    later = (state.rollouts[number] for number in sorted(state.rollouts) if number > rollout.number)
    for other in (one for one in later if one.proposal.champion == rollout.number):
        beside = {driver.cohort(other, step) for step in range(len(other.proposal.weights) + 1)}
        found += [one for one in world.metrics.samples(*ask, other.number) if one.cohort in beside]
    return tuple(one for one in found if one.arm is Arm.BASELINE)


def _watched(
    world: World, rollout: Rollout, monitoring: Monitoring, limit: ServiceLimit, samples: tuple[Sample, ...]
) -> Watch | None:
    proposal, begin = rollout.proposal, _begin(rollout, limit)
    if samples and measure_of(limit, samples)[0] is None and any(one.total for one in samples):
        where = f"{proposal.model} in {proposal.environment}"
        world.observer.note(
            f"{where}: nothing counts requests by a time of {limit.seconds:g} s or more: no latency bucket"
        )
    alpha = monitoring.alpha / len(monitoring.limits)
    noise = monitoring.dispersion or proposal.plan.get("dispersion") or DEFAULT_DISPERSION
    key = (proposal.environment, proposal.model, rollout.number, limit, alpha, noise, begin)
    known, found = _remembered.watch(key, samples)
    if not known:
        served_before = any(isinstance(one, machine.Restored) for one in rollout.history)
        fresh = begin == _since(rollout) and not served_before
        found = watch(samples, limit, alpha=alpha, dispersion=noise, begin=begin, fresh=fresh)
        _remembered.keep(key, samples, found)
    return found


def _move(view: View, state: EnvironmentState, rollout: Rollout, found: Watch, *, alpha: float, at: datetime) -> Move:
    """Return what an alarm leads to, as the limit says, and as far as it can."""
    action = found.limit.action
    cannot = _no_way_back(state, rollout) if action == "rollback" else ""
    kept = record(view, rollout, found, alpha=alpha, at=at, cannot=cannot)
    told = str(kept.values["verdict"]["words"])
    if action == "rollback" and not cannot:
        changed = rolled_back(state, rollout, AUTOMATION, told, at, kept.name)
        return Move.of(changed, changed.rollouts[rollout.number], record=kept)
    event = machine.Alarmed(at=at, limit=found.limit.name, words=told, decision=kept.name)
    moved = machine.advance(rollout, event)
    changed = state.with_rollout(moved)
    if action in ("hold", "rollback") and state.hold is None:
        changed = replace(changed, hold=Hold(by=AUTOMATION, reason=told, at=stamp(at)))
    return Move.of(changed, moved, record=kept)


def _no_way_back(state: EnvironmentState, rollout: Rollout) -> str:
    """Say why a release that serves is not taken off by a limit alone; empty where it is."""
    if any(isinstance(one, machine.Restored) for one in rollout.history):
        return "It serves because another was rolled back: going back further is for a person to decide."
    if state.last_good(rollout.number) is None:
        return "There is nothing to go back to."
    return ""


def record(view: View, rollout: Rollout, found: Watch, *, alpha: float, at: datetime, cannot: str = "") -> Record:
    """Return the record of an alarm: what was seen, why it was enough, and what follows."""
    proposal, name = rollout.proposal, next_name(view, rollout, "alarm")
    follows = {
        "alert": "People are told.",
        "hold": "Automation is on hold.",
        "rollback": f"{cannot} Automation is on hold." if cannot else "All requests go back to the last good release.",
        "retrain": "A new training is asked for: push newer data or code.",
    }[found.limit.action]
    told = f"Beyond a limit: {found.words} {follows}"
    values = {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "MonitoringRecord",
        "name": name,
        "at": stamp(at),
        "environment": proposal.environment,
        "model": proposal.model,
        "rollout": rollout.number,
        "release": rollout.release,
        "verdict": {"outcome": "alarm", "words": told, "alpha": alpha},
        "watch": found.to_mapping(),
        "course": [[stamp(at), round(log, 3)] for at, log in thinned(found.course) if math.isfinite(log)],
    }
    head = f"# alarm: release {rollout.release} in {proposal.environment}, rollout {rollout.number}\n"
    return Record(name=name, values=values, words=f"{head}\n{told}\n")
