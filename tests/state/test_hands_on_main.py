"""What people write on `main` themselves: promotions, reverts, edits, and histories rewritten."""

from collections.abc import Mapping

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import InvalidInput, MlgitopsError, NotFound
from mlgitops.core.loading import load_rollout
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.memory import Interposed, Killed, MemoryRepository, edited
from tests.support.world import (
    FOLDER,
    MODEL,
    Engine,
    Quality,
    live,
    push,
    quick_world,
    seen_by,
    settle,
    state_of,
    view_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
ROLLOUT = f"{FOLDER}/rollout.yaml"
SERVICE = f"{FOLDER}/inferenceservice.yaml"
CANARY = f"{FOLDER}/inferenceservice-canary.yaml"


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world()


def read(world: World, path: str) -> bytes:
    data = world.repository.snapshot(MAIN).read(path)
    assert data is not None
    return data


def files(world: World) -> dict[str, bytes | None]:
    main = world.repository.snapshot(MAIN)
    return {path: main.read(path) for path in main.paths(FOLDER) if not path.endswith("generation")}


def asks(world: World) -> RolloutFields:
    return load_rollout(read(world, ROLLOUT), ROLLOUT)


def write(world: World, changes: Mapping[str, bytes | None]) -> None:
    edited(world.repository, MAIN, changes)


def promoted_by_hand(world: World, **fields: object) -> None:
    """Write a promotion with an editor."""
    wanted = {**vars(asks(world)), "number": state_of(world).last_number + 1, **fields}
    write(world, {ROLLOUT: owned.edit_rollout(read(world, ROLLOUT), ROLLOUT, RolloutFields(**wanted))})


def candidate(world: World, engine: Engine, code: str, quality: Quality = BETTER) -> str:
    """Bring a release to CANDIDATE and no further."""
    deciding.hold(world, MODEL, None, reason="by hand this time")
    name = push(world, code, quality=quality, engine=engine).name
    settle(world, engine, 1, passes=3)
    deciding.resume(world, MODEL, None)
    return name


def under_way(world: World, engine: Engine, code: str = "two", quality: Quality = BETTER) -> str:
    release = push(world, code, quality=quality, engine=engine)
    settle(world, engine, 0.2, passes=4)
    assert state_of(world).rollouts[state_of(world).last_number].phase is P.ANALYSING
    return release.name


def test_promotion_of_an_unknown_release_is_refused(world: tuple[World, Engine]) -> None:
    """A promotion that nobody can carry out ends REFUSED, and main shows the champion's rollout again."""
    live(*world, "one", GOOD)
    before = files(world[0])
    promoted_by_hand(world[0], release="0123456789ab")
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.REFUSED
    assert state_of(world[0]).rollouts[2].proposal.by == "Bob <bob@example.org>"
    assert files(world[0]) == before


def test_promotion_with_another_plan_digest_is_refused(world: tuple[World, Engine]) -> None:
    """A digest that is not the plan's refuses, whatever the plan's name."""
    live(*world, "one", GOOD)
    second = candidate(*world, "two")
    before = files(world[0])
    promoted_by_hand(world[0], release=second, plan_digest="sha256:" + "0" * 64)
    reconcile(world[0])
    assert state_of(world[0]).rollouts[2].phase is P.REFUSED
    assert asks(world[0]).number == 1
    assert files(world[0]) == before


def test_promotion_while_a_rollout_is_under_way_is_refused(world: tuple[World, Engine]) -> None:
    """There is one rollout at a time: the second is refused, the first goes on, and main shows the first again."""
    first = live(*world, "one", GOOD)
    second = under_way(*world)
    promoted_by_hand(world[0], release=first)
    reconcile(world[0])
    state = state_of(world[0])
    assert (state.rollouts[2].phase, state.rollouts[3].phase) == (P.ANALYSING, P.REFUSED)
    assert (asks(world[0]).number, asks(world[0]).release) == (2, second)
    settle(*world, 15)
    assert state_of(world[0]).champion == second


def test_promotion_that_skips_a_number_changes_nothing(world: tuple[World, Engine]) -> None:
    """A number that the ledger cannot know stops the model, for a rollback by hand too, until it is mended."""
    live(*world, "one", GOOD)
    right = read(world[0], ROLLOUT)
    promoted_by_hand(world[0], number=9)
    before = [world[0].repository.snapshot(ref).revision for ref in (MAIN, LEDGER)]
    assert any("restore it first" in str(one) for one in reconcile(world[0]).problems)
    with pytest.raises(Exception, match="restore it first"):
        rollbacks.rollback(world[0], MODEL, None, reason="x")
    assert [world[0].repository.snapshot(ref).revision for ref in (MAIN, LEDGER)] == before
    write(world[0], {ROLLOUT: right})
    assert reconcile(world[0]).problems == []


def test_promotion_reverted_before_it_was_taken_up_leaves_no_trace(world: tuple[World, Engine]) -> None:
    """A promotion that stood on main between two passes only never became a rollout."""
    first = live(*world, "one", GOOD)
    second = candidate(*world, "two")
    deciding.hold(world[0], MODEL, None, reason="by hand")
    right = read(world[0], ROLLOUT)
    promoted_by_hand(world[0], release=second)
    write(world[0], {ROLLOUT: right})
    settle(*world, 1)
    assert state_of(world[0]).champion == first
    assert state_of(world[0]).last_number == 1


def test_revert_of_a_waiting_promotion_withdraws_it(world: tuple[World, Engine]) -> None:
    """A promotion that waits is withdrawn by its revert; what serves is left alone, however often one looks."""
    first = live(*world, "one", GOOD)
    second = candidate(*world, "two")
    deciding.hold(world[0], MODEL, None, reason="wait")
    right = read(world[0], ROLLOUT)
    promoted_by_hand(world[0], release=second)
    reconcile(world[0])
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED
    write(world[0], {ROLLOUT: right})
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.WITHDRAWN
    assert state_of(world[0]).champion == first


def test_a_revert_that_was_answered_is_not_answered_again(world: tuple[World, Engine]) -> None:
    """A process that ends between the ledger and main does not turn a withdrawal into a rollback of the champion."""
    first = live(*world, "one", GOOD)
    second = candidate(*world, "two")
    deciding.hold(world[0], MODEL, None, reason="wait")
    right = read(world[0], ROLLOUT)
    promoted_by_hand(world[0], release=second)
    reconcile(world[0])
    write(world[0], {ROLLOUT: right})

    def killed(_: int, ref: str) -> None:
        if ref == MAIN:
            raise Killed

    with pytest.raises(Killed):
        reconcile(seen_by(world[1], Interposed(world[0].repository, before_write=killed)))
    assert state_of(world[0]).rollouts[2].phase is P.WITHDRAWN
    settle(*world, 1)
    assert state_of(world[0]).champion == first
    assert state_of(world[0]).rollouts[1].phase is P.LIVE


def test_reverting_two_promotions_at_once_goes_back_by_two(world: tuple[World, Engine]) -> None:
    """A waiting promotion and the one that serves, both reverted before anybody looked: both are answered."""
    first = live(*world, "one", GOOD, trusted=True)
    right = read(world[0], ROLLOUT)
    live(*world, "two", BETTER)
    third = candidate(*world, "three")
    deciding.hold(world[0], MODEL, None, reason="wait")
    promoted_by_hand(world[0], release=third)
    reconcile(world[0])
    write(world[0], {ROLLOUT: right})
    settle(*world, 1)
    state = state_of(world[0])
    assert [state.rollouts[number].phase for number in (1, 2, 3)] == [P.LIVE, P.ROLLED_BACK, P.WITHDRAWN]
    assert state.champion == first


def test_revert_of_what_serves_while_a_canary_goes_back(world: tuple[World, Engine]) -> None:
    """A revert of the champion's promotion is answered although another rollback is under way."""
    first = live(*world, "one", GOOD, trusted=True)
    right = read(world[0], ROLLOUT)
    live(*world, "two", BETTER, trusted=True)
    under_way(*world, "three")
    rollbacks.rollback(world[0], MODEL, None, reason="three is bad")
    assert state_of(world[0]).rollouts[3].phase is P.ROLLING_BACK
    write(world[0], {ROLLOUT: right})
    settle(*world, 1)
    state = state_of(world[0])
    assert [state.rollouts[number].phase for number in (1, 2, 3)] == [P.LIVE, P.ROLLED_BACK, P.ROLLED_BACK]
    assert state.champion == first


@pytest.mark.parametrize("back", ["champion", "beginning"])
def test_rewritten_history_stops_an_open_rollout(world: tuple[World, Engine], back: str) -> None:
    """A force-push of main to an older commit during a rollout is found out, named, and ends safely."""
    repository = world[0].repository
    assert isinstance(repository, MemoryRepository)
    push(world[0], "one", quality=GOOD, engine=world[1])
    beginning = repository.tips[MAIN]
    settle(*world, 15)
    first = state_of(world[0]).champion
    old = repository.tips[MAIN] if back == "champion" else beginning
    under_way(*world)
    repository.tips[MAIN] = old
    settle(*world, 1)
    state = state_of(world[0])
    assert state.open is None
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.hold is not None
    assert state.champion == (first if back == "champion" else None)


def test_edits_of_people_survive_a_rollout_and_its_rollback(world: tuple[World, Engine]) -> None:
    """What the tool does not own stays as people wrote it, during a rollout and after, byte for byte."""
    live(*world, "one", GOOD)
    before = files(world[0])
    under_way(*world)
    note, limit = b"# ask the team before raising this\n", b"spec:\n  predictor:\n"
    data = read(world[0], SERVICE)
    assert limit in data
    write(world[0], {SERVICE: note + data.replace(limit, limit + b"    timeout: 60  # seconds\n")})
    settle(*world, 0.2, passes=3)
    assert state_of(world[0]).open is not None
    rollbacks.rollback(world[0], MODEL, None, reason="x")
    settle(*world, 1)
    after = files(world[0])
    assert after[SERVICE] == note + (before[SERVICE] or b"").replace(limit, limit + b"    timeout: 60  # seconds\n")
    assert {path: data for path, data in after.items() if path != SERVICE} == {
        path: data for path, data in before.items() if path != SERVICE
    }


def test_canary_is_made_of_the_edited_service(world: tuple[World, Engine]) -> None:
    """A canary is the champion's file with the owned fields changed: what people set there holds for it too."""
    live(*world, "one", GOOD)
    limit = b"spec:\n  predictor:\n"
    write(world[0], {SERVICE: read(world[0], SERVICE).replace(limit, limit + b"    timeout: 60  # seconds\n")})
    second = under_way(*world)
    canary = read(world[0], CANARY)
    assert b"    timeout: 60  # seconds\n" in canary
    assert second.encode() in canary
    settle(*world, 15)
    assert state_of(world[0]).champion == second
    assert b"    timeout: 60  # seconds\n" in read(world[0], SERVICE)


BROKEN = b"apiVersion: mlgitops.dev/v1\nkind: Environments\nenvironments: 7\n"


def test_broken_environments_file_promotes_nothing(world: tuple[World, Engine]) -> None:
    """Without a configuration that can be read nothing is promoted, and the error says where to mend it."""
    live(*world, "one", GOOD)
    write(world[0], {"environments.yaml": BROKEN})
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    done = settle(*world, 15)
    problems = [one for one in done[-1].problems if isinstance(one, InvalidInput)]
    assert {one.path for error in problems for one in error.problems} == {"environments.yaml"}
    assert state_of(world[0]).last_number == 1
    with pytest.raises(InvalidInput):
        deciding.promote(world[0], MODEL, second, None, reason="", force=False)


def test_broken_environments_file_stops_no_rollback(world: tuple[World, Engine]) -> None:
    """What somebody wrote into that file keeps no canary in front of users, nor a person from rolling back."""
    first = live(*world, "one", GOOD)
    skewed = under_way(*world, quality=Quality(accuracy=0.97, wrong=0.05))
    write(world[0], {"environments.yaml": BROKEN})
    world[1].qualities[skewed] = Quality(accuracy=0.97, wrong=0.6)
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK
    assert state_of(world[0]).champion == first
    rollbacks.rollback(world[0], MODEL, None, reason="by hand")
    settle(*world, 1)
    assert state_of(world[0]).champion is None


@pytest.mark.parametrize("spoilt", ["rollout.yaml", "generation", "route.yaml", "kustomization.yaml"])
def test_a_file_that_nobody_can_read_stops_no_rollback(world: tuple[World, Engine], spoilt: str) -> None:
    """Garbage in an owned file during a rollout takes the canary off; the file is written anew."""
    first = live(*world, "one", GOOD)
    before = files(world[0])
    under_way(*world)
    write(world[0], {f"{FOLDER}/{spoilt}": b"{ not: [what was\n"})
    settle(*world, 1)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.champion == first
    assert state.hold is not None
    assert world[0].repository.snapshot(MAIN).read(CANARY) is None
    after = files(world[0])
    assert {path for path in before if after[path] != before[path]} <= {f"{FOLDER}/{spoilt}"}


def test_deleted_rollout_file_takes_off_the_canary_alone(world: tuple[World, Engine]) -> None:
    """Deleting rollout.yaml while a canary is open is a hand on main, not the revert of everything that serves."""
    first = live(*world, "one", GOOD)
    under_way(*world)
    write(world[0], {ROLLOUT: None})
    settle(*world, 1)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.champion == first


def test_safety_does_not_wait_for_a_change_by_hand(world: tuple[World, Engine]) -> None:
    """A LIVE release on probation whose late labels fail goes back although somebody changed production by hand."""
    first = live(*world, "one", GOOD)
    settle(*world, 61)
    second = push(world[0], "two", quality=BETTER, engine=world[1]).name
    settle(*world, 15)
    assert state_of(world[0]).champion == second
    write(world[0], {SERVICE: read(world[0], SERVICE).replace(b"pvc://mlgitops-store/models", b"pvc://x/models")})
    settle(*world, 0.1)
    assert state_of(world[0]).foreign is not None
    world[1].qualities[second] = Quality(accuracy=0.97, wrong=0.6)
    settle(*world, 0.1)
    assert state_of(world[0]).champion == first


def test_commands_by_hand_ask_whether_the_ledger_was_rewound(world: tuple[World, Engine]) -> None:
    """A ledger that is behind main takes no decision of a person either."""
    live(*world, "one", GOOD)
    repository = world[0].repository
    assert isinstance(repository, MemoryRepository)
    old = repository.tips[LEDGER]
    second = live(*world, "two", BETTER)
    repository.tips[LEDGER] = old
    for decide in (
        lambda: deciding.hold(world[0], MODEL, None, reason="x"),
        lambda: deciding.resume(world[0], MODEL, None),
        lambda: rollbacks.rollback(world[0], MODEL, None, reason="x"),
    ):
        with pytest.raises(MlgitopsError):
            decide()
    assert repository.tips[LEDGER] == old
    assert second


def test_deleted_ledger_changes_nothing(world: tuple[World, Engine]) -> None:
    """Without its ledger the tool decides nothing and says what is missing."""
    live(*world, "one", GOOD)
    repository = world[0].repository
    assert isinstance(repository, MemoryRepository)
    del repository.tips[LEDGER]
    before = dict(repository.tips)
    with pytest.raises(NotFound, match="ledger"):
        reconcile(world[0])
    with pytest.raises(NotFound, match="ledger"):
        rollbacks.rollback(world[0], MODEL, None, reason="x")
    assert repository.tips == before


SPOILT = {
    "no YAML": b"{",
    "nothing": b"",
    "a list": b"- 1\n",
    "a text": b"PROPOSED\n",
    "no encoding": b"\xff\xfe\x00",
    "half": b"apiVersion: mlgitops.dev/v1\nhistory: []\n",
}


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("what", ["state.yaml", "rollouts/00001.yaml"])
def test_spoilt_ledger_file_stops_its_model_alone(world: tuple[World, Engine], what: str, spoilt: str) -> None:
    """A file of the ledger that cannot be read stops one model, with its path; the other one goes on."""
    first = live(*world, "one", GOOD)
    live(*world, "one", GOOD, model="cats")
    path = f"environments/production/cats/{what}"
    edited(world[0].repository, LEDGER, {path: SPOILT[spoilt]})
    push(world[0], "two", quality=BETTER, engine=world[1])
    push(world[0], "two", quality=BETTER, engine=world[1], model="cats")
    done = settle(*world, 15)
    assert state_of(world[0]).champion != first
    problems = [one for one in done[-1].problems if isinstance(one, InvalidInput)]
    assert problems
    assert all("cats" in str(problem) for one in problems for problem in one.problems)
    assert world[0].repository.snapshot(LEDGER).read(path) == SPOILT[spoilt]


@pytest.mark.parametrize(
    "path", ["environments/README.md", "environments/production/README.md", "models/README.md", "README.md"]
)
def test_a_file_that_nobody_asked_for_in_the_ledger_stops_nothing(world: tuple[World, Engine], path: str) -> None:
    """A file that a person put beside the ledger's own is neither a model nor an environment, and is left alone."""
    first = live(*world, "one", GOOD)
    edited(world[0].repository, LEDGER, {path: b"# words\n"})
    push(world[0], "two", quality=BETTER, engine=world[1])
    assert not settle(*world, 15)[-1].problems
    assert state_of(world[0]).champion not in {None, first}
    assert view_of(world[0]).ledger.models() == (MODEL,)
    assert world[0].repository.snapshot(LEDGER).read(path) == b"# words\n"


def test_altered_phase_or_missing_rollout_is_found_out(world: tuple[World, Engine]) -> None:
    """A phase that its history does not lead to is refused where it is read; a rollout that is not there at once."""
    live(*world, "one", GOOD)
    live(*world, "two", BETTER)
    path = "environments/production/digits/rollouts/00001.yaml"
    data = world[0].repository.snapshot(LEDGER).read(path) or b""
    edited(world[0].repository, LEDGER, {path: data.replace(b"phase: RETIRED", b"phase: LIVE")})
    with pytest.raises(InvalidInput):
        _ = view_of(world[0]).ledger.state("production", MODEL).live
    assert settle(*world, 1)[0].problems
    edited(world[0].repository, LEDGER, {path: data.replace(b"phase: RETIRED", b"phase: ROLLED_BACK")})
    with pytest.raises(InvalidInput):
        _ = view_of(world[0]).ledger.state("production", MODEL).last_good(2)
    edited(world[0].repository, LEDGER, {path: None})
    with pytest.raises(InvalidInput):
        view_of(world[0]).ledger.state("production", MODEL)


def test_a_listed_job_that_was_changed_by_hand_holds_its_model(world: tuple[World, Engine]) -> None:
    """An owned field of a listed job that somebody changed stays, is recorded with its author, and holds the model."""
    live(*world, "one", GOOD)
    world[1].trains_at_once = False
    release = push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 1, passes=4)
    path = f"environments/training/{MODEL}/tfjob.yaml"
    data = world[0].repository.snapshot(MAIN).read(path) or b""
    changed = data.replace(b"digits@sha256:", b"other@sha256:")
    assert changed != data
    edited(world[0].repository, MAIN, {path: changed})
    done = settle(*world, 1, passes=4)
    assert [str(one) for one in done[-1].problems if "was changed by hand" in str(one)]
    hold = state_of(world[0]).hold
    assert hold is not None
    assert hold.by == "Bob <bob@example.org>"
    assert path in hold.reason
    assert world[0].repository.snapshot(MAIN).read(path) == changed
    assert view_of(world[0]).ledger.release(MODEL, release.name).phase is ReleasePhase.TRAINING
    deciding.resume(world[0], MODEL, None)
    settle(*world, 1, passes=4)
    assert state_of(world[0]).hold is None, "a person saw it; it does not come back"
