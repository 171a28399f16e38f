"""A new user's way, walked as the README says it: init, local up, push, predict, label, trace, stop and start again."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.flowers import flowers, git, leftovers, production, tool, wait

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(420)]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return flowers(tmp_path / "flowers")


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


def post(url: str, body: Any, token: str = "") -> tuple[dict[str, str], Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(answer.headers), json.loads(answer.read())


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
