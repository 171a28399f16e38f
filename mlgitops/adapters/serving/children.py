"""Server processes as children of the engine: started, told to end, and found again after the engine was killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving.ready import read_ready

LOG_BYTES: Final = 5 * 1024 * 1024


class Child:
    """One process in a session of its own, which ends when this process ends."""

    def __init__(self, arguments: Sequence[str], *, folder: Path, name: str, variables: Mapping[str, str]) -> None:
        """Start `python -m …`; its output is appended to `<folder>/<name>.log`.

        Raises:
            OSError: It could not be started.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.ready_file = folder / f"{name}.ready"
        self.ready_file.unlink(missing_ok=True)
        self._log = folder / f"{name}.log"
        with _open_log(self._log) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--ready-file", str(self.ready_file), "--exit-with-parent"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=dict(variables),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.start_ticks = start_ticks(self.pid)
        self._killed_after: float | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ready(self) -> Mapping[str, Any] | None:
        """Return what its ready file says; None while it says nothing."""
        return read_ready(self.ready_file)

    def why_ended(self) -> str:
        """Return why it ended: its own reason, else how it ended and its last words."""
        said = self.ready()
        if said is not None and not said.get("ready"):
            return str(said.get("reason", ""))
        code = self._process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
        words = _last_line(self._log)
        return f"the server {how}" + (f": {words}" if words else "")

    def end(self, grace_seconds: float) -> None:
        """Tell it to end; `reap` kills it when it has not after the grace."""
        if self._killed_after is None:
            self._killed_after = time.monotonic() + grace_seconds
            self._signal(signal.SIGTERM)

    def reap(self) -> bool:
        """Say whether it is gone, killing it when its grace is over."""
        if not self.running:
            # Whatever it started in its session goes too.
            self._signal(signal.SIGKILL)
            self._close()
            return True
        if self._killed_after is not None and time.monotonic() > self._killed_after:
            self._signal(signal.SIGKILL)
        return False

    def kill(self) -> None:
        """End it at once, with everything in its session."""
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self.ready_file.unlink(missing_ok=True)


def start_ticks(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks since boot; None when there is no such process.

    With the process id this names a process for good: ids are used again, and never at the same tick.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]


def record(file: Path, children: Iterable[Child]) -> None:
    """Write down which processes are ours, for the engine that comes after a killed one."""
    entries = [[child.pid, child.start_ticks] for child in children if child.start_ticks is not None]
    write_atomically(file, json.dumps({"boot": _boot(), "processes": entries}).encode())


def kill_recorded(file: Path) -> int:
    """Kill the processes that an earlier engine wrote down and left running, and no others; returns how many."""
    try:
        value = json.loads(file.read_bytes())
        entries = value["processes"] if value["boot"] == _boot() else []
        ours = [int(pid) for pid, ticks in entries if ticks is not None and start_ticks(int(pid)) == ticks]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    for pid in ours:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    return len(ours)


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _open_log(path: Path) -> Any:
    """Open a log to append to, putting a large one aside first."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 2000))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""
    return ""
