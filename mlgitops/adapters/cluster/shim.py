"""Runs one container of a pod as a process of this machine, and outlives the engine that asked for it.

`python shim.py <run folder>` with the standard library only, and the redactor, which needs no more: so it starts
within milliseconds. The folder holds `run.json`, written by the engine. The shim holds the lock of the file `lock` for
as long as it lives, writes `process.json` when the container's process has started, keeps its output while it runs,
without what looks like a secret, and writes `status.json` when it has ended. SIGTERM asks for the pod's end: the
process group gets SIGTERM, and after the grace period every descendant gets SIGKILL, also those that left the group.

The memory limit is kept as the kernel's out-of-memory killer keeps a container's: resident memory of all descendants
is summed each second, and beyond the limit they are killed (137, `OOMKilled`). A limit on address space would end
TensorFlow at once, which reserves far more than it uses. Pages shared by descendants count once for each.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a script, without site-packages: this package is found only where it lies
    sys.path.append(str(Path(__file__).parents[3]))
from mlgitops.core.redaction import Redactor, Stream

TERMINATION_BYTES: Final = 4096
"""What Kubernetes keeps of a termination message."""
START_ERROR: Final = 128
"""Exit code that container runtimes report when the command cannot be started."""
_SET_CHILD_SUBREAPER: Final = 36
_SET_PDEATHSIG: Final = 1
_CHUNK: Final = 65536
_END_SECONDS: Final = 5.0
"""Longest wait for killed descendants to be gone; one that hangs in the kernel is left to it."""
_DRAIN_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 1.0
_PAGE: Final = resource.getpagesize()
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a reader sees all of it or none of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, sort_keys=True, indent=1), encoding="utf-8")
    temporary.replace(path)


class Log:
    """What a pod wrote, bounded: its beginning in `head`, its end in the two newest files `tail.<position>`.

    A tail's name says how many bytes of output come before it, so a reader that meets a change sees a gap at worst.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.head_bytes, self.tail_bytes = folder, limit_bytes // 4, limit_bytes * 3 // 8
        self.head = self._open("head")
        self.tail: int | None = None
        self._stream = Stream(Redactor())

    def _open(self, name: str) -> int:
        return os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Append, without what looks like a secret; a full disk loses output, it never stops the container."""
        self._append(self._stream.take(data))

    def end(self) -> None:
        """Append what is left: a last line without its end."""
        self._append(self._stream.end())

    def _append(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            room = self.head_bytes - os.fstat(self.head).st_size
            if room > 0:
                os.write(self.head, data[:room])
                data = data[room:]
            for start in range(0, len(data), self.tail_bytes):
                self._write_tail(data[start : start + self.tail_bytes])

    def _write_tail(self, data: bytes) -> None:
        tails = log_tails(self.folder)
        if self.tail is None:  # the first, or after a restart of the container the one that was begun
            self.tail = self._open(f"tail.{tails[-1] if tails else self.head_bytes}")
        size = os.fstat(self.tail).st_size
        if size + len(data) > self.tail_bytes:
            position = (tails[-1] if tails else self.head_bytes) + size
            os.close(self.tail)
            self.tail = self._open(f"tail.{position}")
            for older in tails[:-1]:
                (self.folder / f"tail.{older}").unlink(missing_ok=True)
        os.write(self.tail, data)


def log_tails(folder: Path) -> list[int]:
    """Return the positions of a log's tails, in bytes of output, rising."""
    return sorted(int(one.name.partition(".")[2]) for one in folder.glob("tail.*") if one.suffix[1:].isdigit())


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (field 22 of its stat); None when there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(line.rpartition(")")[2].split()[19])


def descendants(pid: int) -> Iterator[int]:
    """Yield the descendants of a process, children first."""
    waiting = [pid]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(word) for word in path.read_text().split()]
                waiting.extend(children)
                yield from children


def resident_bytes(pids: Iterator[int]) -> int:
    """Return the resident memory of processes together."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def termination_message(path: str) -> tuple[str, bool]:
    """Return what the container left as its termination message, and whether it was cut.

    Only a regular file is read: a link, a pipe or a device in its place is no message.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "", False
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return "", False
        data = file.read(TERMINATION_BYTES + 1)
    return data[:TERMINATION_BYTES].decode("utf-8", "replace"), len(data) > TERMINATION_BYTES


def _prepare_child() -> None:
    """In the container's process, before it becomes the program: it ends with the shim, and dumps no core."""
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Shim:
    """One run of one container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        self.log = Log(Path(self.run["log"]), self.run["log_bytes"])
        self.terminated_at: float | None = None
        self.out_of_memory = False
        self.child: subprocess.Popen[bytes] | None = None
        self.started_at = time.time()

    def terminate(self, *_: object) -> None:
        """Take the wish for the pod's end."""
        if self.terminated_at is None:
            self.terminated_at = time.monotonic()
            self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: int) -> None:
        if self.child is not None and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, number)

    def main(self) -> None:
        """Run the container to its end and write its status."""
        try:
            self._start()
        except (OSError, ValueError, shutil.Error) as error:
            self._write_status(START_ERROR, "StartError", f"cannot start {self.run['command'][:1]}: {error}")
            return
        if self.child is None:
            self._write_status(128 + signal.SIGTERM, "Error", "")
            return
        self._watch()
        code = self.child.returncode
        code = 128 - code if code < 0 else code
        reason = "OOMKilled" if self.out_of_memory else "Completed" if code == 0 else "Error"
        self._write_status(code, reason)

    def _start(self) -> None:
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        work = self.folder / "work"
        shutil.copytree(self.run["source"], work, symlinks=True, dirs_exist_ok=True)
        for path in (work, *work.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IWUSR | stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
        if self.run["number"]:
            self.log.write(f"[mlgitops: container restarted, restart {self.run['number']}]\n".encode())
        if self.terminated_at is not None:
            return
        self.child = subprocess.Popen(
            self.run["command"],
            cwd=work,
            env=self.run["environment"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_prepare_child,  # noqa: PLW1509 - this process has one thread
        )
        self.started_at = time.time()
        write_json(
            self.folder / "process.json",
            {"shim": os.getpid(), "pid": self.child.pid, "start": start_time(self.child.pid), "at": self.started_at},
        )
        if self.terminated_at is not None:
            self._signal_group(signal.SIGTERM)

    def _watch(self) -> None:
        """Keep output, limits and signals until the container's first process has ended."""
        assert self.child is not None
        assert self.child.stdout is not None
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        output = self.child.stdout.fileno()
        os.set_blocking(output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            checked = 0.0
            while not self._ended():
                self._read(selector, output, self._timeout())
                if time.monotonic() - checked >= _TICK_SECONDS:
                    checked = time.monotonic()
                    self._keep_limits()
            self._end_all()
            deadline = time.monotonic() + _DRAIN_SECONDS
            while output in selector.get_map() and time.monotonic() < deadline:
                self._read(selector, output, 0.1)
        self.log.end()

    def _timeout(self) -> float:
        if self.terminated_at is None:
            return _TICK_SECONDS
        left: float = self.terminated_at + self.run["grace_seconds"] - time.monotonic()
        if left <= 0:
            self._kill_all()
            return 0.05
        return min(left, _TICK_SECONDS)

    def _read(self, selector: selectors.BaseSelector, output: int, timeout: float) -> None:
        for key, _ in selector.select(timeout):
            try:
                data = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            if key.fd == output:
                if data:
                    self.log.write(data)
                else:
                    selector.unregister(output)

    def _ended(self) -> bool:
        """Reap orphans that came to this process, and say whether the container's first process has ended."""
        assert self.child is not None
        while self.child.returncode is None:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return False
            if found.si_pid == self.child.pid:
                self.child.poll()
            else:
                os.waitpid(found.si_pid, os.WNOHANG)
        return True

    def _keep_limits(self) -> None:
        limit = self.run["memory_bytes"]
        if limit and resident_bytes(descendants(os.getpid())) > limit:
            self.out_of_memory = True
            self.log.write(f"[mlgitops: killed, memory limit of {limit} bytes]\n".encode())
            self._kill_all()

    def _kill_all(self) -> None:
        """Kill every descendant: as their subreaper this process inherits those whose parents are gone."""
        self._signal_group(signal.SIGKILL)
        for pid in list(descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        """See to it that nothing the container started runs any more; one that forks meanwhile is met again."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self._kill_all()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.005)

    def _write_status(self, code: int, reason: str, message: str | None = None) -> None:
        cut = False
        if message is None:
            message, cut = termination_message(self.run["environment"]["MLGITOPS_TERMINATION_LOG"])
        for name in ("work", "home", "tmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        write_json(
            self.folder / "status.json",
            {
                "exit_code": code,
                "reason": reason,
                "message": message,
                "message_cut": cut,
                "terminated": self.terminated_at is not None,
                "started_at": self.started_at,
                "finished_at": time.time(),
            },
        )


def main(folder: Path) -> int:
    """Run one container, unless another process already answers for this run."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    if (folder / "status.json").exists():
        return 1  # the engine gave this run up before its shim came to life
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    shim = Shim(folder)
    signal.signal(signal.SIGTERM, shim.terminate)
    write_json(folder / "shim.json", {"pid": os.getpid(), "start": start_time(os.getpid())})
    shim.main()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
