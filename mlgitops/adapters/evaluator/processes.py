"""Processes by identity, and all that descend from one."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_START_TIME: Final = 19
_PARENT: Final = 1
_C_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
POLL_SECONDS: Final = 0.02


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; called between fork and exec."""
    _C_LIBRARY.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def bound_to_parent(command: Sequence[str]) -> list[str]:
    """Return a command that does the same and is killed when its parent ends.

    It goes through an interpreter of its own: code between fork and exec is not safe where TensorFlow has threads.
    """
    return [sys.executable, "-P", "-m", "mlgitops.adapters.evaluator.processes", *command]


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends: none gets out of sight by forking twice."""
    _C_LIBRARY.prctl(_SET_CHILD_SUBREAPER, 1)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None when it does not run any more.

    A pid is used again after a while; pid and start time together are not.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[_START_TIME])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def descendants(pid: int) -> set[int]:
    """Return the processes below a process, ended but unread ones included."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            parents.setdefault(int(fields[_PARENT]), []).append(int(entry))
    found: set[int] = set()
    waiting = list(parents.get(pid, ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(parents.get(one, ()))
    return found


def memory_bytes(pids: set[int]) -> int:
    """Return what these processes hold in memory for themselves: anonymous and shared pages, not mapped files."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return total


def kill_descendants(timeout_seconds: float = 5.0, *, spare: AbstractSet[int] = frozenset()) -> None:
    """Kill all processes below this one, those they start meanwhile included, and read their ends.

    Args:
        timeout_seconds: How long to try.
        spare: Processes that are left alone.
    """
    deadline = time.monotonic() + timeout_seconds
    while (left := descendants(os.getpid()) - spare) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):  # a child's child, which is this one's when its parent has ended
                os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    end_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the program is what this is for
