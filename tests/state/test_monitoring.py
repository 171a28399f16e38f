"""What serves is watched for as long as it serves: alarms are told, recorded, and lead to what was configured."""

import json

import pytest
from jsonschema import Draft202012Validator

from mlgitops.app import deciding, explaining, reading, reporting
from mlgitops.app.context import World
from mlgitops.app.monitoring import AGAIN
from mlgitops.cli import render
from mlgitops.core.driver import ALONE
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import Alarmed
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.core.schemas import schema
from mlgitops.ports.metrics import Arm, Sample
from tests.support.world import ENVIRONMENTS, FOLDER, START, Engine, push, quick_world, settle, state_of, view_of

Scene = tuple[World, Engine]


def scene(*limits: str) -> Scene:
    """Return a world in which a second release serves, trusted, and nothing is under way."""
    text = "".join(f"        - {one}\n" for one in limits)
    monitored = ENVIRONMENTS.replace("    plan: quick\n", f"    plan: quick\n    monitoring:\n      limits:\n{text}")
    world, engine = quick_world(monitored)
    push(world, "one", engine=engine)
    settle(world, engine, 61)
    push(world, "two", engine=engine)
    settle(world, engine, 100)
    state = state_of(world)
    assert state.live is not None
    assert (state.live.number, state.live.trusted) == (2, True)
    return world, engine


def serve(engine: Engine, failed: int, *, wrong: int = 0, number: int = 2, step: int = ALONE) -> None:
    """Let a release that serves everything answer 1,000 requests more."""
    engine.clock.pass_seconds(60)
    before = engine.served.setdefault(number, [])
    last = before[-1] if before else FIRST if step == 0 else None
    before.append(
        Sample(
            at=engine.clock.now(),
            cohort=f"{number}-{step}",
            arm=Arm.BASELINE,
            total=(last.total if last else 0) + 1000,
            failed=(last.failed if last else 0) + failed,
            labelled=(last.labelled if last else 0) + 1000,
            incorrect=(last.incorrect if last else 0) + wrong,
        )
    )


FIRST = Sample(at=START, cohort="1-0", arm=Arm.BASELINE, total=40_000, failed=40, labelled=40_000, incorrect=2_000)
"""What the first release's cohort has counted since it began."""


def alarms(world: World, number: int = 2) -> list[Alarmed]:
    return [one for one in state_of(world).rollouts[number].history if isinstance(one, Alarmed)]


def test_requests_of_what_serves_keep_its_number() -> None:
    """After promotion the router stamps requests with the rollout that serves, and with no step of it."""
    world, engine = scene("{kind: errors, share: 0.02, action: alert}")
    assert f'mlgitops.dev/cohort: "2-{ALONE}"'.encode() in (
        world.repository.snapshot(MAIN).read(f"{FOLDER}/route.yaml") or b""
    )
    serve(engine, 1000)  # which judges no canary: nobody answered beside it
    settle(world, engine, 1)
    assert state_of(world).live is not None


def test_an_alert_is_recorded_once_a_day_and_told() -> None:
    """Trouble that lasts is one alarm with its record, shown by status and explain; after a day it is told again."""
    world, engine = scene("{kind: errors, share: 0.02, action: alert}", "{kind: labels, share: 0.2, action: hold}")
    for _ in range(3):
        serve(engine, 5, wrong=20)
        settle(world, engine, 1)
    assert alarms(world) == []
    before = world.repository.snapshot(LEDGER).revision
    settle(world, engine, 1)
    assert world.repository.snapshot(LEDGER).revision == before
    for _ in range(3):
        serve(engine, 100)
        settle(world, engine, 1)
    (event,) = alarms(world)
    assert (event.limit, state_of(world).hold) == ("errors/alert", None)
    record = view_of(world).ledger.decision("production", "digits", event.decision)
    assert record is not None
    assert [one.message for one in Draft202012Validator(schema("monitoring-record")).iter_errors(dict(record))] == []
    assert record["watch"]["counts"]["bad"] >= 100
    assert record["watch"]["estimate"]["lower"] < record["watch"]["estimate"]["share"]
    assert record["watch"]["highestLogEvidence"] >= record["watch"]["threshold"]
    assert "the limit is 2.0 %" in event.words
    told = reading.status(world)
    assert event.words[:60] in render.status(told | {"push": None}).replace("\n      ", " ")
    validator = Draft202012Validator(schema("output")["$defs"]["status"] | {"$defs": schema("output")["$defs"]})
    assert [one.message for one in validator.iter_errors(json.loads(json.dumps(told | {"push": None})))] == []
    story = explaining.explain(world, "digits", None, state_of(world).champion or "")
    assert any(one["title"] == "Rollout 2, serving all requests, is beyond a limit" for one in story["story"])
    assert json.dumps(reporting.collect(world, "digits", None))
    engine.clock.pass_seconds(AGAIN.total_seconds())
    serve(engine, 0)
    settle(world, engine, 1)
    assert len(alarms(world)) == 1
    serve(engine, 300)
    settle(world, engine, 1)
    assert len(alarms(world)) == 2


def test_a_limit_rolls_back_to_the_last_good_release_and_no_further() -> None:
    """Beyond its limit a trusted release goes back; what serves instead is not taken off by a limit, but held."""
    world, engine = scene("{kind: errors, share: 0.02, action: rollback}")
    serve(engine, 300)
    settle(world, engine, 5)
    state = state_of(world)
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.live is not None
    assert state.live.number == 1
    assert state.rollouts[2].rollback is not None
    name = state.rollouts[2].rollback.decision
    assert (view_of(world).ledger.decision("production", "digits", name) or {})["kind"] == "MonitoringRecord"
    assert state.hold is not None
    deciding.resume(world, "digits", None)
    serve(engine, 300, number=1, step=0)
    settle(world, engine, 3)
    state = state_of(world)
    assert state.live is not None
    assert state.live.number == 1
    (event,) = alarms(world, 1)
    assert "It serves because another was rolled back" in event.words
    assert state.hold is not None


def test_a_first_release_is_held_as_there_is_nothing_to_go_back_to() -> None:
    """Taking a first release away would leave nothing that serves: a person decides."""
    world, engine = quick_world(
        ENVIRONMENTS.replace(
            "    plan: quick\n",
            "    plan: quick\n    monitoring: {limits: [{kind: errors, share: 0.02, action: rollback}]}\n",
        )
    )
    push(world, "one", engine=engine)
    settle(world, engine, 1)
    for _ in range(10):
        serve(engine, 900, number=1, step=0)
    settle(world, engine, 1)
    state = state_of(world)
    assert state.live is not None
    assert state.hold is not None
    assert "There is nothing to go back to" in state.hold.reason


def test_a_hold_and_a_wish_for_training() -> None:
    """A limit may stop automation, or ask for a training: status says so until a newer release was pushed."""
    world, engine = scene("{kind: labels, share: 0.1, action: retrain}", "{kind: labels, share: 0.2, action: hold}")
    serve(engine, 0, wrong=150)
    serve(engine, 0, wrong=150)
    settle(world, engine, 1)
    assert [one.limit for one in alarms(world)] == ["labels/retrain"]
    assert state_of(world).hold is None
    (shown,) = reading.status(world)["models"][0]["environments"][0]["alarms"]
    assert "A new training is asked for" in shown["words"]
    push(world, "three", engine=engine)
    assert reading.status(world)["models"][0]["environments"][0]["alarms"] == []
    serve(engine, 0, wrong=900)
    settle(world, engine, 1)
    state = state_of(world)
    assert state.hold is not None
    assert [one.limit for one in alarms(world)] == ["labels/retrain", "labels/hold"]
    deciding.resume(world, "digits", None)
    assert reading.status(world)["models"][0]["environments"][0]["alarms"] == []


@pytest.mark.parametrize("down", [True, False])
def test_nothing_is_decided_on_what_nobody_counts(down: bool) -> None:
    """Where the metrics cannot be asked, or nothing came, there is no alarm; a rollback of its own accord neither."""
    world, engine = scene("{kind: errors, share: 0.02, action: rollback}", "{kind: labels, share: 0.1, action: hold}")
    if down:
        serve(engine, 1000, wrong=1000)
    engine.metrics_down = down
    settle(world, engine, 2)
    state = state_of(world)
    assert state.live is not None
    assert (state.live.number, state.hold, alarms(world)) == (2, None, [])


def test_a_champion_is_watched_beside_a_canary() -> None:
    """While a canary is out, what its champion answers counts for the champion's limits."""
    world, engine = scene("{kind: errors, share: 0.02, action: rollback}")
    push(world, "three", engine=engine)
    settle(world, engine, 1)
    assert state_of(world).open is not None
    engine.served[3] = []
    serve(engine, 400, number=3, step=1)
    engine.served[3][0] = Sample(
        at=engine.served[3][0].at, cohort="3-1", arm=Arm.BASELINE, total=200_000, failed=80_000, labelled=40_000,
        incorrect=2_000,
    )  # fmt: skip
    settle(world, engine, 5)
    state = state_of(world)
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.rollouts[3].phase is P.ROLLED_BACK
    assert state.live is not None
    assert state.live.number == 1


def test_an_alarm_does_not_restart_the_probation() -> None:
    """A release is on probation for its time, whatever was told meanwhile."""
    world, engine = scene("{kind: errors, share: 0.02, action: alert}")
    since = state_of(world).rollouts[2].since
    serve(engine, 500)
    settle(world, engine, 1)
    assert len(alarms(world)) == 1
    assert state_of(world).rollouts[2].since == since
