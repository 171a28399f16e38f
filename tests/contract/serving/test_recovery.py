"""What crashes comes back, and what was counted stays counted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.serving.children import kill_recorded, start_ticks
from mlgitops.core.errors import Conflict, Unavailable
from tests.contract.serving.linear_model import LOADER, ROOT
from tests.contract.serving.serving_kit import Engine, service

A = "aaaaaaaaaaaa"


def router_pid(engine: Engine) -> int:
    """The router's process; 0 while there is none."""
    return next((child.pid for child in engine.controller._router.children()), 0)


def server_pid(engine: Engine) -> int:
    """The process that answers; 0 while there is none."""
    current = engine.controller._environments["production"].services["digits"].current
    return current.child.pid if current else 0


def serve(engine: Engine) -> None:
    engine.apply("production", service("digits", *engine.model(), A))
    engine.until_ready("production")


def total(engine: Engine, outcome: str = "ok") -> float:
    lines = engine.ask("GET", "/metrics").body.decode().splitlines()
    found = [x for x in lines if x.startswith("mlgitops_requests_total") and f'outcome="{outcome}"' in x]
    return sum(float(x.rsplit(" ", 1)[1]) for x in found)


def test_a_killed_router_comes_back_with_its_counts_requests_and_address(engine: Engine) -> None:
    """After a kill -9 of the router its address answers again, counters go on, and old requests take labels once."""
    serve(engine)
    engine.send("production", ["one", "two"])
    engine.labels("production", [("one", 0)])
    port, pid = engine.controller.router_port, router_pid(engine)
    os.kill(pid, signal.SIGKILL)
    engine.until(lambda: router_pid(engine) not in (0, pid) and engine.controller.router_port == port)
    engine.until_ready("production")
    assert engine.serving.trace("production", "digits", "one")["correct"] is True
    assert engine.labels("production", [("one", 1), ("two", 0)]) == {
        "accepted": 1,
        "repeated": 1,
        "late": 0,
        "unknown": 0,
        "invalid": 0,
        "refused": [{"id": "one", "answer": "repeated"}],
    }
    engine.send("production", ["three"])
    assert total(engine) == 3


def test_a_killed_server_is_started_again(engine: Engine) -> None:
    """After a kill -9 of a model server its requests fail as counted failures until it is back by itself."""
    serve(engine)
    pid = server_pid(engine)
    os.kill(pid, signal.SIGKILL)
    assert engine.send("production", ["lost"])[0][0] in (502, 503)
    engine.until(lambda: server_pid(engine) not in (0, pid) and engine.baseline("production").ready)
    assert engine.send("production", ["back"])[0][0] == 200
    assert total(engine, "failed") == 1


def test_a_hanging_server_is_started_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers no question any more is replaced, although its process lives."""
    monkeypatch.setattr("mlgitops.adapters.serving.replacement.HEALTH_SECONDS", 0.2)
    monkeypatch.setattr("mlgitops.adapters.serving.replacement.ANSWER_SECONDS", 0.3)
    serve(engine)
    pid = server_pid(engine)
    os.kill(pid, signal.SIGSTOP)
    engine.until(lambda: not engine.baseline("production").serving)
    assert "hangs" in engine.baseline("production").message
    engine.until(lambda: engine.baseline("production").ready)
    assert server_pid(engine) != pid


def test_what_an_engine_leaves_is_ended_with_it(tmp_path: Path, engine: Engine) -> None:
    """Killing the engine's process ends its servers; a new engine serves again on the same address."""
    uri, digest = engine.model()
    script = f"""
import pathlib, time
from tests.contract.serving.serving_kit import Engine, service
engine = Engine(pathlib.Path({str(tmp_path / "other")!r}))
engine.resolve = lambda uri: pathlib.Path({str(engine.resolve(uri))!r})
engine.apply("production", service("digits", {uri!r}, {str(digest)!r}))
engine.controller._starter._resolve = engine.resolve
engine.until_ready("production")
print(*[child.pid for child in [*engine.controller._router.children(),
    *engine.controller._environments["production"].services["digits"].children()]], flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    engine.until(lambda: not any(alive(pid) for pid in pids), 20)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_new_engine_ends_leftovers_and_never_a_strangers_process(tmp_path: Path) -> None:
    """A recorded process is ended only when its id and start time are those that were written down."""
    processes = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    ours, stranger = (process.pid for process in processes)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    entries = [[ours, start_ticks(ours)], [stranger, "1"], [os.getpid(), "1"]]
    file = tmp_path / "processes.json"
    file.write_text(json.dumps({"boot": boot, "processes": entries}))
    assert kill_recorded(file) == 1
    assert processes[0].wait(5) == -signal.SIGKILL
    time.sleep(0.05)
    assert processes[1].poll() is None
    processes[1].kill()
    processes[1].wait()


def test_two_engines_cannot_share_a_home(engine: Engine) -> None:
    """A second engine on the same home is refused and leaves the first one's servers alone."""
    serve(engine)
    with pytest.raises(Conflict):
        type(engine.controller)(engine.home, engine.resolve, loader=LOADER)
    assert engine.send("production", ["one"])[0][0] == 200


def test_a_closed_engine_leaves_no_process_and_is_unavailable(engine: Engine) -> None:
    """After `close` no process is left, looking is Unavailable, and a new engine has the same address."""
    serve(engine)
    pids, port = [router_pid(engine), server_pid(engine)], engine.controller.router_port
    engine.close()
    assert not any(alive(pid) for pid in pids)
    with pytest.raises(Unavailable):
        engine.observe("production")
    engine.open()
    assert engine.controller.router_port == port


def test_server_processes_get_none_of_the_engines_environment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model code sees no variable of the engine, so no credential reaches it."""
    monkeypatch.setenv("MLGITOPS_SECRET", "hunter2")
    serve(engine)
    assert b"hunter2" not in Path(f"/proc/{server_pid(engine)}/environ").read_bytes()
