"""Which runs of the workflows wait for which, and what starts none."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlgitops.app import deciding
from mlgitops.core.manifest.fields import MAIN
from tests.support.world import MODEL, Quality, live, push, settle, world_of

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


def concurrency(name: str) -> dict[str, Any] | None:
    """Return what the one job of a workflow says about others of its kind."""
    flow = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    (job,) = flow["jobs"].values()
    found: dict[str, Any] | None = job.get("concurrency")
    assert "concurrency" not in flow
    return found


@pytest.mark.parametrize("name", ["train", "promote"])
def test_no_push_and_no_promotion_is_left_out(name: str) -> None:
    """Runs of one kind wait in a queue: a forge would otherwise drop all that wait but the newest."""
    found = concurrency(name)
    assert found is not None
    assert (found["cancel-in-progress"], found["queue"]) == (False, "max")


def test_nothing_holds_a_rollback_up() -> None:
    """A rollback waits for no other run, and a pass that runs is never cut off."""
    assert concurrency("rollback") is None
    found = concurrency("reconcile")
    assert found is not None
    assert found["cancel-in-progress"] is False


def test_what_the_tool_commits_starts_no_pass(tmp_path: Path) -> None:
    """`reconcile` passes over a push of the tool's own commits by their trailer, and over no person's."""
    text = (WORKFLOWS / "reconcile.yml").read_text()
    assert "[skip ci]" not in text, "it would leave required checks waiting for ever"
    (mark,) = re.findall(r"!contains\(github\.event\.head_commit\.message \|\| '', '([^']+)'\)", text)
    world, engine = world_of(tmp_path)
    live(world, engine, "one", Quality())
    deciding.hold(world, MODEL, None, reason="by hand")
    second = push(world, "two", quality=Quality(accuracy=0.97), engine=engine).name
    settle(world, engine, 1)
    words = ["git", "--git-dir", str(tmp_path / "environment.git"), "log", "--format=%B%x00", MAIN]

    def messages() -> list[str]:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")

    projections = [one for one in messages() if one.strip().startswith("rollout(")]
    assert projections
    assert all(mark in one for one in projections)
    deciding.resume(world, MODEL, None)
    deciding.promote(world, MODEL, second, None, reason="now", force=False)
    newest = messages()[0]
    assert "promote(digits)" in newest
    assert mark not in newest
