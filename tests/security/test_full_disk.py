"""A full disk: said as what it is, with the published exit code; nothing half-written; going on once there is room."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
from mlgitops.core.errors import Unavailable
from mlgitops.local.telling import Problems
from mlgitops.ports.evaluator import EvaluationRequest
from tests.support.world import CONFIGURATION

ROOT = Path(__file__).parents[2]
ISOLATED = ["unshare", "--user", "--map-root-user", "--mount"]
"""A namespace of its own, in which a small disk can be made without any right on the machine."""
IN_A_SMALL_DISK = """
import json, os, pathlib, subprocess, sys
from mlgitops.cli import main
disk, size = pathlib.Path(sys.argv[1]), int(sys.argv[2])
filler = disk / "filler"

def room(free):
    # Leave that many bytes: all but them is taken by a file.
    filler.unlink(missing_ok=True)
    whole = os.statvfs(disk)
    with filler.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, whole.f_bavail * whole.f_bsize - free))
        except OSError as error:
            raise SystemExit(f"cannot fill the disk: {error}")

def run(*words):
    import contextlib, io
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([*words])
    return code, out.getvalue(), err.getvalue()

def tell(**values):
    print(json.dumps(values), flush=True)
"""


def small_disk(folder: Path, script: str, *, megabytes: int = 4) -> list[dict[str, Any]]:
    """Run a script beside a small disk of its own at `folder/disk`; returns what it told."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    (folder / "disk").mkdir(exist_ok=True)
    (folder / "script.py").write_text(IN_A_SMALL_DISK + textwrap.dedent(script))
    mount = f"mount -t tmpfs -o size={megabytes}m none disk && "
    program = f"exec {sys.executable} script.py disk {megabytes << 20}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    done = subprocess.run(
        [*ISOLATED, "sh", "-c", mount + program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this machine lets nobody make a mount namespace")
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model repository with an engine's home, to be copied onto a small disk."""
    import numpy as np

    from mlgitops.local import setup

    folder = tmp_path / "digits"
    (folder / "data").mkdir(parents=True)
    files = {"mlgitops.yaml": CONFIGURATION, "train.py": "print('train')\n" * 2000, "requirements.txt": ""}
    for name, text in files.items():
        (folder / name).write_text(text)
    random = np.random.default_rng(1)
    for name in ("train", "evaluation"):
        np.savez(folder / "data" / f"{name}.npz", x=random.normal(size=(40, 128)), y=np.zeros(40))
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    setup.prepare(tmp_path / "home", folder)
    return folder


def test_train_goes_on_wherever_the_disk_was_full(model: Path) -> None:
    """Stopped by a full disk anywhere between data, image and ledger, `train` exits with 5, and later goes on."""
    told = small_disk(
        model.parent,
        """
        home = disk / "home"
        subprocess.run(["cp", "-r", "home", str(home)], check=True)
        words = ["train", "--repository", "digits", "--home", str(home), "-R", str(home / "environment.git")]
        free = 0
        while True:
            room(free)
            code, out, err = run(*words)
            left = [str(one) for one in home.rglob("*") if one.is_file()]
            check = ["git", "-C", str(home / "environment.git"), "fsck", "--strict"]
            broken = subprocess.run(check, capture_output=True)
            half = [one for one in left if ".incoming" in one or "/.new-" in one or "/.environment" in one]
            tell(free=free, code=code, out=out, err=err, half=half, fsck=broken.returncode)
            if code != 5 or free > 2 << 20:
                break
            free += 8192
        room(1 << 20)
        tell(again=run(*words), history=run("history", "--output", "json", "-R", str(home / "environment.git"))[1])
        """,
    )
    *tries, last = told
    assert [one["code"] for one in tries[:-1]] == [5] * (len(tries) - 1), tries
    assert len(tries) > 5
    assert tries[-1]["code"] == 0, tries[-1]
    assert all("no space left" in one["err"].lower() for one in tries[:-1]), [one["err"] for one in tries[:-1]]
    assert not any("Traceback" in one["err"] or "bug" in one["err"] for one in tries)
    assert not any(one["half"] for one in tries), tries
    assert not any(one["fsck"] for one in tries)
    assert "recognised" in last["again"][1]
    assert len(json.loads(last["history"])["releases"]) == 1


def test_decisions_reports_and_clones_on_a_full_disk(model: Path) -> None:
    """A hold, a report, a first clone from a server and an answer into a file: 5 where there is no room, then done."""
    from tests.support.git_server import TOKEN

    told = small_disk(
        model.parent,
        f"""
        from tests.support.git_server import http_server, TOKEN
        assert TOKEN == {TOKEN!r}
        home = disk / "home"
        subprocess.run(["cp", "-r", "home", str(home)], check=True)
        place = ["-R", str(home / "environment.git")]
        room(1 << 20)
        assert run("train", "--repository", "digits", "--home", str(home), *place)[0] == 0
        os.environ["XDG_CACHE_HOME"] = str(disk / "cache")
        report = disk / "report.html"
        room(0)
        full = [run("hold", "--reason", "audit", *place), run("report", "--file", str(report), *place)]
        with http_server(home) as server:
            url = f"http://x-access-token:{{TOKEN}}@127.0.0.1:{{server.server_port}}/environment.git"
            full.append(run("status", "-R", url))
            there = report.exists()
            room(1 << 20)
            done = [run("hold", "--reason", "audit", *place), run("report", "--file", str(report), *place)]
            done.append(run("status", "-R", url))
        told = disk / "answer"
        room(0)
        with told.open("w") as file:
            words = [sys.executable, "-m", "mlgitops", "history", *place]
            answer = subprocess.run(words, stdout=file, stderr=subprocess.PIPE)
        tell(full=full, done=done, there=there, answer=[answer.returncode, answer.stderr.decode()])
        """,
    )
    (found,) = told
    assert [one[0] for one in found["full"]] == [5, 5, 5], found["full"]
    assert [one[0] for one in found["done"]] == [0, 0, 0], found["done"]
    assert found["there"] is False
    assert found["answer"][0] == 5
    assert "Traceback" not in found["answer"][1]
    assert "no space left" in found["answer"][1].lower()


def test_an_evaluation_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation that cannot be noted down is not started, and is unavailable, not a bug; later it is."""
    evaluator = EmbeddedEvaluator(tmp_path / "evaluations", Path, probe=False)
    request = EvaluationRequest(
        key="a-b",
        candidate_uri="x",
        candidate_digest=None,
        champion_uri=None,
        champion_digest=None,
        data_uri="y",
        specification={"task": "classification"},
    )

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(Unavailable, match="No space"):
            evaluator.evaluate(request)
    monkeypatch.setattr("mlgitops.adapters.atomic._write", full)
    with pytest.raises(Unavailable, match="no space left"):
        evaluator.evaluate(request)
    assert not (evaluator.folder("a-b") / "process.json").exists()


def test_old_bytes_stay_where_new_ones_have_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written anew on a full disk keeps what it held, and no draft of it is left."""
    file = tmp_path / "state.json"
    write_atomically(file, b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(Unavailable, match="no space left"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


def test_the_engine_says_that_a_disk_is_full_and_goes_on(tmp_path: Path) -> None:
    """What meets a full disk in the engine is told as that, once, and not as a bug."""
    said: list[str] = []

    class Told:
        def note(self, message: str) -> None:
            said.append(message)

    def full() -> None:
        raise OSError(28, "No space left on device", "/home/engine/x")

    problems = Problems(Told(), tmp_path / "bug.txt")
    assert problems.attempt("metrics", full) is False
    assert problems.attempt("metrics", full) is False
    assert said == ["problem  the disk of /home/engine/x is unavailable: no space left"]
    assert not (tmp_path / "bug.txt").exists()
