"""One InferenceService as processes: the one that answers, and the one that is to replace it."""

import contextlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, Final

from mlgitops.adapters.loopback import call
from mlgitops.adapters.serving import layout
from mlgitops.adapters.serving.children import Child
from mlgitops.adapters.serving.objects import Service
from mlgitops.core.errors import MlgitopsError, Unavailable

START_SECONDS: Final = 180.0
"""Longest time for a model to load."""
HEALTH_SECONDS: Final = 5.0
"""Time between two questions whether a server is alive."""
ANSWER_SECONDS: Final = 5.0
"""Time for one answer."""
HEALTH_FAILURES: Final = 3
"""Unanswered questions in a row after which a server is started again."""
BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Waits before a server that ended is started again; the last one for all further times."""
SETTLED_SECONDS: Final = 60.0
"""A server that lived this long starts the waits from the first again."""


class Starter:
    """Starts model servers."""

    def __init__(
        self, home: Path, resolve: Callable[[str], Path], *, loader: str | None, variables: Mapping[str, str]
    ) -> None:
        self._home, self._resolve, self._loader, self._variables = home, resolve, loader, variables
        self._started = 0
        self.checks = ThreadPoolExecutor(max_workers=4, thread_name_prefix="health")

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return a process's environment: the few variables it needs, and nothing of the engine's (no credentials)."""
        scratch = self._home / "scratch"
        scratch.mkdir(exist_ok=True)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **self._variables,
            **own,
        }

    def start(self, environment: str, service: Service) -> Child:
        """Start the server of a service; `MlgitopsError` or `OSError` when its bytes or the process cannot be had."""
        artifact = self._resolve(service.storage_uri)
        self._started += 1
        arguments = [
            *("mlgitops.adapters.serving.server", "--model", service.model),
            *("--release", service.release or "-", "--artifact-dir", str(artifact.absolute())),
            *("--artifact-digest", service.artifact_digest.value, "--port", "0"),
            *(("--loader", self._loader) if self._loader else ()),
        ]
        name = f"{environment}-{service.name}-{service.artifact_digest.short}-{self._started}"
        return Child(arguments, folder=self._home / layout.LOGS, name=name, variables=self.variables(service.variables))


class Server:
    """A process that serves, or is about to."""

    def __init__(self, service: Service, child: Child) -> None:
        self.service, self.child = service, child
        self.started_at = monotonic()
        self.port: int | None = None
        self.artifact_digest = ""
        self._check: Future[bool] | None = None
        self._checked_at = 0.0
        self._failures = 0

    def becomes_ready(self, checks: ThreadPoolExecutor) -> bool:
        """Say whether it said so itself and also answers for its model."""
        said = self.child.ready()
        if said is None or not said.get("ready"):
            return False
        self.port, self.artifact_digest = int(said["port"]), str(said["artifact_digest"])
        return self._ask(checks, 0.0) is True

    def hangs(self, checks: ThreadPoolExecutor) -> bool:
        """Say whether it has left several questions in a row unanswered."""
        answer = self._ask(checks, HEALTH_SECONDS)
        if answer is not None:
            self._failures = 0 if answer else self._failures + 1
        return self._failures >= HEALTH_FAILURES

    def _ask(self, checks: ThreadPoolExecutor, pause_seconds: float) -> bool | None:
        """Return the answer to the last question, asked in a thread of its own; None while there is none."""
        if self._check is None:
            if monotonic() - self._checked_at >= pause_seconds:
                self._check, self._checked_at = checks.submit(self._probe), monotonic()
            return None
        if not self._check.done():
            return None
        answer, self._check = self._check.result(), None
        return answer

    def _probe(self) -> bool:
        assert self.port is not None
        with contextlib.suppress(Unavailable):
            path = f"/v2/models/{self.service.model}/ready"
            return call(self.port, "GET", path, service=self.service.name, timeout_seconds=ANSWER_SECONDS).status == 200
        return False


class Replacement:
    """Keeps one InferenceService served, replacing its process when another one is wanted."""

    def __init__(self, environment: str, name: str, starter: Starter) -> None:
        self._environment, self._name, self._starter = environment, name, starter
        self._wanted: Service | None = None
        self.current: Server | None = None
        """What answers; None for nothing."""
        self._next: Server | None = None
        self._retired: list[tuple[Child, int | None]] = []
        self._message = ""
        self._failures = 0
        self._retry_at = 0.0
        self.removed = False
        """git does not hold it any more."""

    @property
    def gone(self) -> bool:
        """Removed, with nothing left to end."""
        return self.removed and self.current is None and self._next is None and not self._retired

    @property
    def wanted_release(self) -> str:
        """Release that is asked for; empty for none."""
        return self._wanted.release if self._wanted else ""

    def want(self, service: Service) -> None:
        """Serve this from now on."""
        self.removed = False
        if self._wanted is None or service.fingerprint != self._wanted.fingerprint:
            self._wanted, self._message, self._failures, self._retry_at = service, "", 0, 0.0

    def remove(self) -> None:
        """Serve nothing from now on."""
        self.removed, self._wanted = True, None

    def children(self) -> list[Child]:
        """Return all processes that are not given away for draining."""
        servers = [one for one in (self.current, self._next) if one is not None]
        return [one.child for one in servers] + [child for child, _ in self._retired]

    def take_retired(self) -> list[tuple[Child, int | None]]:
        """Give away the processes that are to drain and end; call it when the router sends them nothing any more."""
        retired, self._retired = self._retired, []
        return retired

    def tick(self) -> None:
        """Move one step."""
        self._watch_current()
        self._watch_next()
        if self._wanted is None:
            self._drop_next()
            self._retire_current()
        elif self._next is not None and self._next.service.fingerprint != self._wanted.fingerprint:
            self._drop_next()
        if self._wanted is not None and self._next is None and not self._satisfied() and monotonic() >= self._retry_at:
            self._start(self._wanted)

    def observe(self, refused: str, *, in_force: bool) -> dict[str, Any]:
        """Return what other processes are told.

        Args:
            refused: Why the newest object is refused; empty when it is not.
            in_force: The router goes by what serves now.
        """
        current = self.current
        ready = self._satisfied() and in_force and not refused
        loading = "" if self._satisfied() else "the model is being loaded"
        message = "" if ready else refused or self._message or loading or "the router does not send it requests yet"
        return {
            "ready": ready,
            "serving": current is not None,
            "storage_uri": current.service.storage_uri if current else None,
            "artifact_digest": current.artifact_digest if current else None,
            "release": (current.service.release or None) if current else None,
            "port": current.port if current else None,
            "message": message,
        }

    def _satisfied(self) -> bool:
        return (
            self._wanted is not None
            and self.current is not None
            and self.current.service.fingerprint == self._wanted.fingerprint
        )

    def _start(self, service: Service) -> None:
        try:
            self._next = Server(service, self._starter.start(self._environment, service))
        except (MlgitopsError, OSError) as error:
            self._fail(str(error))

    def _watch_current(self) -> None:
        current = self.current
        if current is None:
            return
        if monotonic() - current.started_at > SETTLED_SECONDS:
            self._failures = 0
        if not current.child.running:
            reason = current.child.why_ended()
        elif current.hangs(self._starter.checks):
            reason = "the server hangs: it does not answer whether it is alive"
            current.child.kill()
        else:
            return
        current.child.reap()
        self.current = None
        self._fail(reason)

    def _watch_next(self) -> None:
        coming = self._next
        if coming is None:
            return
        if not coming.child.running:
            reason = coming.child.why_ended()
            coming.child.reap()
            self._next = None
            self._fail(reason)
        elif coming.becomes_ready(self._starter.checks):
            self._retire_current()
            self.current, self._next, self._message = coming, None, ""
        elif monotonic() - coming.started_at > START_SECONDS:
            self._drop_next()
            self._fail(f"the model was not ready within {START_SECONDS:g} s")

    def _fail(self, reason: str) -> None:
        """Remember why, and wait longer each time before the next attempt."""
        wait = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        self._retry_at = monotonic() + wait
        self._message = reason

    def _drop_next(self) -> None:
        if self._next is not None:
            # It never answered anybody, so there is nothing to drain.
            self._next.child.kill()
            self._next = None

    def _retire_current(self) -> None:
        if self.current is not None:
            self._retired.append((self.current.child, self.current.port))
            self.current = None
