"""Secrets planted wherever one can come in: not one byte of them is in anything that is left behind or told."""

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.support.git_server import TOKEN as SERVER_TOKEN
from tests.support.git_server import http_server
from tests.support.world import CONFIGURATION

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

# Scripts put them together while they run, so that none stands in a file of the model repository.
PRINTED: Final = "gh" + "p_" + "Tr4in1ngL0g" * 3
RAISED: Final = "eyJhbGciOi" + "JIUzI1NiJ9." + "eyJ0cmFpbmluZyI6" + "IjEifQ.dGhlIGVuZA"
KEY_LINE: Final = "b3BlbnNzaC1rZXktdjEAAAA" + "ABG5vbmUAAAA"
TESTED: Final = "gl" + "pat-" + "0utputOfTests" * 2
IN_URL: Final = "Pa55" + "word-in-a-url"
VARIABLE: Final = "Deploy" + "-5ecret-of-the-environment"
SECRETS: Final = (PRINTED, RAISED, KEY_LINE, TESTED, IN_URL, VARIABLE, SERVER_TOKEN)

TRAIN: Final = """
import os, sys
printed = "gh" + "p_" + "Tr4in1ngL0g" * 3
raised = "eyJhbGciOi" + "JIUzI1NiJ9." + "eyJ0cmFpbmluZyI6" + "IjEifQ.dGhlIGVuZA"
print("cloning with", printed, flush=True)
print("-----BEGIN OPENSSH " + "PRIVATE KEY-----")
print("b3BlbnNzaC1rZXktdjEAAAA" + "ABG5vbmUAAAA")
print("-----END OPENSSH " + "PRIVATE KEY-----")
for number in range(3000):
    print("epoch", number, "password=" + "Pa55" + "word-in-a-url")
sys.stdout.write("\\x1b[31m" + printed)
sys.stdout.flush()
raise RuntimeError("https://ada:" + "Pa55" + "word-in-a-url" + "@example.org said 401: Bearer " + raised)
"""
TEST: Final = """
import sys
print("connecting with", "gl" + "pat-" + "0utputOfTests" * 2)
sys.exit("--token " + "gl" + "pat-" + "0utputOfTests" * 2)
"""
TESTED_CONFIGURATION: Final = CONFIGURATION.replace("worker: 1}", "worker: 1}\n  backoffLimit: 0") + (
    "test:\n  command: [python, test.py]\n"
)


@dataclass
class Place:
    """A model repository with an engine, and everything that was told."""

    root: Path
    told: list[bytes] = field(default_factory=list)

    @property
    def model(self) -> Path:
        return self.root / "digits"

    @property
    def home(self) -> Path:
        return self.model / ".mlgitops"

    @property
    def variables(self) -> dict[str, str]:
        for name in ("tmp", "cache"):
            (self.root / name).mkdir(exist_ok=True)
        return {
            **os.environ,
            "TMPDIR": str(self.root / "tmp"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "DEPLOY_TOKEN": VARIABLE,
            "DATABASE_URL": f"postgres://ada:{IN_URL}@db.example.org/x",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.root / "outputs"),
            "GITHUB_STEP_SUMMARY": str(self.root / "summary"),
        }

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", str(self.model), *words], check=True, capture_output=True, env=self.variables)

    def tool(self, *words: str, **variables: str) -> int:
        done = subprocess.run(
            [sys.executable, "-m", "mlgitops", *words],
            cwd=self.model,
            env=self.variables | variables,
            capture_output=True,
            check=False,
        )
        self.told += [done.stdout, done.stderr]
        return done.returncode

    def until(self, what: str, ready: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, f"{what}: {(self.root / 'engine.log').read_text()[-3000:]}"
            time.sleep(0.3)

    def commit(self, files: dict[str, str], message: str) -> None:
        for name, text in files.items():
            (self.model / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def said(self) -> str:
        log = self.home / "pushed.log"
        return log.read_text() if log.exists() else ""


def every_byte(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file below a folder, and every object of every repository there."""
    for one in root.rglob("*"):
        if one.is_file() and not one.is_symlink():
            yield str(one), one.read_bytes()
        if one.name == "objects" and (one.parent / "HEAD").exists():
            words = ["git", "--git-dir", str(one.parent), "cat-file", "--batch-all-objects", "--batch", "--unordered"]
            yield str(one), subprocess.run(words, check=True, capture_output=True).stdout


def found(place: Place) -> list[str]:
    """Return where a planted secret is, plain or in base64."""
    forms = {one: (one.encode(), base64.b64encode(one.encode())) for one in SECRETS}
    streams = [("what commands told", b"\n".join(place.told)), *every_byte(place.root)]
    return [
        f"{one[:4]}… in {name}" for name, data in streams for one, form in forms.items() if any(f in data for f in form)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    (place.model / "data").mkdir(parents=True)
    for name in ("train", "evaluation"):
        np.savez(place.model / "data" / f"{name}.npz", x=np.zeros((4, 2)), y=np.zeros(4))
    place.git("init", "-q", "-b", "main")
    with (tmp_path / "engine.log").open("wb") as log:
        words = [sys.executable, "-m", "mlgitops", "local", "up"]
        place.commit(
            {"mlgitops.yaml": TESTED_CONFIGURATION, "requirements.txt": "", "train.py": TRAIN, "test.py": TEST}, "one"
        )
        engine = subprocess.Popen(words, cwd=place.model, env=place.variables, stdout=log, stderr=log)
        try:
            place.until("the engine", (place.home / "serving" / "observation.json").exists)
            yield place
        finally:
            engine.send_signal(signal.SIGINT)
            engine.wait(60)


def test_no_planted_secret_survives(place: Place) -> None:
    """Address, environment, output of tests, log of a training and its failure: none of their secrets is left."""
    place.git("push", "-q", "local")
    place.until("the failed tests", lambda: "its tests failed" in place.said())
    assert "connecting with ***" in place.said()
    place.commit({"test.py": "", "train.py": TRAIN}, "two")
    place.git("push", "-q", "local")
    place.until("a release", lambda: "submitted" in place.said())
    release = place.said().split("release ")[-1].split()[0]
    assert place.tool("logs", release, "--follow") == 10
    followed = place.told[-2]
    assert b"cloning with ***" in followed
    assert b"epoch 2999 password=***" in followed
    assert place.tool("hold", "--reason", f"rotate {VARIABLE} and {PRINTED}") == 0
    for words in (["status"], ["history"], ["logs", release], ["models", "show", release], ["report"], ["reconcile"]):
        assert place.tool(*words) == 0, place.told[-1]
        if words[0] != "logs":
            place.tool(*words, "--output", "json")
    place.tool("gc", "--dry-run", "--output", "json")
    with http_server(place.root / "served") as server:
        (place.root / "served").mkdir()
        subprocess.run(["cp", "-r", str(place.home / "environment.git"), str(place.root / "served")], check=True)
        host = f"127.0.0.1:{server.server_port}/environment.git"
        assert place.tool("status", "-R", f"http://x-access-token:{SERVER_TOKEN}@{host}") == 0, place.told[-1]
        assert place.tool("resume", "-R", f"http://{host}", MLGITOPS_TOKEN=SERVER_TOKEN) == 0, place.told[-1]
        for words in (["--verbose"], ["--output", "json"]):
            assert place.tool("status", "-R", f"http://ada:{IN_URL}@{host}", *words) == 1
    for location in (f"http://ada:{IN_URL}@127.0.0.1:1/x.git", f"ftp://ada:{IN_URL}@example.org/x"):
        for words in ([], ["--verbose"], ["--output", "json"]):
            assert place.tool("status", "-R", location, *words) in (3, 5)
    assert place.tool("status", f"--token={VARIABLE}") == 2
    history = next(one for one in place.told if b"FAILED" in one)
    assert b"***" in history
    place.until("nothing is left", lambda: not found(place), seconds=10)


def test_the_search_finds_what_is_planted(place: Place) -> None:
    """The search itself sees a secret in a file, in a git object and in what a command told."""
    (place.root / "leak").write_text(f"x {PRINTED}")
    place.commit({"leak": RAISED}, "a leak")
    place.told.append(base64.b64encode(VARIABLE.encode()))
    assert {one[:4] for one in found(place)} == {PRINTED[:4], RAISED[:4], VARIABLE[:4]}
