"""Takes what is pushed to the engine's model repository, push by push, as the `train` workflow does."""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.redacting import redacted
from mlgitops.adapters.repository.bare import head
from mlgitops.local.setup import MODEL_REPOSITORY, branch
from mlgitops.ports.observer import Observer

PUSHED: Final = "pushed.json"
"""The last push that was taken, and the exit code of its `train`."""
LOG: Final = "pushed.log"
"""The end of what that `train` said."""
LOG_LINES: Final = 400
LINE_CHARACTERS: Final = 2000
AGAIN: Final = (4, 5, 130)
"""Exit codes after which the same push is tried again: somebody was faster, something was unavailable, interrupted."""
TROUBLE_SECONDS: Final = 5.0
END_SECONDS: Final = 20.0
"""How long an interrupted `train` may clean up."""
_KEPT: Final = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL")
)
_KEPT_PREFIXES: Final = ("LC_", "XDG_", "GIT_CONFIG", "GIT_AUTHOR_", "GIT_COMMITTER_", "DOCKER_", "MLGITOPS_REGISTRY")
"""The last two open registries: `train` pushes to them, and hands nothing of it to the tests that it runs."""


@dataclass(frozen=True, kw_only=True)
class Push:
    """One move of the released branch."""

    revision: str
    """Where it moved to."""
    number: int
    """Lines of the branch's log up to this one; 0 where there is no log."""


class Pushes:
    """Makes a release of every push, in order, also of those that arrive while another one is tested."""

    def __init__(self, home: Path, observer: Observer) -> None:
        """Watch the model repository of a home that `setup.prepare` made."""
        self._home, self._observer = home, observer
        self._stop = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._interrupted: subprocess.Popen[str] | None = None

    def look(self) -> None:
        """Take the next push, if there is one; returns when it is taken, or `stop` was asked for.

        Raises:
            MlgitopsError: The repository cannot be read, or what was taken cannot be noted.
        """
        push = self.next()
        if push is not None and not self._stop.is_set():
            self._take(push)

    def stop(self) -> None:
        """Interrupt the push that is being taken, which is taken again next time; may be called by a signal handler."""
        self._stop.set()
        process = self._process
        if process is not None and process is not self._interrupted and process.poll() is None:
            self._interrupted = process  # a second interrupt would end its cleaning up
            process.terminate()  # not SIGINT: a shell has what it starts in the background ignore that

    def kill(self) -> None:
        """End the `train` that an interrupt did not end."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def next(self) -> Push | None:
        """Return the oldest push that is not taken yet; None when all are.

        Where git keeps no log of the branch, or what was taken is no longer in it, that is the branch's tip.
        """
        repository, released = self._home / MODEL_REPOSITORY, branch(self._home)
        tip = head(repository, f"refs/heads/{released}")
        if tip is None:
            return None
        moves = _moves(repository / "logs" / "refs" / "heads" / released)
        taken = self._taken()
        revision, number = taken.get("revision"), taken.get("number")
        if revision is None:
            return Push(revision=moves[0], number=1) if moves else Push(revision=tip, number=0)
        if not isinstance(number, int) or not 0 < number <= len(moves) or moves[number - 1] != revision:
            number = _last(moves, revision)
        if 0 < number < len(moves):
            return Push(revision=moves[number], number=number + 1)
        return Push(revision=tip, number=_last(moves, tip)) if tip != revision else None

    def _take(self, push: Push) -> None:
        """Do what the `train` workflow does; a push that failed is not tried again until the next one."""
        self._observer.note(f"push     {push.revision[:12]} arrived")
        code, said = self._train(push.revision)
        if code in AGAIN and not self._stop.is_set():
            self._stop.wait(TROUBLE_SECONDS)
            return
        if code < 0 or code in AGAIN:  # killed, or interrupted by `stop`: tried again
            return
        write_atomically(self._home / LOG, redacted(said).encode())
        values = {"revision": push.revision, "code": code, "number": push.number}
        write_atomically(self._home / PUSHED, json.dumps(values).encode())

    def _train(self, revision: str) -> tuple[int, str]:
        """Run `mlgitops train`; returns its exit code and the end of what it said."""
        repository = str(self._home / MODEL_REPOSITORY)
        words = ["train", "--home", str(self._home), "--repository", repository, "--revision", revision]
        said: deque[str] = deque(maxlen=LOG_LINES)
        with subprocess.Popen(
            [sys.executable, "-m", "mlgitops", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_needed(os.environ),
        ) as process:
            self._process = process
            if self._stop.is_set():
                self.stop()
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.rstrip()[:LINE_CHARACTERS])
                self._observer.note(f"train    {said[-1]}")
        self._process = None
        return process.returncode, "".join(f"{line}\n" for line in said)

    def _taken(self) -> Mapping[str, Any]:
        with suppress(OSError, ValueError):
            found = json.loads((self._home / PUSHED).read_bytes())
            if isinstance(found, dict):
                return found
        return {}


def _needed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what `train` needs of the engine's environment: of credentials a registry's only, and no other home."""
    return {name: value for name, value in environment.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)} | {
        "PYTHONUNBUFFERED": "1"
    }


def _moves(log: Path) -> list[str]:
    """Return where a branch moved to, oldest first, by git's own log of it; empty where there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split(" ", 2) for line in lines]
    return [word[1] for word in words if len(word) == 3 and len(word[1]) == len(word[0])]


def _last(moves: list[str], revision: str) -> int:
    """Return the number of the last move to a revision, from 1; 0 when there is none."""
    return max((number for number, one in enumerate(moves, 1) if one == revision), default=0)
