"""`logs --follow`: every byte once, until the training is over, with an exit code that says how it ended."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgitops.adapters.cluster.logs import log_parts, read_log
from mlgitops.adapters.cluster.shim import Log
from mlgitops.app.following import follow
from mlgitops.core.errors import Unavailable
from mlgitops.ports.cluster import left_out
from tests.support.world import MODEL, Engine, Quality, push, quick_world, settle


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=40))
def test_what_is_read_while_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bool]]
) -> None:
    """However writing and reading take turns, a follower gets each line once, or a gap of its exact size."""
    folder = tmp_path_factory.mktemp("log")
    log, written, read, position = Log(folder, 256), b"", b"", 0
    for number, (length, looks) in enumerate(pieces):
        line = f"{number:03}".ljust(length, "x").encode() + b"\n"
        written += line
        log.write(line)
        if looks:
            for part in log_parts(folder, position):
                read += b"?" * (part.position - position) + part.data
                position = part.position + len(part.data)
    for part in log_parts(folder, position):
        read += b"?" * (part.position - position) + part.data
        position = part.position + len(part.data)
    assert len(read) == len(written)
    assert all(told in (real, ord("?")) for told, real in zip(read, written, strict=True))
    if not any(looks for _, looks in pieces):
        kept = read.replace(b"?", b"")
        assert read_log(folder) == read[:64].replace(b"?", b"") + left_out(len(read) - len(kept)) + kept[64:]


def test_a_log_goes_on_after_a_restart_of_the_container(tmp_path: Path) -> None:
    """A second run of a container appends to the log of the first, also where that was cut."""
    for run in range(3):
        log = Log(tmp_path, 256)
        log.write(b"".join(b"run %d line %02d\n" % (run, number) for number in range(12)))
    text = read_log(tmp_path)
    assert text.startswith(b"run 0 line 00\n")
    assert text.endswith(b"run 2 line 11\n")
    assert b"bytes left out" in text
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 256


def training(steps: list[Callable[[Engine], None]]):
    """Return a world whose waiting does the next of some steps each time."""
    world, engine = quick_world()
    engine.trains_at_once = False
    release = push(world, "one", quality=Quality(), engine=engine)
    left = iter(steps)
    world = replace(world, sleep=lambda _: next(left)(engine))
    return world, engine, release


def test_a_training_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the start, tells what each pod writes once, what was written last too, and returns the outcome."""
    logs: dict[str, bytes] = {}
    monkeypatch.setattr(Engine, "logs", lambda *_: dict(logs))
    said: list[tuple[str, bytes]] = []

    def starts(engine: Engine) -> None:
        settle(world, engine, 1, passes=2)
        logs["chief-0"] = b"epoch 1\n"

    def writes(_: Engine) -> None:
        logs["chief-0"] += b"epoch 2\n"
        logs["worker-0"] = b"epoch 1\n"

    def ends(engine: Engine) -> None:
        logs["chief-0"] += b"done\n"
        engine.finish(f"{MODEL}-{release.name}")
        settle(world, engine, 1, passes=1)

    world, _, release = training([starts, writes, lambda _: None, ends])
    found = follow(world, MODEL, release.name, lambda pod, data: said.append((pod, data)))
    assert found.trained is not None
    assert said == [
        ("chief-0", b"epoch 1\n"),
        ("chief-0", b"epoch 2\n"),
        ("worker-0", b"epoch 1\n"),
        ("chief-0", b"done\n"),
    ]


def test_nobody_follows_an_engine_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody runs the training, following ends and says so instead of waiting for ever."""
    world, engine, release = training([])
    settle(world, engine, 1, passes=2)

    def gone(*_: object) -> None:
        raise Unavailable("embedded cluster", "its engine does not run")

    monkeypatch.setattr(Engine, "job", gone)
    with pytest.raises(Unavailable):
        follow(world, MODEL, release.name, lambda *_: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, or what a service sends, ends following with the published exit code, and nothing but a word is said."""
    from tests.support.world import world_of

    (tmp_path / ".mlgitops").mkdir()
    world, engine = world_of(tmp_path / ".mlgitops")
    release = push(world, "one", engine=engine)
    words = [sys.executable, "-m", "mlgitops", "logs", release.name, "--follow"]
    heeding = ["env", "--default-signal=INT", *words]  # whatever started the tests may ignore it
    process = subprocess.Popen(heeding, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "its training has not started" in process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors.strip()) == (130, "", "interrupted")
