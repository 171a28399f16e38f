"""A demo that was killed is cleared away whole, and nobody else's process with it."""

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mlgitops.demo.leftovers import end_processes, processes, remove

SLEEP = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(flush=True); "
SLEEP += "time.sleep(600)"
HOME = "model/.mlgitops"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "demo"
    (place / HOME / "cluster" / "work").mkdir(parents=True)
    return place


@pytest.fixture
def started():
    running = []

    def start(words, where, **options):
        options = {"stdout": subprocess.PIPE, "start_new_session": True} | options
        running.append(subprocess.Popen(words, cwd=where, **options))
        if running[-1].stdout is not None:
            running[-1].stdout.readline()
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.wait()


def test_every_process_of_an_earlier_run_is_ended(folder, started, tmp_path):
    """What works in the engine's home, is told paths there, or is the tool in the folder is asked to end, and does."""
    python = [sys.executable, "-c", SLEEP]
    mine = [
        started(python, folder / HOME / "cluster" / "work"),
        started([*python, str(folder / HOME / "evaluations" / "1")], tmp_path),
        started([*python, "mlgitops", "local", "up"], folder / "model"),
    ]
    assert set(processes(folder, HOME)) == {one.pid for one in mine}
    ends = [threading.Thread(target=one.wait) for one in mine]
    for one in ends:
        one.start()
    end_processes(folder, HOME)
    assert processes(folder, HOME) == []
    assert [one.wait(5) for one in mine] == [0, 0, 0]


def test_strangers_are_left_alone(folder, started, tmp_path):
    """Another demo, a program of another kind, a notebook in the model's folder, and whoever has a terminal stay."""
    beside = tmp_path / "demo2" / HOME
    beside.mkdir(parents=True)
    python = [sys.executable, "-c", SLEEP]
    master, terminal = pty.openpty()
    strangers = [
        started(python, beside),
        started([*python, str(beside)], tmp_path),
        started(["/bin/sh", "-c", "echo; sleep 600"], folder / HOME),
        started(python, folder / "model"),
        started(
            ["/usr/bin/setsid", "-c", *python, str(folder / HOME)],
            folder / HOME,
            stdin=terminal,
            stdout=terminal,
            start_new_session=False,
        ),
    ]
    time.sleep(1)
    try:
        assert processes(folder, HOME) == []
        end_processes(folder, HOME)
        assert [one.poll() for one in strangers] == [None] * len(strangers)
    finally:
        os.close(master)
        os.close(terminal)


def test_a_folder_that_is_still_written_to_is_removed(folder):
    """Something that ends while the folder is removed does not leave half of it."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.001) and number < 300:
            number += 1
            try:
                (folder / HOME / "cluster" / str(number)).write_text("x")
            except OSError:
                return

    writer = threading.Thread(target=write)
    writer.start()
    remove(folder)
    stop.set()
    writer.join()
    assert not folder.exists()
