"""Runs one command, and sees to it that nothing it started outlives the command, its time or the caller.

`python guard.py WORD...` with the standard library only, so that it starts within milliseconds. Standard input is the
lifeline: a pipe whose other end the caller holds. When the caller closes it, or is killed in whatever way, every
descendant is killed, also those that left the process group. The exit code is the command's, as a shell tells it.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_END_SECONDS: Final = 5.0
"""Longest wait for killed descendants to be gone; one that hangs in the kernel is left to it."""
CANNOT_RUN, NO_COMMAND = 126, 127


def _bound() -> None:
    """In the command's process, before it becomes the program: it is killed when this guard is."""
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _descendants(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                found = [int(word) for word in path.read_text().split()]
                waiting.extend(found)
                yield from found


def _end_all() -> None:
    """Kill every descendant; this process inherits those whose parents are gone, and meets them again."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        for pid in list(_descendants(os.getpid())):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def main(words: Sequence[str]) -> int:
    """Run a command until it, or the lifeline, ends."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            preexec_fn=_bound,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        sys.stdout.write(f"cannot run {words[0]}: {error.strerror or error}\n")
        return NO_COMMAND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    handle = os.pidfd_open(child.pid)
    select.select([sys.stdin.fileno(), handle], [], [])
    code = child.poll()
    _end_all()
    if code is None:
        code = -signal.SIGKILL
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
