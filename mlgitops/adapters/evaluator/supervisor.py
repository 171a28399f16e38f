"""Watches over one evaluation: starts it, bounds it, and writes down how it ended.

    python -m mlgitops.adapters.evaluator.supervisor FOLDER

Detaches itself, prints its process id and lives on whatever becomes of its caller. In FOLDER it finds `request.json`
and leaves `outcome.json`, whole or not at all. An evaluation that crashes is run once more; one that exceeds a limit is
not. The limits hold for everything that descends from it: wall-clock time and memory are watched, processor time and
file sizes are the kernel's resource limits. There is no network, where the machine allows that. The environment is made
anew: no variable of the caller gets in, the home directory is a temporary one. Files the same user can read are not out
of reach; a container does that.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.evaluator.processes import (
    adopt_orphans,
    descendants,
    end_with_parent,
    kill_descendants,
    memory_bytes,
)
from mlgitops.adapters.isolation import leave_network
from mlgitops.adapters.redacting import redacted_values, redactor

REQUEST_FILE: Final = "request.json"
RESULT_FILE: Final = "result.json"
OUTCOME_FILE: Final = "outcome.json"
LOG_FILE: Final = "log"
ATTEMPTS: Final = 2
POLL_SECONDS: Final = 0.25
FILE_LIMIT_BYTES: Final = 1 << 30
SPARE_DATA_BYTES: Final = 4 << 30
"""Address space that TensorFlow's threads reserve without using it; the watched memory is what counts."""
MEGABYTE: Final = 1 << 20
LOG_BYTES: Final = 1 << 20
LOG_TAIL_BYTES: Final = 2000
_LIMIT_SIGNALS: Final = (signal.SIGXCPU, signal.SIGXFSZ)


def environment(home: Path) -> dict[str, str]:
    """Return the whole environment of an evaluation."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.defpath)),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONUNBUFFERED": "1",
    }


def supervise(folder: Path) -> None:
    """Run the evaluation in `folder` to its end and write its outcome."""
    asked = (folder / REQUEST_FILE).read_bytes()  # read once: what a first attempt writes is not asked in a second
    adopt_orphans()
    outcome: Mapping[str, Any] = {}
    for attempt in range(1, ATTEMPTS + 1):
        outcome, again = _attempt(folder, asked, attempt)
        if not again:
            break
    write_atomically(folder / OUTCOME_FILE, json.dumps(redacted_values(outcome), allow_nan=False).encode())


def _attempt(folder: Path, asked: bytes, attempt: int) -> tuple[Mapping[str, Any], bool]:
    """Run it once; return its outcome, and whether another attempt may give a better one."""
    request: Mapping[str, Any] = json.loads(asked)
    home = Path(tempfile.mkdtemp(prefix="work-", dir=folder))
    copied = home / REQUEST_FILE
    copied.write_bytes(asked)
    scratch = home / "scratch"
    scratch.mkdir()
    timeout, megabytes = float(request["timeoutSeconds"]), int(request["memoryMegabytes"])
    with (folder / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [*request["worker"], str(copied)],
            cwd=scratch,
            env=environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _limit(timeout, megabytes),  # noqa: PLW1509 - this process has one thread
        )
        exceeded = _watch(process, timeout, megabytes * MEGABYTE)
    kill_descendants()
    process.poll()
    _redact(folder / LOG_FILE)
    result = _read(home / RESULT_FILE)
    shutil.rmtree(home, ignore_errors=True)
    if exceeded:
        return _no_answer(exceeded), False
    if result is not None and process.returncode == 0:
        return result, False
    limited = -(process.returncode or 0) in _LIMIT_SIGNALS
    told = f"the evaluation {_ending(process.returncode)}, on attempt {attempt} of {ATTEMPTS}"
    return _no_answer(f"{told}{_tail(folder / LOG_FILE)}"), not limited


def _limit(timeout_seconds: float, megabytes: int) -> None:
    """Set the kernel's limits and leave the network, where the machine lets us; runs between fork and exec."""
    leave_network()
    end_with_parent()
    processor_seconds = int(timeout_seconds * (os.cpu_count() or 1)) + 5
    data_bytes = 2 * megabytes * MEGABYTE + SPARE_DATA_BYTES
    for kind, value in (
        (resource.RLIMIT_CPU, processor_seconds),
        (resource.RLIMIT_FSIZE, FILE_LIMIT_BYTES),
        (resource.RLIMIT_DATA, data_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def _watch(process: "subprocess.Popen[bytes]", timeout_seconds: float, limit_bytes: int) -> str:
    """Wait for the end; return which limit was exceeded, empty when none was."""
    deadline = time.monotonic() + timeout_seconds
    while process.poll() is None:
        if time.monotonic() > deadline:
            return f"the evaluation took longer than {timeout_seconds:g} seconds (evaluation.timeoutSeconds)"
        if memory_bytes(descendants(os.getpid())) > limit_bytes:
            return (
                f"the evaluation needed more than {limit_bytes // MEGABYTE} megabytes of memory "
                "(evaluation.memoryMegabytes)"
            )
        time.sleep(POLL_SECONDS)
    return ""


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        result = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def _no_answer(error: str) -> Mapping[str, Any]:
    return {"report": None, "error": error, "refused": []}


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "did not end"
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode} and without a result"


def _redact(log: Path) -> None:
    """Keep the end of the log, without what looks like a secret."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_BYTES))
        kept = stream.read()
    write_atomically(log, redactor().data(kept))


def _tail(log: Path) -> str:
    """Return the end of the log, for people."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        lines = stream.read().decode(errors="replace").strip().splitlines()
    return ": " + " | ".join(lines[-3:]) if lines else ""


def main(arguments: Sequence[str]) -> int:
    """Detach, tell the process id, supervise."""
    folder = Path(arguments[0])
    child = os.fork()
    if child:
        sys.stdout.write(f"{child}\n")
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    supervise(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
