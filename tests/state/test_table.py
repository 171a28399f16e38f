"""The demo's table, row by row, with a trainer that takes no time behind the same ports."""

import subprocess
from pathlib import Path

from mlgitops.app import deciding, reading, rollbacks
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.world import FOLDER, Quality, push, settle, state_of, view_of, world_of


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def test_the_table_happens_as_written(tmp_path: Path) -> None:
    """Six pushes and the commands by hand lead to exactly what the README's table says."""
    world, engine = world_of(tmp_path)

    def manifests() -> dict[str, bytes | None]:
        main = world.repository.snapshot(MAIN)
        return {path: main.read(path) for path in main.paths(FOLDER) if not path.endswith("generation")}

    first = push(world, "one", quality=Quality(0.9, 0.1), engine=engine).name
    settle(world, engine, 15)
    settle(world, engine, 61)
    second = push(world, "two", quality=Quality(0.97, 0.03), engine=engine).name
    settle(world, engine, 15)
    assert [one.phase for one in state_of(world).rollouts.values()] == [P.RETIRED, P.LIVE]
    settle(world, engine, 61)

    before = manifests()
    third = push(world, "three", quality=Quality(0.85, 0.15), engine=engine).name
    settle(world, engine, 15)
    assert state_of(world).rollouts[3].phase is P.REFUSED
    assert manifests() == before

    push(world, "four", quality=Quality(0.97, 0.4), engine=engine)
    settle(world, engine, 15)
    assert state_of(world).rollouts[4].phase is P.ROLLED_BACK
    assert manifests() == before
    assert state_of(world).hold is not None

    assert push(world, "two", engine=engine).name == second
    settle(world, engine, 15)
    assert len(engine.trained) == 4

    deciding.resume(world, "digits", None)
    sixth = push(world, "two", "more", quality=Quality(0.98, 0.02), engine=engine)
    assert sixth.submission.cause == ("data",)
    settle(world, engine, 15)
    assert state_of(world).champion == sixth.name

    rollbacks.rollback(world, "digits", None, reason="a complaint")
    settle(world, engine, 15)
    assert state_of(world).champion == second
    deciding.resume(world, "digits", None)
    settle(world, engine, 15)
    assert state_of(world).champion == second
    deciding.promote(world, "digits", sixth.name, None, reason="it was wrong", force=True)
    settle(world, engine, 15)
    assert state_of(world).champion == sixth.name
    assert len(engine.trained) == 5

    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(tmp_path / "environment.git"), str(folder))
    git(folder, "revert", "--no-edit", git(folder, "log", "--format=%H", "-1", "--grep=^promote").strip())
    git(folder, "push", "-q", "origin", "main")
    settle(world, engine, 15)
    assert state_of(world).champion == second
    assert manifests() == before

    traced = reading.trace(world, "digits", None, {"release": second})
    assert traced["release"]["revision"] == view_of(world).ledger.release("digits", second).submission.revision
    assert {first, third} < set(view_of(world).ledger.release_names("digits"))
