"""Processes of an earlier run in the same folder, and no others."""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

_END_SECONDS: Final = 40.0
"""How long an engine may drain what it has."""
_KILL_SECONDS: Final = 10.0
_REMOVALS: Final = 5
_CONTROLLING_TERMINAL: Final = 4
_STATE: Final = 0


def end_processes(folder: Path, engine: str) -> None:
    """End what an earlier run of the demo left in `folder`: asked first, killed when it does not go.

    Args:
        folder: The demo's folder.
        engine: Path of the engine's home in it.
    """
    for number, seconds in ((signal.SIGTERM, _END_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        deadline = time.monotonic() + seconds
        asked: set[int] = set()
        while (left := processes(folder, engine)) and time.monotonic() < deadline:
            for pid in set(left) - asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            asked |= set(left)
            time.sleep(0.2)


def remove(folder: Path) -> None:
    """Remove a folder into which something that ends just now may still write.

    Raises:
        OSError: It cannot be removed.
    """
    for attempt in range(_REMOVALS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError:
            if attempt == _REMOVALS - 1:
                raise
            time.sleep(0.5)
        else:
            return


def processes(folder: Path, engine: str) -> list[int]:
    """Return the processes of the demo in `folder` that run now.

    They are this user's, run this interpreter without a terminal, and work in the engine's home, or are told paths
    below it, or are the tool itself at work in `folder`. A shell, an editor or a pager that somebody opened there is
    none of them.
    """
    home = folder.resolve() / engine
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _is_left(Path("/proc") / str(pid), folder.resolve(), home)]


def _is_left(process: Path, folder: Path, home: Path) -> bool:
    try:
        if process.stat().st_uid != os.getuid():
            return False
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        program, where = (process / "exe").readlink(), (process / "cwd").readlink()
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    if fields[_STATE] in "ZX" or fields[_CONTROLLING_TERMINAL] != "0" or program != Path(sys.executable).resolve():
        return False
    told = any(Path(word).is_absolute() and Path(word).is_relative_to(home) for word in words)
    tool = where.is_relative_to(folder) and any(word == "mlgitops" or word.startswith("mlgitops.") for word in words)
    return where.is_relative_to(home) or told or tool
