"""Running the tests of a pushed commit: bounded in time, in output, and in what they leave."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.source.checkout import OUTPUT_BYTES, TIMED_OUT, Checkout
from mlgitops.ports.source import SourceCommit


def daemon(folder: Path) -> str:
    """Return a program that leaves a process in a session of its own, whose id it writes to `folder`."""
    return f"""\
import os, pathlib, sys, time
pid = pathlib.Path({str(folder / "pid")!r})
if os.fork() == 0:
    os.setsid()
    pid.with_name('part').write_text(str(os.getpid()))
    pid.with_name('part').rename(pid)
    time.sleep(600)
while not pid.exists():
    time.sleep(0.01)
print('started', flush=True)
"""


def left_by(folder: Path) -> int:
    return int((folder / "pid").read_text())


@pytest.fixture
def source(tmp_path: Path) -> Checkout:
    (tmp_path / "source").mkdir()
    return Checkout(
        tmp_path / "source", SourceCommit(revision="a" * 40, author="Ada <ada@example.org>", subject="first")
    )


def python(program: str) -> list[str]:
    return ["python", "-c", program]


def ended(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_code_and_output_are_the_commands(source: Checkout) -> None:
    """What the command wrote to either stream, and its exit code, come back; a signal is told as a shell does."""
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    assert source.run(python(program), 30) == (3, "out\nerr\n")
    assert source.run(python("import os; os.kill(os.getpid(), 9)"), 30) == (128 + 9, "")


def test_a_command_that_is_not_there_is_said(source: Checkout) -> None:
    """A mistyped command fails as in a shell, with its name."""
    code, said = source.run(["no-such-command"], 30)
    assert code == 127
    assert "no-such-command" in said


def test_only_the_end_of_the_output_is_kept(source: Checkout, tmp_path: Path) -> None:
    """Output without end fills neither memory nor disk: its last bytes are kept."""
    program = f"import sys; [sys.stdout.write('x' * 1_000_000) for _ in range(20)]; print('{'y' * 10}')"
    code, said = source.run(python(program), 60)
    assert code == 0
    assert len(said) == OUTPUT_BYTES
    assert said.endswith("xyyyyyyyyyy\n")
    assert list(tmp_path.rglob("*")) == [tmp_path / "source"]


def test_nothing_outlives_the_command(source: Checkout, tmp_path: Path) -> None:
    """A daemon that left the process group ends with the command, and does not hold up its end."""
    assert source.run(python(daemon(tmp_path)), 60) == (0, "started\n")
    assert ended(left_by(tmp_path))


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(source: Checkout, tmp_path: Path) -> None:
    """Beyond its time a command ends with 124, and what it started ends, too."""
    assert source.run(python(daemon(tmp_path) + "time.sleep(600)"), 3) == (TIMED_OUT, "started\n")
    assert ended(left_by(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("source")
def test_nothing_outlives_the_caller(tmp_path: Path, number) -> None:
    """However the caller ends, also by a signal that nobody handles, what the command started ends with it."""
    program = (
        "from pathlib import Path; from mlgitops.adapters.source.checkout import Checkout; "
        "from mlgitops.ports.source import SourceCommit; "
        f"Checkout(Path({str(tmp_path / 'source')!r}), SourceCommit(revision='a', author='a', subject='a'))"
        f".run(['python', '-c', {daemon(tmp_path) + 'time.sleep(600)'!r}], 600)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        pid = left_by(tmp_path)
        assert not ended(pid, 0.2)
        os.kill(caller.pid, number)
        assert ended(pid)
    finally:
        caller.kill()
        caller.wait()


def test_the_callers_environment_stays_outside(source: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither credentials nor the home of whoever pushed reach the command."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    _, said = source.run(python("import os, sys; print(sorted(os.environ), sys.stdin.read())"), 30)
    assert "SECRET_TOKEN" not in said
    assert "PYTHONPATH" not in said
