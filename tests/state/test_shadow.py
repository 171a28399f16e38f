"""A candidate that is tried on replayed requests before any user meets it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import yaml
from jsonschema import Draft202012Validator

from mlgitops.app import deciding, explaining, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.analysis.shadow import Replayed
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.rollout import Rollout
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.core.schemas import schema
from mlgitops.ports.serving import ReplayRequest
from tests.support.memory import MemoryRepository
from tests.support.world import ENVIRONMENTS, FOLDER, MODEL, Engine, Quality, live, push, quick_world, seen_by, settle

from tests.support.world import state_of, view_of  # isort: skip

GOOD = Quality(accuracy=0.95, wrong=0.05)
FINE = Replayed(tried=200, comparable=200, disagreed=4, seconds=[(0.010, 0.011)] * 200, digest="sha256:" + "0" * 64)
SHADOW = """\
    shadow:
      requests: recorded
      limits: {failed: 0, disagreement: 0.1, latencyRatio: 1.5}
"""


def environments(policy: str = "wait") -> str:
    return (ENVIRONMENTS + SHADOW).replace("insufficientData: wait", f"insufficientData: {policy}")


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world(environments())


def candidate(world: World, engine: Engine, replayed: Replayed | None, *, seconds: float = 1) -> str:
    """Bring a first release to production, push a second, and let time go by; returns the second's name."""
    live(world, engine, "one", GOOD, trusted=True)
    quality = Quality(accuracy=0.97, wrong=0.03, replayed=replayed)
    name = push(world, "two", quality=quality, engine=engine).name
    settle(world, engine, seconds)
    return name


def second(world: World) -> Rollout:
    return state_of(world).rollouts[2]


def weights(world: World) -> set[int]:
    """Return every weight that main ever gave the canary."""
    repository = world.repository
    assert isinstance(repository, MemoryRepository)
    routes = (tree.read(f"{FOLDER}/route.yaml") for _, tree in repository._commits.values())
    return {owned.read_route(data, "r").canary_weight_percent for data in routes if data}


def records(world: World) -> list[Mapping[str, object]]:
    ledger = view_of(world).ledger
    names = [one for one in ledger.decision_names("production", MODEL) if one.startswith("00002-")]
    return [dict(ledger.decision("production", MODEL, one) or {}) for one in names]


def test_a_release_that_answers_what_is_replayed_goes_on(world: tuple[World, Engine]) -> None:
    """It meets users only after the replay, once, with a record of what was seen; then it goes all the way."""
    name = candidate(*world, FINE, seconds=15)
    state, rollout = state_of(world[0]), second(world[0])
    assert (state.champion, rollout.phase) == (name, P.LIVE)
    assert [one.key for one in world[1].replays] == [world[1].replays[0].key]
    first = records(world[0])[0]
    Draft202012Validator(schema("decision-record")).validate(first)
    Draft202012Validator(schema("rollout-record")).validate(rollout.to_mapping())
    assert first["weightPercent"] == 0
    assert first["shadow"]["compared"] == 200  # type: ignore[index]
    assert "4 got another answer" in first["verdict"]["words"]  # type: ignore[index]
    events = [type(one).__name__ for one in rollout.history]
    assert events[:3] == ["Authorised", "ReplayStarted", "CanaryReady"]


BAD: dict[str, tuple[Replayed, str]] = {
    "NaN": (replace(FINE, comparable=199, faults={"not-finite": 1}), "1 with NaN or infinity"),
    "shape": (replace(FINE, comparable=0, disagreed=0, seconds=(), faults={"shape": 200}), "in another shape"),
    "errors": (replace(FINE, comparable=198, faults={"failed": 1, "refused": 1}), "1 failed, 1 refused"),
    "silent": (replace(FINE, comparable=199, faults={"silent": 1}), "1 without an answer in time"),
    "disagreement": (replace(FINE, disagreed=60), "60 got another answer than from the champion (30.0 %, 95 %"),
    "slow": (replace(FINE, seconds=[(0.01, 0.02)] * 200), "It took 2 times as long"),
    "few": (Replayed(tried=3, comparable=2, faults={"failed": 1}, error="the answers took too long"), "1 failed"),
}  # fmt: skip


@pytest.mark.parametrize("how", BAD)
def test_what_a_replay_shows_bad_meets_nobody(world: tuple[World, Engine], how: str) -> None:
    """A candidate beyond a limit goes back without a request of a user, on hold, with number, estimate and interval."""
    replayed, told = BAD[how]
    name = candidate(*world, replayed)
    state, rollout = state_of(world[0]), second(world[0])
    assert rollout.phase is P.ROLLED_BACK
    assert told in rollout.reason
    assert "95 % interval" in rollout.reason
    assert weights(world[0]) == {0}
    assert state.hold is not None
    assert world[0].repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice-canary.yaml") is None
    [record] = records(world[0])
    Draft202012Validator(schema("decision-record")).validate(record)
    assert record["verdict"]["outcome"] == "failed"  # type: ignore[index]
    story = explaining.explain(world[0], MODEL, None, name)["story"]
    assert any("replayed requests" in one["title"] for one in story)
    settle(*world, 15)
    assert len(state_of(world[0]).rollouts) == 2
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert len(state_of(world[0]).rollouts) == 2, "automation never proposes it again"


NOTHING: dict[str, Replayed] = {
    "no requests": Replayed(error="0 recorded requests are there"),
    "champion down": Replayed(tried=200, unusable={"silent": 200}),
    "malformed requests": Replayed(tried=200, unusable={"refused": 180}, comparable=20, seconds=[(0.01, 0.01)] * 20),
    "a server that went away": replace(FINE, tried=60, comparable=60, error="the canary's server went away"),
    "in doubt": replace(FINE, disagreed=24),
    "nothing to compare": replace(FINE, comparable=0, disagreed=0),
}


@pytest.mark.parametrize("how", NOTHING)
@pytest.mark.parametrize("policy", ["wait", "hold"])
def test_no_answer_is_no_pass_and_no_failure(how: str, policy: str) -> None:
    """Without enough to judge by nobody meets it and nothing goes back: the plan says when a person is asked."""
    world, engine = quick_world(environments(policy))
    name = candidate(world, engine, NOTHING[how], seconds=3)
    state = state_of(world)
    assert second(world).phase is P.STARTING
    assert (state.hold is None) is (policy == "wait")
    settle(world, engine, 700, passes=3)
    state = state_of(world)
    assert second(world).phase is P.STARTING
    assert weights(world) == {0}
    assert state.hold is not None
    assert "what is replayed to the canary has no answer: Undecided" in state.hold.reason
    assert records(world) == []
    engine.qualities[name].replayed = FINE
    deciding.resume(world, MODEL, None)
    settle(world, engine, 15)
    assert state_of(world).champion == name
    assert len(engine.replays) == 2, "a person who resumes asks anew"


def test_a_canary_that_starts_again_while_requests_are_awaited_is_not_taken_back(world: tuple[World, Engine]) -> None:
    """A server that was ready once and is loaded again says nothing about its release."""
    name = candidate(*world, None)
    for _ in range(4):  # longer than a canary may take to start
        settle(*world, 200, passes=1)
    world[1].broken = True
    settle(*world, 1, passes=3)
    assert second(world[0]).phase is P.STARTING
    assert state_of(world[0]).hold is None
    world[1].broken = False
    world[1].qualities[name].replayed = FINE
    settle(*world, 15)
    assert state_of(world[0]).champion == name


def test_a_canary_that_stays_away_is_asked_about(world: tuple[World, Engine]) -> None:
    """One that was ready and never is again holds for a person, after the time to start and the time to wait."""
    candidate(*world, None)
    world[1].broken = True
    settle(*world, 700, passes=4)
    hold = state_of(world[0]).hold
    assert hold is not None
    assert "the canary's service is not ready" in hold.reason


class Deaf(Engine):
    """An engine that cannot be asked for replays."""

    deaf = True

    def replay(self, request: ReplayRequest) -> Replayed | None:
        if self.deaf:
            raise Unavailable("embedded serving", "the engine does not run")
        return super().replay(request)


def test_an_engine_that_cannot_be_asked_decides_nothing(world: tuple[World, Engine]) -> None:
    """While nobody answers the rollout stays where it is, and goes on afterwards when somebody does."""
    engine = Deaf(**{name: getattr(world[1], name) for name in Engine.__dataclass_fields__})
    mine = seen_by(engine, world[0].repository)
    name = candidate(mine, engine, FINE)
    assert second(mine).phase is P.STARTING
    engine.deaf = False
    settle(mine, engine, 15)
    assert state_of(mine).champion == name


def test_a_first_release_is_not_replayed_to(world: tuple[World, Engine]) -> None:
    """Without a champion there is nothing to compare with: gates and readiness decide, as without a shadow."""
    live(*world, "one", GOOD)
    assert world[1].replays == []


def test_a_person_ends_it_while_requests_are_replayed(world: tuple[World, Engine]) -> None:
    """A rejected release goes back at once, whatever the replay would say."""
    name = candidate(*world, None)
    rollbacks.reject(world[0], MODEL, name, reason="licence")
    settle(*world, 1)
    assert second(world[0]).phase is P.ROLLED_BACK
    assert weights(world[0]) == {0}


class Dying(MemoryRepository):
    """A repository whose process dies at one of its writes, before or after it."""

    def __init__(self, below: MemoryRepository, at: int, *, after: bool) -> None:
        self._commits, self.tips, self._identity = below._commits, below.tips, below._identity
        self._left, self._after = at, after

    def update(self, ref: str, expected: str | None, changes: object) -> str | None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise KeyboardInterrupt
        done = super().update(ref, expected, changes)  # type: ignore[arg-type]
        if self._left == 0:
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("replayed", [FINE, BAD["NaN"][0]], ids=["good", "bad"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 9))
def test_killed_at_any_write_nothing_is_doubled(replayed: Replayed, write: int, *, after: bool) -> None:
    """Whichever write it dies at, one replay is asked for, one record says what it showed, and the end is the same."""
    world, engine = quick_world(environments())
    name = candidate(world, engine, None)
    engine.qualities[name].replayed = replayed
    memory = world.repository
    assert isinstance(memory, MemoryRepository)
    try:
        dying = replace(world, repository=Dying(memory, write, after=after))
        for _ in range(6):
            engine.clock.pass_seconds(15)
            reconcile(dying)
    except KeyboardInterrupt:
        pass
    settle(world, engine, 15)
    good = replayed is FINE
    assert second(world).phase is (P.LIVE if good else P.ROLLED_BACK)
    assert len(engine.replays) == 1
    assert sum("shadow" in one for one in records(world)) == 1
    assert good or weights(world) == {0}


def test_the_plan_is_part_of_what_was_asked(world: tuple[World, Engine]) -> None:
    """The replay is asked for with the digests of both sides and the plan's own limits, as when it was authorised."""
    candidate(*world, FINE)
    request, state = world[1].replays[0], state_of(world[0])
    digests = [
        view_of(world[0]).ledger.release(MODEL, state.rollouts[number].release).artifact_digest for number in (1, 2)
    ]
    assert [request.baseline_digest, request.canary_digest] == digests
    assert (request.shadow.disagreement, request.shadow.minimum, request.shadow.requests) == (0.1, 50, "recorded")
    plan = yaml.safe_load(environments())["plans"][0]
    assert plan["shadow"]["limits"] == second(world[0]).proposal.plan["shadow"]["limits"]
