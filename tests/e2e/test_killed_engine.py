"""An engine that really trains, evaluates and serves with TensorFlow, killed again and again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.app.context import look
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.local import setup, wiring
from tests.support.flowers import flowers, git, leftovers, production, tool, wait

pytestmark = [pytest.mark.tensorflow, pytest.mark.long, pytest.mark.timeout(420)]


class Killed:
    """An engine that ends by SIGKILL, and is started again on what it left."""

    def __init__(self, place: Path) -> None:
        self.place, self.kills = place, 0
        self.log = (place.parent / "engine.log").open("ab")
        self.running = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "mlgitops", "local", "up"]
        return subprocess.Popen(words, cwd=self.place, stdout=self.log, stderr=self.log)

    def kill_when(self, what: str, ready: Callable[[], Any]) -> None:
        wait(what, ready)
        os.kill(self.running.pid, signal.SIGKILL)
        assert self.running.wait(30) == -signal.SIGKILL
        self.kills += 1
        self.running = self._started()

    def end(self) -> None:
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGINT)
            self.running.wait(60)
        sys.stdout.write((self.place.parent / "engine.log").read_text())  # pytest shows it where the test fails


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Killed]:
    place = flowers(tmp_path / "flowers")
    tool(place, "init")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "feat: tell two flowers apart")
    one = Killed(place)
    yield one
    one.end()


def releases(place: Path) -> list[Release]:
    home = place / ".mlgitops"
    context = wiring.context(str(home / setup.ENVIRONMENT_REPOSITORY), home / "cache", wiring.TOOL)
    return list(look(context).ledger.releases("flowers"))


def is_at(place: Path, phase: ReleasePhase) -> bool:
    return phase in {one.phase for one in releases(place)}


def serves(home: Path) -> bool:
    """Say whether the engine that runs now serves."""
    try:
        seen = EmbeddedServing(home / wiring.SERVING).observe("production", "flowers")
    except MlgitopsError:
        return False
    return seen.baseline is not None and seen.baseline.ready


def test_an_engine_killed_on_every_stretch_of_the_way_trains_and_commits_once(engine: Killed) -> None:
    """Killed while it trains, evaluates, starts and serves, it makes one release, one image, one model, one rollout."""
    place, home = engine.place, engine.place / ".mlgitops"
    wait("the remote", (home / "serving" / "observation.json").exists)
    git(place, "push", "-q", "local")
    for phase in (ReleasePhase.TRAINING, ReleasePhase.EVALUATING, ReleasePhase.CANDIDATE):
        engine.kill_when(phase, partial(is_at, place, phase))
    engine.kill_when("production", lambda: production(place).get("champion"))
    wait("production again", partial(serves, home))

    (only,) = releases(place)
    assert production(place)["champion"] == only.name
    environment = home / "environment.git"
    for branch in ("main", "mlgitops/ledger"):
        told = git(environment, "log", "--format=%s", branch).splitlines()
        assert sorted(told) == sorted({*told}), f"a commit of {branch} was made twice"
    assert git(environment, "fsck", "--strict") == ""
    index = json.loads((home / "registry" / "flowers" / "index.json").read_bytes())
    assert len(index["manifests"]) == 1
    assert len([*(home / "store" / "models" / "flowers").glob("*/*/saved_model.pb")]) == 1
    engine.end()
    assert leftovers(home) == []
    assert engine.kills == 4
