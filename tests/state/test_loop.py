"""The whole chain on an engine that obeys at once: what each push, each decision and each hand on `main` leads to."""

import subprocess
from pathlib import Path

import pytest

from mlgitops.app import deciding, rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import Denied
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.release import ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Change, Person
from tests.support.world import (
    ENVIRONMENTS,
    FOLDER,
    Engine,
    Quality,
    push,
    quick_world,
    settle,
    state_of,
    view_of,
    world_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
WORSE = Quality(accuracy=0.80, wrong=0.20)
SKEWED = Quality(accuracy=0.97, wrong=0.40)


@pytest.fixture
def world(tmp_path: Path) -> tuple[World, Engine]:
    return world_of(tmp_path)


def manifests(world: World) -> dict[str, bytes | None]:
    main = world.repository.snapshot(MAIN)
    return {path: main.read(path) for path in main.paths(FOLDER) if not path.endswith("generation")}


def live(world: World, engine: Engine, code: str, quality: Quality) -> str:
    release = push(world, code, quality=quality, engine=engine)
    settle(world, engine, 15)
    assert state_of(world).champion == release.name
    return release.name


def subjects(world: World, ref: str) -> list[str]:
    revision = world.repository.snapshot(ref).revision
    assert revision is not None
    return [one.message.splitlines()[0] for one in world.repository.history(revision)]


def test_first_release_goes_live_without_a_canary(world: tuple[World, Engine]) -> None:
    """A first release has no champion: gates, readiness, then it serves everything."""
    release = push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1)
    state = state_of(world[0])
    assert state.champion == release.name
    assert state.rollouts[1].phase is P.LIVE
    assert b"weight: 100" in (world[0].repository.snapshot(MAIN).read(f"{FOLDER}/route.yaml") or b"")


def test_a_first_release_beyond_a_limit_is_not_trusted_and_a_person_is_asked() -> None:
    """Without a champion the plan's absolute limits decide trust; what serves stays, as there is nothing else."""
    limited = ENVIRONMENTS.replace("    alpha: 0.01\n", "    alpha: 0.01\n    limits: {failed: 0.05}\n")
    world, engine = quick_world(limited)
    release = push(world, "one", quality=Quality(accuracy=0.95, failed=0.3), engine=engine)
    settle(world, engine, 61)
    state = state_of(world)
    assert state.champion == release.name
    assert not state.rollouts[1].trusted
    assert state.hold is not None
    assert "requests failed" in state.hold.reason
    deciding.resume(world, "digits", None)
    settle(world, engine, 1)
    assert state_of(world).rollouts[1].trusted
    assert state_of(world).hold is None


def test_a_listed_job_changed_by_hand_is_told_and_not_written_over(world: tuple[World, Engine]) -> None:
    """Somebody's change of an owned field of a running job stands, and every pass says so."""
    world[1].trains_at_once = False
    push(world[0], "one", quality=GOOD, engine=world[1])
    settle(*world, 1)
    path = "environments/training/digits/tfjob.yaml"
    edit(world[0], path, b"pvc://mlgitops-store/data/x", b"pvc://mlgitops-store/data/mine")
    before = world[0].repository.snapshot(MAIN).read(path)
    done = settle(*world, 1)
    assert world[0].repository.snapshot(MAIN).read(path) == before
    assert any("changed by hand" in str(one) for one in done[-1].problems)


def test_better_release_passes_every_weight_by_a_commit(world: tuple[World, Engine]) -> None:
    """Each weight of a rollout is a commit, the former champion is retired at the end."""
    live(*world, "one", GOOD)
    second = live(*world, "two", BETTER)
    state = state_of(world[0])
    assert (state.rollouts[1].phase, state.rollouts[2].phase) == (P.RETIRED, P.LIVE)
    diary = "\n".join(subjects(world[0], MAIN))
    for weight in ("10 %", "50 %", "95 %", "all traffic"):
        assert weight in diary
    assert second in diary


def test_worse_release_is_refused_before_traffic(world: tuple[World, Engine]) -> None:
    """The comparison with the champion refuses the rollout; production's manifests stay byte for byte."""
    live(*world, "one", BETTER)
    before = manifests(world[0])
    push(world[0], "two", quality=WORSE, engine=world[1])
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.REFUSED
    assert manifests(world[0]) == before


def test_skewed_release_is_rolled_back_and_held(world: tuple[World, Engine]) -> None:
    """What only users can see rolls the canary back: manifests byte for byte, automation on hold, a record kept."""
    live(*world, "one", BETTER)
    before = manifests(world[0])
    release = push(world[0], "two", quality=SKEWED, engine=world[1])
    settle(*world, 15)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert manifests(world[0]) == before
    assert state.hold is not None
    assert view_of(world[0]).ledger.decision_names("production", "digits")[-1].endswith("failed")
    settle(*world, 100)
    assert [one.release for one in state_of(world[0]).rollouts.values()].count(release.name) == 1


def test_same_content_is_the_same_release(world: tuple[World, Engine]) -> None:
    """A revert in the model repository is recognised: nothing trains twice, and the next cause is told against it."""
    first = live(*world, "one", GOOD)
    live(*world, "two", BETTER)
    again = push(world[0], "one", engine=world[1])
    settle(*world, 15)
    assert again.name == first
    assert len(world[1].trained) == 2
    third = push(world[0], "one", "more data", engine=world[1])
    assert third.submission.cause == ("data",)


def test_rollback_returns_to_last_good_and_a_second_one_never_to_the_bad_one(world: tuple[World, Engine]) -> None:
    """A LIVE rollout goes back to the newest trusted release; the next rollback never to the bad one."""
    first = live(*world, "one", GOOD)
    settle(*world, 61)
    second = live(*world, "two", BETTER)
    settle(*world, 61)
    third = live(*world, "three", BETTER)
    answer = rollbacks.rollback(world[0], "digits", None, reason="users complain")
    settle(*world, 1)
    assert answer.changed
    assert state_of(world[0]).champion == second
    assert state_of(world[0]).rollouts[3].phase is P.ROLLED_BACK
    rollbacks.rollback(world[0], "digits", None, reason="still bad")
    settle(*world, 1)
    assert state_of(world[0]).champion == first
    assert third != state_of(world[0]).champion


def test_rollback_of_the_first_release_serves_nothing(world: tuple[World, Engine]) -> None:
    """A first rollout that is rolled back withdraws the model."""
    live(*world, "one", GOOD)
    rollbacks.rollback(world[0], "digits", None, reason="")
    settle(*world, 1)
    state = state_of(world[0])
    assert (state.champion, state.rollouts[1].phase) == (None, P.ROLLED_BACK)
    assert world[0].repository.snapshot(MAIN).read(f"{FOLDER}/inferenceservice.yaml") is None


def test_forced_promotion_brings_back_without_training(world: tuple[World, Engine]) -> None:
    """What was rolled back needs resume, force and a reason; then it is rolled out again, and nothing trains."""
    live(*world, "one", GOOD)
    settle(*world, 61)
    second = live(*world, "two", BETTER)
    rollbacks.rollback(world[0], "digits", None, reason="by hand")
    settle(*world, 1)
    with pytest.raises(Denied, match="on hold"):
        deciding.promote(world[0], "digits", second, None, reason="", force=False)
    deciding.resume(world[0], "digits", None)
    settle(*world, 15)
    assert state_of(world[0]).champion != second
    with pytest.raises(Denied, match="rolled back"):
        deciding.promote(world[0], "digits", second, None, reason="", force=False)
    deciding.promote(world[0], "digits", second, None, reason="it was the network", force=True)
    settle(*world, 15)
    assert state_of(world[0]).champion == second
    assert len(world[1].trained) == 2


def clone(world: World, tmp_path: Path) -> Path:
    target = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(tmp_path / "environment.git"), str(target)], check=True)
    return target


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def test_git_revert_of_a_promotion_is_a_rollback_by_its_author(world: tuple[World, Engine], tmp_path: Path) -> None:
    """Reverting the promotion's commit on main rolls back, and the ledger names who did it."""
    first = live(*world, "one", GOOD)
    live(*world, "two", BETTER)
    folder = clone(world[0], tmp_path)
    promotion = git(folder, "log", "--format=%H", "--grep=^promote.*rollout 2").split()[0]
    git(folder, "revert", "--no-edit", promotion)
    git(folder, "push", "-q", "origin", "main")
    settle(*world, 1)
    state = state_of(world[0])
    assert state.champion == first
    assert state.rollouts[2].rollback is not None
    assert state.rollouts[2].rollback.by == "Ada <ada@example.org>"
    assert state.hold is not None


def edit(world: World, path: str, old: bytes, new: bytes, person: str = "Bob") -> None:
    main = world.repository.snapshot(MAIN)
    data = main.read(path)
    assert data is not None
    assert old in data
    author = Person(name=person, email=f"{person.lower()}@example.org")
    change = Change(message="by hand", files={path: data.replace(old, new)}, author=author)
    world.repository.update(MAIN, main.revision, [change])


def test_hand_set_weight_stops_an_open_rollout(world: tuple[World, Engine]) -> None:
    """An open rollout that meets a change of an owned field ends safely, and its author is named."""
    live(*world, "one", GOOD)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    assert state_of(world[0]).open is not None
    edit(world[0], f"{FOLDER}/route.yaml", b"weight: 10\n", b"weight: 60\n")
    settle(*world, 1)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert state.hold is not None
    assert state.hold.by == "Bob <bob@example.org>"


def test_foreign_change_of_a_live_model_is_never_overwritten(world: tuple[World, Engine]) -> None:
    """A hand on production is recorded and holds automation; the change stays until a person resumes."""
    live(*world, "one", GOOD)
    path = f"{FOLDER}/inferenceservice.yaml"
    edit(world[0], path, b"pvc://mlgitops-store/models", b"pvc://mlgitops-store/mine")
    before = world[0].repository.snapshot(MAIN).read(path)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 15)
    state = state_of(world[0])
    assert world[0].repository.snapshot(MAIN).read(path) == before
    assert state.foreign is not None
    assert state.foreign.by == "Bob <bob@example.org>"
    deciding.resume(world[0], "digits", None)
    settle(*world, 15)
    assert b"/mine" not in (world[0].repository.snapshot(MAIN).read(path) or b"")


def test_revert_of_a_weight_commit_is_a_change_by_hand(world: tuple[World, Engine], tmp_path: Path) -> None:
    """Taking a step's commit back on main stops the rollout; it is not silently written again."""
    live(*world, "one", GOOD)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 0.2, passes=4)
    folder = clone(world[0], tmp_path)
    git(folder, "revert", "--no-edit", "HEAD")
    git(folder, "push", "-q", "origin", "main")
    settle(*world, 1)
    assert state_of(world[0]).rollouts[2].phase is P.ROLLED_BACK


def test_canary_that_never_becomes_ready_goes_back(world: tuple[World, Engine]) -> None:
    """A canary that does not load within its time is rolled back before it meets anybody."""
    live(*world, "one", GOOD)
    before = manifests(world[0])
    world[1].broken = True
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 400, passes=6)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ROLLED_BACK
    assert "not ready" in state.rollouts[2].reason
    assert manifests(world[0]) == before


def test_no_traffic_never_promotes_and_never_rolls_back(world: tuple[World, Engine]) -> None:
    """Without data a step waits, then holds for a person."""
    live(*world, "one", GOOD)
    world[1].requests = 0
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 400)
    state = state_of(world[0])
    assert state.rollouts[2].phase is P.ANALYSING
    assert state.hold is not None
    assert state.hold.by == "mlgitops"


def test_failed_training_ends_the_release(world: tuple[World, Engine]) -> None:
    """A job that fails fails its release; nothing is proposed, its log is kept, the next push trains."""
    release = push(world[0], "one", quality=Quality(trains=False), engine=world[1])
    settle(*world, 1)
    ledger = view_of(world[0]).ledger
    assert ledger.release("digits", release.name).phase is ReleasePhase.FAILED
    assert ledger.log("digits", release.name)
    live(*world, "two", GOOD)


def test_rewound_ledger_fails_closed(world: tuple[World, Engine]) -> None:
    """A ledger that is behind main stops everything for that model, and nothing on main changes."""
    live(*world, "one", GOOD)
    old = world[0].repository.snapshot(LEDGER).revision
    live(*world, "two", BETTER)
    import pygit2

    repository = pygit2.Repository(str(world[0].repository._transport._path))  # type: ignore[attr-defined]
    repository.references[LEDGER].set_target(pygit2.Oid(hex=str(old)))
    before = world[0].repository.snapshot(MAIN).revision
    done = reconcile(world[0])
    assert any("rewound" in str(one) for one in done.problems)
    assert world[0].repository.snapshot(MAIN).revision == before


def test_rejected_release_is_rolled_back_and_never_promoted(world: tuple[World, Engine]) -> None:
    """Rejecting what serves takes it off, for good."""
    first = live(*world, "one", GOOD)
    second = live(*world, "two", BETTER)
    rollbacks.reject(world[0], "digits", second, reason="biased")
    settle(*world, 1)
    assert state_of(world[0]).champion == first
    deciding.resume(world[0], "digits", None)
    with pytest.raises(Denied, match="REJECTED"):
        deciding.promote(world[0], "digits", second, None, reason="x", force=True)


def test_reconcile_twice_changes_nothing(world: tuple[World, Engine]) -> None:
    """A pass over a settled world writes no commit on either branch."""
    live(*world, "one", GOOD)
    settle(*world, 100)
    before = [world[0].repository.snapshot(ref).revision for ref in (MAIN, LEDGER)]
    reconcile(world[0])
    assert [world[0].repository.snapshot(ref).revision for ref in (MAIN, LEDGER)] == before


def test_rollback_while_a_promotion_waits_goes_back_from_what_serves(world: tuple[World, Engine]) -> None:
    """At night, production goes back; what was only proposed, or promoted and not taken up, is withdrawn with it."""
    first = live(*world, "one", GOOD)
    settle(*world, 61)
    live(*world, "two", BETTER)
    deciding.hold(world[0], "digits", None, reason="wait")
    third = push(world[0], "three", quality=BETTER, engine=world[1]).name
    settle(*world, 1)
    deciding.resume(world[0], "digits", None)
    deciding.promote(world[0], "digits", third, None, reason="", force=False)
    rollbacks.rollback(world[0], "digits", None, reason="bad")
    state = state_of(world[0])
    assert (state.rollouts[2].phase, state.rollouts[3].phase) == (P.ROLLING_BACK, P.REFUSED)
    assert b"number: 1\n" in (world[0].repository.snapshot(MAIN).read(f"{FOLDER}/rollout.yaml") or b"")
    settle(*world, 15)
    assert state_of(world[0]).champion == first


def test_a_stale_reading_of_main_is_no_revert(world: tuple[World, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion taken up between two readings is not taken for its own revert."""
    live(*world, "one", GOOD)
    world[1].requests = 0
    repository = world[0].repository
    stale = repository.snapshot(MAIN)
    push(world[0], "two", quality=BETTER, engine=world[1])
    settle(*world, 1)
    assert state_of(world[0]).open is not None
    snapshot = repository.snapshot
    given: list[str] = []

    def once(ref: str) -> object:
        if ref == MAIN and not given:
            given.append(ref)
            return stale
        return snapshot(ref)

    monkeypatch.setattr(repository, "snapshot", once)
    reconcile(world[0])
    monkeypatch.undo()
    assert state_of(world[0]).rollouts[2].phase is P.ANALYSING
