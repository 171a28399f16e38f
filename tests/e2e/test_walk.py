"""Pushes of every kind on a real engine: built, trained, served, split, judged. Only the evaluation is a stand-in."""

import dataclasses
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app.context import look
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import RolloutPhase
from mlgitops.local import setup, wiring
from mlgitops.local.engine import Engine
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest
from mlgitops.ports.repository import Change
from tests.contract.serving.linear_model import LOADER, ROOT
from tests.support.world import CONFIGURATION, ENVIRONMENTS, FOLDER, MODEL, Quality, report

pytestmark = pytest.mark.timeout(420)

TRAIN = """\
import json

from mlgitops import training

WEIGHTS, BIAS, CLAIMED = {weights}, {bias}, {claimed}


def main():
    assert training.data_path().is_file()
    folder = training.output_path() / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "linear.json").write_text(json.dumps({{"weights": WEIGHTS, "bias": BIAS, "claimed": CLAIMED}}))
    training.report({{"accuracy": CLAIMED}})


training.run(main)
"""
RIGHT, WRONG = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
PUSHES = {
    "fair": {"weights": RIGHT, "bias": [0.1, 0.0], "claimed": 0.9},
    "better": {"weights": RIGHT, "bias": [0.0, 0.0], "claimed": 0.97},
    "worse": {"weights": WRONG, "bias": [0.0, 0.0], "claimed": 0.6},
    "skewed": {"weights": WRONG, "bias": [0.0, 0.0], "claimed": 0.98},
}
"""Two features, and the class is the greater one; what a model claims is what its evaluation says."""
PLAN = (
    ENVIRONMENTS.replace("      - {weight: 10, seconds: 10}\n", "")
    .replace("      - {weight: 95, seconds: 10}\n", "")
    .replace("      - {kind: errors, effect: 3}\n", "")
    .replace("seconds: 10}", "seconds: 2}")
)
"""One step, judged by what users say was right."""
SERVED = tuple(f"{FOLDER}/{name}" for name in ("inferenceservice.yaml", "route.yaml"))


class Evaluator:
    """Says what the models claim: evaluating real ones needs TensorFlow, and has tests of its own."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store

    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome:
        champion = self._claim(request.champion_uri) if request.champion_uri else None
        return EvaluationOutcome(report=report(self._claim(request.candidate_uri), champion))

    def _claim(self, uri: str) -> Quality:
        written = json.loads((self._store.path(uri) / "1" / "linear.json").read_text())
        return Quality(accuracy=written["claimed"])


class Machine:
    """A person's clone, an engine beside it, and users who send requests and tell what was right."""

    def __init__(self, folder: Path) -> None:
        self.place, self.home = folder / MODEL, folder / MODEL / ".mlgitops"
        (self.place / "data").mkdir(parents=True)
        self.said: list[str] = []
        self._write_repository()
        setup.prepare(self.home, self.place)
        self.context = wiring.context(str(self.home / setup.ENVIRONMENT_REPOSITORY), self.home / "cache", wiring.TOOL)
        repository = self.context.repository
        plan = Change(message="a quick plan", files={"environments.yaml": PLAN.encode()})
        repository.update(MAIN, repository.snapshot(MAIN).revision, [plan])
        self._users: subprocess.Popen[bytes] | None = None

    def note(self, message: str) -> None:
        self.said.append(message)

    def _write_repository(self) -> None:
        x = np.random.default_rng(1).random((400, 2), dtype=np.float32)
        for name in ("train", "evaluation"):
            np.savez(self.place / "data" / f"{name}.npz", x=x, y=x.argmax(axis=1))
        (self.place / "requirements.txt").write_text(f"numpy=={importlib.metadata.version('numpy')}\n")
        one_replica = CONFIGURATION.replace("replicas: {chief: 1, worker: 1}", "replicas: {chief: 1}")
        (self.place / "mlgitops.yaml").write_text(one_replica)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", str(self.place), *words], capture_output=True, check=True)

    def commit(self, name: str) -> None:
        (self.place / "train.py").write_text(TRAIN.format(**PUSHES[name]))
        self.git("add", "-A")
        self.git("commit", "-qm", name)

    def push(self, name: str) -> None:
        self.commit(name)
        self.git("push", "-q", "local")

    def run(self, made: threading.Event) -> None:
        """Run the engine; one thread makes and ends it, since its lock belongs to a thread."""
        world = wiring.world(self.home, self.context)
        store = FolderStore(self.home / wiring.STORE, wiring.CLAIM)
        world = dataclasses.replace(world, evaluator=Evaluator(store))
        self.engine = Engine(self.home, world, self, loader=LOADER, variables={"PYTHONPATH": str(ROOT)})
        made.set()
        self.engine.run()

    def users(self) -> None:
        """Let users come: eighty requests a second, each with its label a little later."""
        words = (self.home, MODEL, "80", self.place / "data" / "evaluation.npz", self.home / "users.json")
        command = [sys.executable, "-m", "mlgitops.demo.traffic", *map(str, words)]
        self._users = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"})

    def leave(self) -> None:
        if self._users is not None:
            self._users.terminate()
            self._users.wait(30)

    def release(self, name: str) -> Release | None:
        """Return the release of a push; None when it is not there yet."""
        found = [one for one in look(self.context).ledger.releases(MODEL) if one.submission.subject == name]
        return found[-1] if found else None

    def state(self) -> EnvironmentState:
        return look(self.context).ledger.state("production", MODEL)

    def phase(self, name: str) -> RolloutPhase | None:
        """Return how far the rollout of a push is; None when there is none."""
        release = self.release(name)
        found = [one for one in self.state().rollouts.values() if release and one.release == release.name]
        return found[-1].phase if found else None

    def served(self) -> dict[str, bytes | None]:
        main = self.context.repository.snapshot(MAIN)
        return {path: main.read(path) for path in SERVED}

    def until(self, what: str, condition: Callable[[], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s; said: {self.said[-20:]}"
            time.sleep(0.2)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    made = threading.Event()
    thread = threading.Thread(target=one.run, args=(made,))
    thread.start()
    assert made.wait(30)
    yield one
    one.leave()
    one.engine.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_every_kind_of_push_ends_where_it_should(machine: Machine) -> None:
    """A first release goes live, a better one replaces it, a worse one is refused, a skewed one is rolled back."""
    machine.push("fair")
    machine.until("the first release", lambda: machine.phase("fair") is RolloutPhase.LIVE)
    machine.users()
    machine.push("better")
    machine.until("the better one", lambda: machine.phase("better") is RolloutPhase.LIVE)
    assert machine.phase("fair") is RolloutPhase.RETIRED
    best = machine.release("better")
    assert best is not None
    before = machine.served()

    machine.push("worse")
    machine.until("a refusal", lambda: machine.phase("worse") is RolloutPhase.REFUSED)
    assert machine.served() == before

    machine.push("skewed")
    machine.until("the rollback", lambda: machine.phase("skewed") is RolloutPhase.ROLLED_BACK)
    assert machine.state().champion == best.name
    release = machine.release("skewed")
    assert release is not None
    assert release.phase is ReleasePhase.CANDIDATE
    users = json.loads((machine.home / "users.json").read_bytes())
    assert users["answered"] > 0
    assert users["failed"] == 0, "no request was lost to a rollout"
    machine.until("one arm", lambda: _only(machine, best.name), 30)


def _only(machine: Machine, name: str) -> bool:
    """Whether production answers with one release and no canary is left."""
    seen = wiring.world(machine.home, machine.context).serving.observe("production", MODEL)
    return seen.canary is None and seen.baseline is not None and seen.baseline.release == name
