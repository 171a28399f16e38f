"""The engine of one machine, with a model that needs no TensorFlow: it starts, serves, survives bad files, and ends."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.files import directory_digest
from mlgitops.adapters.loopback import call
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.local import setup, wiring
from mlgitops.local.engine import Engine
from mlgitops.ports.repository import Change

LINEAR = Path(__file__).parent.parent / "contract" / "serving"
FOLDER = "environments/production/digits"
KUSTOMIZATION = b"resources: [service.json.yaml, route.json.yaml]\n"


def children() -> dict[int, str]:
    """Return the processes that this one started and that still run, with their words."""
    found = {int(word) for one in Path("/proc/self/task").glob("*/children") for word in one.read_text().split()}
    words = {pid: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in found}
    return {pid: said for pid, said in words.items() if said}  # an ended one has none


class Machine:
    """An engine in a thread, and what a person does beside it."""

    def __init__(self, folder: Path) -> None:
        self.place, self.home = folder / "model", folder / "model" / ".mlgitops"
        self.place.mkdir()
        self.git("init", "-q", "-b", "main")
        setup.prepare(self.home, self.place)
        self.said: list[str] = []
        self.tell: Callable[[], Sequence[str]] = tuple
        self.context = wiring.context(str(self.home / setup.ENVIRONMENT_REPOSITORY), self.home / "cache", wiring.TOOL)

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.place), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def note(self, message: str) -> None:
        self.said.append(message)

    def write(self, files: dict[str, bytes | None]) -> str | None:
        """Commit files to `main` of the environment repository."""
        now = self.context.repository.snapshot(MAIN).revision
        return self.context.repository.update(MAIN, now, [Change(message="a person", files=files)])

    def start(self) -> None:
        self.said.clear()
        world = wiring.world(self.home, self.context)
        variables = {"PYTHONPATH": str(LINEAR)}
        made = threading.Event()

        def run() -> None:  # one thread makes and ends it, as the command does: a lock belongs to its thread
            self.engine = Engine(
                self.home, world, self, loader="linear_model:load", variables=variables, tell=self.tell
            )
            made.set()
            self.engine.run()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert made.wait(30)

    def stop(self) -> None:
        self.engine.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except (Unavailable, OSError):
                pass
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s; said: {self.said}")

    def told(self, words: str) -> int:
        return sum(words in one for one in self.said)

    def answer(self) -> Any:
        """Return what production says to one request; None when it does not answer."""
        port = self.engine._serving.router_port
        if port is None:
            return None
        body = json.dumps({"instances": [[1.0, 2.0]]}).encode()
        path = "/production/digits/v1/models/digits:predict"
        found = call(port, "POST", path, service="router", body=body, timeout_seconds=10)
        return json.loads(found.body)["predictions"] if found.status == 200 else None

    def pushed(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "pushed.json").read_bytes()))

    def applied(self) -> dict[str, Any]:
        return dict(json.loads((self.home / wiring.CLUSTER / "applied" / "production.json").read_bytes()))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    yield one
    if getattr(one, "thread", None) is not None and one.thread.is_alive():
        one.stop()


def test_people_are_told_beside_the_passes(machine: Machine) -> None:
    """What the ledger came to say is told at once, by a thread of its own; what could not be told is a problem."""
    seen: list[str | None] = []
    hangs = threading.Event()

    def tell() -> Sequence[str]:
        seen.append(machine.context.repository.snapshot(LEDGER).revision)
        hangs.wait(30)
        return ["notification chat: the service is away"]

    machine.tell = tell
    machine.start()
    machine.until(lambda: len(seen) == 1)
    files = {"environments/production/digits/note": b"x"}
    ledger = machine.context.repository.snapshot(LEDGER).revision
    changed = machine.context.repository.update(LEDGER, ledger, [Change(message="decided", files=files)])
    machine.until(lambda: machine.told("decided"))  # a pass has seen it, while the message hangs
    assert len(seen) == 1
    hangs.set()
    machine.until(lambda: seen[-1] == changed)
    machine.until(lambda: machine.told("problem  notification chat: the service is away") == 1)


def release(machine: Machine, name: str, favours: int) -> dict[str, bytes | None]:
    """Store a model, and return the files of production that serve it."""
    artifact = machine.home / wiring.STORE / name
    (artifact / "1").mkdir(parents=True)
    bias = [float(index == favours) for index in range(3)]
    (artifact / "1" / "linear.json").write_text(json.dumps({"weights": [[0.0] * 3] * 2, "bias": bias}))
    digest = str(directory_digest(artifact))
    model = {"modelFormat": {"name": "tensorflow"}, "storageUri": f"pvc://{wiring.CLAIM}/{name}"}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "digits",
            "labels": {"mlgitops.dev/release": "a" * 12},
            "annotations": {
                "serving.kserve.io/deploymentMode": "Standard",
                "mlgitops.dev/artifact-digest": digest,
            },
        },
        "spec": {"predictor": {"model": model}},
    }
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "digits", "annotations": {"mlgitops.dev/cohort": "1-1"}},
        "spec": {"rules": [{"backendRefs": [{"name": "digits-predictor", "port": 80, "weight": 100}]}]},
    }
    return {
        f"{FOLDER}/kustomization.yaml": KUSTOMIZATION,
        f"{FOLDER}/service.json.yaml": json.dumps(service).encode(),
        f"{FOLDER}/route.json.yaml": json.dumps(route).encode(),
    }


def test_what_is_broken_on_main_takes_nothing_down(machine):
    """What served goes on serving after a start, whatever is broken on main, which is told; no process is left."""
    before = children()
    machine.write(release(machine, "first", 2))
    machine.start()
    machine.until(lambda: machine.answer() == [[0.0, 0.0, 1.0]])
    assert machine.applied()["error"] == ""
    machine.stop()
    machine.until(lambda: children() == before, 10)

    tip = machine.write({"environments.yaml": b"{", f"{FOLDER}/kustomization.yaml": b"bases: [elsewhere]\n"})
    machine.start()
    machine.until(lambda: machine.answer() == [[0.0, 0.0, 1.0]])
    machine.until(lambda: machine.told("environments.yaml") and machine.told("is not honoured"))
    assert machine.applied()["newest"] == tip
    assert "is not honoured" in machine.applied()["error"]

    machine.write({"environments.yaml": None, **release(machine, "second", 0)})
    machine.until(lambda: machine.answer() == [[1.0, 0.0, 0.0]])
    assert machine.applied()["error"] == ""
    machine.stop()
    assert children() == before


def test_labels_in_the_store_are_counted_while_it_runs(machine):
    """A label that is written beside a running engine is soon the label of its request, and a broken line is told."""
    machine.write(release(machine, "first", 2))
    machine.start()
    machine.until(lambda: machine.answer() == [[0.0, 0.0, 1.0]])
    port = machine.engine._serving.router_port
    body = json.dumps({"instances": [[1.0, 2.0]]}).encode()
    path = "/production/digits/v1/models/digits:predict"
    call(port, "POST", path, service="router", body=body, headers={"X-Request-Id": "r1"}, timeout_seconds=10)
    file = machine.home / wiring.STORE / "labels" / "production" / "digits.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"id": "r1"\n{"id": "r1", "label": 0}\n')
    told = 'mlgitops_labelled_total{arm="baseline",cohort="1-1"'
    machine.until(lambda: _value(call(port, "GET", "/metrics", service="router").body.decode(), told, "incorrect") == 1)
    machine.until(lambda: machine.told("labels/production/digits.jsonl:1: the line is no JSON"))
    assert _value(call(port, "GET", "/metrics", service="router").body.decode(), told, '"correct"') == 0


def _value(exposition: str, begins: str, holds: str) -> float:
    lines = [one for one in exposition.splitlines() if one.startswith(begins) and holds in one]
    return sum(float(one.rpartition(" ")[2]) for one in lines)


def test_a_push_that_is_interrupted_is_taken_again(machine, tmp_path, monkeypatch):
    """Stopping the engine ends the tests of a push at once, with all they started; the next engine takes that push."""
    before = children()
    mark = machine.home / "started"
    again = machine.home / "again"
    sleeper = (
        f"import pathlib, time\nmark = pathlib.Path({str(mark)!r})\nif mark.exists():\n"
        f"    pathlib.Path({str(again)!r}).touch()\n    raise SystemExit(3)\nmark.touch()\ntime.sleep(600)\n"
    )
    files = {
        "mlgitops.yaml": MODEL,
        "train.py": "print('train')\n",
        "requirements.txt": "numpy==2.0.0\n",
        "test.py": sleeper,
        "data/train.npz": "x",
        "data/evaluation.npz": "y",
    }
    (machine.place / "data").mkdir()
    for name, text in files.items():
        (machine.place / name).write_text(text)
    machine.git("add", "-A")
    machine.git("commit", "-qm", "first")
    machine.git("push", "-q", "local")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    machine.start()
    machine.until(mark.exists)
    machine.stop()
    machine.until(lambda: not sleepers(), 10)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert children() == before
    assert not (machine.home / "pushed.json").exists()
    (machine.place / "test.py").write_text("print('no luck')\nraise SystemExit(3)\n")
    machine.git("commit", "-qam", "second")
    machine.git("push", "-q", "local")
    machine.start()
    machine.until(lambda: machine.pushed()["revision"] == machine.git("rev-parse", "HEAD"))
    machine.stop()
    assert again.exists()
    assert machine.pushed()["code"] == 10
    assert "no luck" in (machine.home / "pushed.log").read_text()


MODEL = """\
apiVersion: mlgitops.dev/v1
kind: Model
metadata: {name: digits}
inputs: [train.py]
data:
  - path: data/train.npz
requirements: requirements.txt
image: {builder: embedded, repository: digits}
training:
  script: train.py
  replicas: {chief: 1, worker: 1}
test:
  command: [python, test.py]
evaluation:
  data: data/evaluation.npz
  task: classification
  inputs: x
  labels: 'y'
"""


def sleepers() -> list[int]:
    """Return the test commands that still run in a checkout."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            where = str((entry / "cwd").readlink())
        except OSError:
            continue
        if entry.name.isdigit() and b"test.py" in words and sys.executable.encode() in words and "mlgitops-" in where:
            found.append(int(entry.name))
    return found


def test_what_begins_to_serve_ends_the_pause_between_two_passes(machine, monkeypatch):
    """A pass follows at once when a job or a service changes, however long the pause would still be."""
    monkeypatch.setattr("mlgitops.local.engine.RECONCILE_SECONDS", 3600.0)
    passes: list[Any] = []

    def note_pass(engine: Engine) -> None:
        passes.append(engine._serving.observation().get("production", {}).get("models"))

    monkeypatch.setattr(Engine, "_pass", note_pass)
    machine.write(release(machine, "first", 2))
    machine.start()
    machine.until(lambda: any(models and models["digits"]["baseline"]["ready"] for models in passes), 30)
