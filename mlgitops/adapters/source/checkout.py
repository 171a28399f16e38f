"""A folder that holds one commit of a model repository, and nothing that anybody else writes."""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from mlgitops.adapters.files import file_digest, resolve_below, walk_files
from mlgitops.adapters.source import guard
from mlgitops.core.errors import InvalidInput, Problem, Unavailable
from mlgitops.core.names import Digest
from mlgitops.ports.source import SourceCommit

OUTPUT_BYTES: Final = 64_000
TIMED_OUT: Final = 124
_CHUNK: Final = 65536
_END_SECONDS: Final = 10.0
"""How long the guard may kill what is left."""
_IGNORED: Final = (".git", ".mlgitops")


class Checkout:
    """Implements `ports.source.Source` over a folder."""

    def __init__(self, directory: Path, commit: SourceCommit) -> None:
        """Take a folder that holds the commit's tree."""
        self._directory, self._commit = directory.resolve(), commit

    @property
    def commit(self) -> SourceCommit:
        """Which commit it is."""
        return self._commit

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self._directory

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None when there is none."""
        file = self._directory / path
        if not file.exists():
            return None
        return resolve_below(self._directory, file).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Add a file that is made from the commit; `InvalidInput` when the commit has one of that name."""
        target = self._directory / path
        if target.exists() or target.is_symlink():
            mend = "remove it, or train from it with `script:`"
            raise InvalidInput([Problem(message="is made at every build, and is committed", path=path, mend=mend)])
        resolve_below(self._directory, target.parent)
        target.write_bytes(data)

    def files(self, paths: Sequence[str]) -> dict[str, Digest]:
        """Return the digest of every file at or below `paths`, by its path from the root."""
        missing = [path for path in paths if not (self._directory / path).exists()]
        if missing:
            mend = "commit it, or take it out of mlgitops.yaml"
            message = "is declared and not in the commit"
            raise InvalidInput([Problem(message=message, path=path, mend=mend) for path in missing])
        return {name: file_digest(file) for path in paths for name, file in self._below(path)}

    def _below(self, path: str) -> Iterator[tuple[str, Path]]:
        start = resolve_below(self._directory, self._directory / path)
        if start.is_file():
            yield str(PurePosixPath(path)), start
            return
        for name, file in walk_files(start):
            full = PurePosixPath(path) / name
            if full.parts[0] not in _IGNORED:
                yield str(full), file

    @contextmanager
    def gather(self, paths: Sequence[str]) -> Iterator[Path]:
        """Return a folder that holds these files alone, links followed inside the checkout; it goes afterwards."""
        with tempfile.TemporaryDirectory(prefix="mlgitops-inputs-") as folder:
            for path in paths:
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(resolve_below(self._directory, self._directory / path), target)
            yield Path(folder)

    def run(self, command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        """Run a command in a copy of the checkout with a clean environment; all that it started ends with it, or us.

        What the command writes goes with the copy: a test must not change what is built after it.
        """
        words = [sys.executable if command[0] in ("python", "python3") else command[0], *command[1:]]
        with tempfile.TemporaryDirectory(prefix="mlgitops-test-") as folder:
            home, copy = Path(folder) / "home", Path(folder) / "source"
            home.mkdir()
            shutil.copytree(self._directory, copy, symlinks=True)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, *words],
                    cwd=copy,
                    env=_clean(str(home)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise Unavailable(f"command {words[0]}", error.strerror or str(error)) from error
            try:
                return _follow(process, timeout_seconds)
            finally:
                _end(process)


def _clean(home: str) -> dict[str, str]:
    """Return an environment without credentials or anything else of the caller's."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _follow(process: "subprocess.Popen[bytes]", timeout_seconds: float) -> tuple[int, str]:
    """Read until the guard ends; returns the exit code, and the end of the output: no more of it is kept."""
    assert process.stdout is not None
    output, tail = process.stdout.fileno(), bytearray()
    deadline = time.monotonic() + timeout_seconds
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            data = os.read(output, _CHUNK)
            if not data:
                return process.wait(), tail.decode(errors="replace")
            tail += data
            del tail[:-OUTPUT_BYTES]
    return TIMED_OUT, tail.decode(errors="replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Cut the lifeline: the guard kills what is left, and ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()
