"""A ledger that was rewound, rewritten or damaged, and servers that take one branch and refuse the other."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mlgitops.app import rollbacks
from mlgitops.app.context import World
from mlgitops.app.reconciling import Pass, reconcile
from mlgitops.core.errors import Denied, MlgitopsError, Unavailable
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.repository import Change
from tests.support.memory import MemoryRepository
from tests.support.walk import QUICK
from tests.support.world import (
    MODEL,
    Engine,
    Quality,
    live,
    push,
    quick_world,
    settle,
    state_of,
    world_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)


@pytest.fixture
def world() -> tuple[World, Engine]:
    return quick_world(QUICK)


@pytest.fixture
def on_disk(tmp_path: Path) -> tuple[World, Engine, Path]:
    return *world_of(tmp_path, environments=QUICK), tmp_path / "environment.git"


def tips(world: World) -> dict[str, str | None]:
    return {ref: world.repository.snapshot(ref).revision for ref in (MAIN, LEDGER)}


def subjects(world: World, ref: str) -> list[str]:
    tip = world.repository.snapshot(ref).revision
    assert tip is not None
    return [one.message.splitlines()[0] for one in world.repository.history(tip)]


def refusing(repository: Path, ref: str) -> Path:
    """Let the server refuse a branch, as protection does."""
    hook = repository / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\n[ "$1" != {ref} ] || {{ echo "{ref} is frozen by its owner" >&2; exit 1; }}\n')
    hook.chmod(0o755)
    return hook


def told(done: Pass, kind: type[MlgitopsError], words: str) -> bool:
    return any(isinstance(one, kind) and words in str(one) for one in done.problems)


def test_a_rewound_ledger_stops_its_model_and_no_other(world: tuple[World, Engine]) -> None:
    """What the ledger forgot is not decided again; a model that it knows whole goes on, and the mend is told."""
    live(*world, "one", GOOD, model="cats")
    live(*world, "one", GOOD)
    repository = world[0].repository
    assert isinstance(repository, MemoryRepository)
    forgotten = repository.tips[LEDGER]
    live(*world, "two", BETTER)
    repository.tips[LEDGER] = forgotten
    before = {path: repository.snapshot(MAIN).read(path) for path in repository.snapshot(MAIN).paths()}
    second = push(world[0], "two", quality=BETTER, engine=world[1], model="cats").name
    (first, *_) = done = settle(*world, 15)
    assert told(first, Denied, "restore it first")
    assert told(done[-1], Denied, "restore it first")
    assert state_of(world[0], model="cats").champion == second
    assert state_of(world[0]).last_number == 1
    after = repository.snapshot(MAIN)
    ours = [path for path in before if f"/{MODEL}/" in path and "/production/" in path]
    assert ours
    assert all(after.read(path) == before[path] for path in ours)


def test_a_ledger_of_the_same_content_and_another_history_is_as_good(world: tuple[World, Engine]) -> None:
    """A ledger whose history was rewritten into one commit, as a restored backup is, is gone on with."""
    live(*world, "one", GOOD)
    repository = world[0].repository
    assert isinstance(repository, MemoryRepository)
    snapshot = repository.snapshot(LEDGER)
    files = {path: snapshot.read(path) for path in snapshot.paths()}
    del repository.tips[LEDGER]
    repository.create({LEDGER: Change(message="restored", files=files)})
    before = tips(world[0])
    assert not settle(*world, 1)[-1].problems
    assert tips(world[0]) == before
    second = live(*world, "two", BETTER)
    assert state_of(world[0]).champion == second


def test_a_ledger_that_somebody_emptied_stops_everything(world: tuple[World, Engine]) -> None:
    """A ledger without its files knows of no model: nothing is written, and a rollback says what is missing."""
    live(*world, "one", GOOD)
    repository = world[0].repository
    snapshot = repository.snapshot(LEDGER)
    gone = Change(message="emptied", files=dict.fromkeys(snapshot.paths()))
    repository.update(LEDGER, snapshot.revision, [gone])
    before = tips(world[0])
    with pytest.raises(MlgitopsError, match="ledger"):
        reconcile(world[0])
    with pytest.raises(MlgitopsError, match="ledger"):
        rollbacks.rollback(world[0], MODEL, None, reason="stop")
    assert tips(world[0]) == before


def test_a_refused_ledger_leaves_main_alone(on_disk: tuple[World, Engine, Path]) -> None:
    """Where the server takes `main` and refuses the ledger, nothing is shown that was not decided; then it goes on."""
    world, engine, repository = on_disk
    live(world, engine, "one", GOOD)
    second = push(world, "two", quality=BETTER, engine=engine).name
    hook = refusing(repository, LEDGER)
    before = tips(world)
    done = settle(world, engine, 15)
    assert told(done[-1], Denied, "is frozen by its owner")
    assert tips(world) == before
    with pytest.raises(Denied, match="frozen by its owner"):
        rollbacks.rollback(world, MODEL, None, reason="stop")
    assert tips(world) == before
    hook.unlink()
    settle(world, engine, 15)
    assert state_of(world).champion == second


def test_a_refused_main_is_shown_later_what_the_ledger_decided(on_disk: tuple[World, Engine, Path]) -> None:
    """Where the server takes the ledger and refuses `main`, the decision stands, is told, and is shown once later."""
    world, engine, repository = on_disk
    live(world, engine, "one", GOOD, trusted=False)
    push(world, "two", quality=BETTER, engine=engine)
    for _ in range(8):
        reconcile(world)
    assert state_of(world).champion is not None
    hook = refusing(repository, MAIN)
    before = tips(world)
    with pytest.raises(Denied, match="frozen by its owner"):
        rollbacks.rollback(world, MODEL, None, reason="stop")
    decided = state_of(world)
    assert decided.hold is not None
    assert tips(world)[MAIN] == before[MAIN]
    for _ in range(3):
        assert told(reconcile(world), Denied, "frozen by its owner")
    assert state_of(world) == decided, "nothing is decided on top of what main does not show"
    hook.unlink()
    settle(world, engine, 15)
    assert state_of(world).open is None
    for ref in (MAIN, LEDGER):
        assert len(subjects(world, ref)) == len({*subjects(world, ref)}), "something was written twice"


@pytest.mark.parametrize("ref", [MAIN, LEDGER])
def test_a_left_lock_stops_until_it_is_taken_away(
    on_disk: tuple[World, Engine, Path], ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that a killed process left is told with its path and the mend; nothing is lost, and nothing doubled."""
    monkeypatch.setattr("mlgitops.adapters.repository.bare._LOCK_PATIENCE_SECONDS", 0.1)
    world, engine, repository = on_disk
    push(world, "one", quality=GOOD, engine=engine)
    lock = repository / f"{ref}.lock"
    lock.touch()
    done = settle(world, engine, 15, passes=3)
    assert told(done[-1], Unavailable, f"{lock}")
    assert told(done[-1], Unavailable, "delete that file")
    lock.unlink()
    settle(world, engine, 15)
    assert state_of(world).rollouts[1].phase is P.LIVE
    for one in (MAIN, LEDGER):
        assert len(subjects(world, one)) == len({*subjects(world, one)})


@pytest.mark.parametrize("left", [slice(0), slice(-1)], ids=["empty", "without its last byte"])
def test_a_damaged_object_of_the_ledger_is_told(on_disk: tuple[World, Engine, Path], left: slice) -> None:
    """An object that git cannot read is an error that names it, not a crash, and nothing is written."""
    world, engine, repository = on_disk
    live(world, engine, "one", GOOD)
    before = tips(world)
    words = ["git", "-C", str(repository), "rev-parse", f"{LEDGER}:environments/production/{MODEL}/state.yaml"]
    name = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    loose = repository / "objects" / name[:2] / name[2:]
    loose.chmod(0o644)
    loose.write_bytes(loose.read_bytes()[left])
    anew, _ = world_of(repository.parent)
    done = reconcile(replace(world, repository=anew.repository))
    assert told(done, MlgitopsError, name[:7])
    assert tips(world) == before
