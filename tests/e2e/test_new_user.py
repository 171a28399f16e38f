"""A new user's way, walked as the README says it: init, local up, push, predict, label, trace, stop and start again."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(420)]

TRAIN = """
import numpy as np
import tensorflow as tf

from mlgitops import training


def main():
    with np.load(training.data_path()) as data:
        x, y = data["x"], data["y"]
    weights = np.stack([x[y == one].mean(axis=0) for one in range(2)]).T.astype("float32")
    module = tf.Module()
    module.weights = tf.Variable(weights)
    module.offset = tf.Variable(-0.5 * (weights ** 2).sum(axis=0))

    def serve(x):
        return {"scores": tf.nn.softmax(tf.matmul(x, module.weights) + module.offset)}

    artifact = training.export(module, signature=serve, inputs={"x": ([None, 4], "float32")})
    training.report({"examples": float(len(x))}, artifact=artifact)


if __name__ == "__main__":
    training.run(main)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    import numpy as np

    folder = tmp_path / "flowers"
    (folder / "data").mkdir(parents=True)
    random = np.random.default_rng(1)
    for name, count in (("train", 200), ("evaluation", 120)):
        y = random.integers(0, 2, count)
        x = (random.normal(size=(count, 4)) + 3 * y[:, None]).astype("float32")
        np.savez(folder / "data" / f"{name}.npz", x=x, y=y)
    (folder / "train.py").write_text(TRAIN)
    git(folder, "init", "-q", "-b", "main")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def tool(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "mlgitops", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def engine(repository: Path) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    running: list[subprocess.Popen[bytes]] = []
    log = (repository.parent / "engine.log").open("ab")

    def start() -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "mlgitops", "local", "up"]
        running.append(subprocess.Popen(words, cwd=repository, stdout=log, stderr=log))
        wait("the engine", (repository / ".mlgitops" / "serving" / "observation.json").exists)
        return running[-1]

    yield start
    for one in running:
        if one.poll() is None:
            one.send_signal(signal.SIGINT)
            one.wait(60)
    sys.stdout.write((repository.parent / "engine.log").read_text())  # pytest shows it where the test fails


def wait(what: str, ready: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: nothing after {seconds} s"
        time.sleep(0.5)


def production(folder: Path) -> dict[str, Any]:
    models = json.loads(tool(folder, "status", "--output", "json"))["models"]
    found: dict[str, Any] = models[0]["environments"][-1] if models else {}
    return found


def post(url: str, body: Any, token: str = "") -> tuple[dict[str, str], Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(answer.headers), json.loads(answer.read())


def leftovers(home: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(home) in words:
                found.append(words)
    return found


def test_a_new_user_gets_from_init_to_a_traced_answer(
    repository: Path, engine: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    """The commands of the README lead from a script to production and back to where an answer came from."""
    tool(repository, "init")
    tool(repository, "lint")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "feat: tell two flowers apart")
    first = engine()
    git(repository, "push", "-q", "local")
    wait("a release in production", lambda: production(repository).get("champion"))
    home = repository / ".mlgitops"

    from mlgitops.adapters.serving.embedded import EmbeddedServing

    serving = EmbeddedServing(home / "serving")
    address = f"{serving.address()}/production/flowers"
    headers, answer = post(f"{address}/v1/models/flowers:predict", {"instances": [[3.0, 3.0, 3.0, 3.0]]})
    assert len(answer["predictions"]) == 1
    request = headers["X-Request-Id"]
    _, told = post(f"{address}/labels", {"labels": [{"id": request, "label": 1}]}, serving.label_token())
    assert told
    traced = tool(repository, "trace", request)
    assert git(repository, "rev-parse", "HEAD").strip() in traced
    assert "tell two flowers apart" in traced

    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 0
    assert leftovers(home) == []
    engine()
    wait("serving again", lambda: answers(address))
    git(repository, "commit", "--allow-empty", "-qm", "docs: nothing that trains")
    git(repository, "push", "-q", "local")
    wait("the push", lambda: git(repository, "rev-parse", "HEAD").strip() in (home / "pushed.json").read_text())
    assert len(json.loads(tool(repository, "history", "--output", "json"))["releases"]) == 1


def answers(address: str) -> bool:
    try:
        post(f"{address}/v1/models/flowers:predict", {"instances": [[0.0, 0.0, 0.0, 0.0]]})
    except OSError:
        return False
    return True
