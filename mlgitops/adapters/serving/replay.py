"""Replays in the router: requests to both sides of a route, past its weights, one after the other.

A replay is a task of the router's process, which has the recorded requests in memory and knows both servers' ports; no
other process sees a request. One goes on at a time, at the rate that was asked for, so that users of the champion feel
at most one request more. What it found is written once, as counts, and is then the answer for its key for good; what
found nothing out is forgotten, and tried again when somebody asks later.
"""

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving.answers import Reply, form, same_answer
from mlgitops.adapters.serving.recording import Recorded, Recorder, paths
from mlgitops.adapters.serving.replay_order import Order, read_replayed
from mlgitops.adapters.serving.routing import Backend, Configuration
from mlgitops.core.analysis.shadow import Replayed

AGAIN_SECONDS: Final = 10.0
"""A replay that found nothing out is started again when it is asked for so much later."""
EXAMPLES_SECONDS: Final = 60.0
SPARE_SECONDS: Final = 300.0
"""A replay may take so much longer than its rate says; slow models answer more slowly than that."""
KEPT: Final = 500
"""Results that are kept; the oldest go first."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""All requests of one replay together."""

Send = Callable[[int, Recorded], Awaitable[Reply]]
"""Sends one request to a port of this machine; a connection that is refused or broken raises `OSError`."""


class _Gone(Exception):
    """A side does not serve the bytes that were asked for."""


class _Unanswered:
    """A replay that found nothing out: told once at least, and then for a while."""

    def __init__(self, found: Replayed) -> None:
        self.found = found
        self._told_at: float | None = None

    def stands(self) -> bool:
        """Say whether it is still to be told, rather than tried again."""
        if self._told_at is None:
            self._told_at = time.monotonic()
        return time.monotonic() - self._told_at < AGAIN_SECONDS


class Replayer:
    """Runs replays and keeps what they found."""

    def __init__(self, home: Path, recorder: Recorder, configuration: Callable[[], Configuration], send: Send) -> None:
        """Keep results in a folder.

        Args:
            home: Folder of results.
            recorder: Where recorded requests are.
            configuration: The configuration in force.
            send: How a request is sent.
        """
        self._home, self._recorder, self._configuration, self._send = home, recorder, configuration, send
        self._running: dict[str, asyncio.Task[None]] = {}
        self._unanswered: dict[str, _Unanswered] = {}
        self._one_at_a_time = asyncio.Lock()

    def ask(self, order: Order) -> Replayed | None:
        """Return what a replay found, None while it goes on; starts it unless it was started.

        Must be called in the event loop.
        """
        name = hashlib.sha256(order.key.encode()).hexdigest()[:32]
        if known := _read(self._home / f"{name}.json"):
            return known
        if name in self._running:
            return None
        unanswered = self._unanswered.get(name)
        if unanswered is not None and unanswered.stands():
            return unanswered.found
        if order.source == "recorded":
            kept = len(self._recorder.newest(order.environment, order.model, order.count))
            if kept < order.minimum:
                return Replayed(error=f"{kept:,} recorded requests are there")
        self._running[name] = asyncio.create_task(self._work(name, order))
        return None

    async def close(self) -> None:
        """End what goes on; it is started again when it is asked for."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _work(self, name: str, order: Order) -> None:
        try:
            found = await self._run(order)
            if not found.error and found.compared >= order.minimum:
                self._keep(self._home / f"{name}.json", found)
                return
        except Exception as error:  # noqa: BLE001 - whatever happens in a replay, the router goes on
            found = Replayed(error=f"the replay broke off: {type(error).__name__}")
        finally:
            del self._running[name]
        self._unanswered[name] = _Unanswered(found)
        while len(self._unanswered) > KEPT:
            del self._unanswered[next(iter(self._unanswered))]

    def _keep(self, file: Path, found: Replayed) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asdict(found)).encode(), mode=0o600)
        kept = sorted(self._home.glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
        for old in kept[:-KEPT]:
            old.unlink(missing_ok=True)

    async def _run(self, order: Order) -> Replayed:
        async with self._one_at_a_time:
            try:
                requests = await self._requests(order)
            except (OSError, ValueError) as error:
                return Replayed(error=f"the evaluation set cannot be read: {error!s:.300}")
            found = _Counts()
            ended = await self._replay_all(order, requests, found)
            return replace(found.total(), digest=_digest(requests), error=ended)

    async def _replay_all(self, order: Order, requests: Sequence[Recorded], found: "_Counts") -> str:
        """Replay requests in their order; returns why not all of them were, empty when they were."""
        try:
            async with asyncio.timeout(order.count / order.per_second + SPARE_SECONDS):
                for request in requests:
                    started = time.monotonic()
                    await self._replay(order, request, found)
                    await asyncio.sleep(max(0.0, 1 / order.per_second - (time.monotonic() - started)))
        except _Gone as gone:
            return str(gone)
        except TimeoutError:
            return "the answers took too long"
        return ""

    async def _requests(self, order: Order) -> Sequence[Recorded]:
        if order.source == "recorded":
            return self._recorder.newest(order.environment, order.model, order.count)
        path = paths(order.model)[0]
        return [Recorded(path=path, body=body) for body in await _examples(order)]

    async def _replay(self, order: Order, request: Recorded, found: "_Counts") -> None:
        champion = await self._answer(order, "baseline", request)
        # In threads: an answer may be long, and the users' requests must not wait while it is read.
        wanted, fault = await asyncio.to_thread(form, champion, request.path)
        found.tried += 1
        if fault:
            found.unusable[fault] += 1
            return
        candidate = await self._answer(order, "canary", request)
        given, fault = await asyncio.to_thread(form, candidate, request.path)
        if not fault and given != wanted:
            fault = "shape"
        if fault:
            found.faults[fault] += 1
            return
        found.seconds.append((champion.seconds, candidate.seconds))
        bodies = (champion.body, candidate.body)
        same = await asyncio.to_thread(
            same_answer, *bodies, request.path, regression=order.regression, tolerance=order.tolerance
        )
        found.comparable += same is not None
        found.disagreed += same is False

    async def _answer(self, order: Order, arm: str, request: Recorded) -> Reply:
        """Ask one side; a server that is being replaced is no fault of its model."""
        for _ in range(2):
            backend = self._backend(order, arm)
            with contextlib.suppress(OSError):
                assert backend.port is not None
                return await self._send(backend.port, request)
            await asyncio.sleep(0.5)
        raise _Gone(f"the {_SIDES[arm]} server went away")

    def _backend(self, order: Order, arm: str) -> Backend:
        route = self._configuration().routes.get((order.environment, order.model))
        for backend in route.backends if route else ():
            if backend.arm == arm and backend.port is not None and backend.artifact_digest == order.digests.get(arm):
                return backend
        raise _Gone(f"the {_SIDES[arm]} server does not serve what is to be compared")


_SIDES: Final = {"baseline": "champion's", "canary": "canary's"}


class _Counts:
    """What was found so far."""

    def __init__(self) -> None:
        self.tried, self.comparable, self.disagreed = 0, 0, 0
        self.unusable: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.seconds: list[tuple[float, float]] = []

    def total(self) -> Replayed:
        return Replayed(
            tried=self.tried,
            unusable=dict(self.unusable),
            faults=dict(self.faults),
            comparable=self.comparable,
            disagreed=self.disagreed,
            seconds=tuple((round(one, 6), round(other, 6)) for one, other in self.seconds),
        )


def _digest(requests: Sequence[Recorded]) -> str:
    digest = hashlib.sha256()
    for request in requests:
        digest.update(hashlib.sha256(request.path.encode() + b"\n" + request.body).digest())
    return f"sha256:{digest.hexdigest()}"


async def _examples(order: Order) -> Sequence[bytes]:
    """Read the evaluation set in a process of its own.

    Raises:
        ValueError: It cannot be read, or takes too long.
    """
    module = "mlgitops.adapters.serving.examples"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, order.file, json.dumps(dict(order.specification)), str(order.count)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(EXAMPLES_SECONDS):
            data = b"".join([part async for part in _bounded(process.stdout)])
            _, told = await process.communicate()
    except TimeoutError:
        raise ValueError(f"it took longer than {EXAMPLES_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(told.decode(errors="replace").strip()[-300:] or f"status {process.returncode}")
    return data.splitlines()


async def _bounded(stream: asyncio.StreamReader) -> Any:
    size = 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size > MOST_BYTES:
            raise ValueError(f"its first examples are more than {MOST_BYTES >> 20} MiB as requests")
        yield part


def _read(file: Path) -> Replayed | None:
    try:
        return read_replayed(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
