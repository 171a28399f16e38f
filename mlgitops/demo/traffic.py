"""Users of the demo: they send handwritten digits all the time, and say later what the digits really were."""

import asyncio
import json
import random
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.core.errors import Unavailable
from mlgitops.local.wiring import SERVING

LABEL_DELAY_SECONDS: Final = (1.0, 3.0)
LABEL_BATCH_SECONDS: Final = 0.5
IN_FLIGHT: Final = 64
SEED: Final = 7


class Users:
    """Sends requests at a rate, whatever comes back, and their labels later."""

    def __init__(self, home: Path, model: str, environment: str, rate: float, images: Path) -> None:
        """Take the engine at `home`, and an `.npz` with `x` and `y` as what users send."""
        self._serving = EmbeddedServing(home / SERVING)
        self._model, self._environment, self._rate = model, environment, rate
        with np.load(images) as data:
            self._pixels = [row.tolist() for row in data["x"]]
            self._digits = [int(one) for one in data["y"]]
        self._random = random.Random(SEED)  # noqa: S311 - which digit comes next is no secret
        self._labels: deque[tuple[float, str, int]] = deque()
        self.counts = {"sent": 0, "answered": 0, "failed": 0, "labelled": 0}
        self.last_answer: dict[str, str] = {}

    async def run(self, stop: asyncio.Event, told: Path) -> None:
        """Send until `stop`; what happened is written to `told` as it goes."""
        connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session:
            tasks: set[asyncio.Task[None]] = {asyncio.create_task(self._labelling(session, stop))}
            due = time.monotonic()
            while not stop.is_set():
                due = max(due + self._random.expovariate(self._rate), time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if len(tasks) < IN_FLIGHT:
                    task = asyncio.create_task(self._ask(session))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                if self.counts["sent"] % 100 == 0:
                    write_atomically(told, json.dumps({**self.counts, "last": self.last_answer}).encode())
            await asyncio.gather(*tasks, return_exceptions=True)
        write_atomically(told, json.dumps({**self.counts, "last": self.last_answer}).encode())

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        index = self._random.randrange(len(self._pixels))
        self.counts["sent"] += 1
        url = f"{self._serving.address()}/{self._environment}/{self._model}/v1/models/{self._model}:predict"
        try:
            async with session.post(url, json={"instances": [self._pixels[index]]}) as answer:
                await answer.read()
                self._note(answer, index)
        except (aiohttp.ClientError, TimeoutError, Unavailable):
            self.counts["failed"] += 1

    def _note(self, answer: aiohttp.ClientResponse, index: int) -> None:
        if answer.status != 200:
            self.counts["failed"] += 1
            return
        self.counts["answered"] += 1
        request = answer.headers["X-Request-Id"]
        self.last_answer = {"id": request, "release": answer.headers.get("X-Mlgitops-Release", "")}
        delay = self._random.uniform(*LABEL_DELAY_SECONDS)
        self._labels.append((time.monotonic() + delay, request, self._digits[index]))

    async def _labelling(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(LABEL_BATCH_SECONDS)
            now = time.monotonic()
            due = [one for one in self._labels if one[0] <= now]
            self._labels = deque(one for one in self._labels if one[0] > now)
            if due:
                await self._tell(session, [{"id": request, "label": digit} for _, request, digit in due])

    async def _tell(self, session: aiohttp.ClientSession, labels: list[dict[str, Any]]) -> None:
        try:
            url = f"{self._serving.address()}/{self._environment}/{self._model}/labels"
            headers = {"Authorization": f"Bearer {self._serving.label_token()}"}
            async with session.post(url, json={"labels": labels}, headers=headers) as answer:
                if answer.status == 200:
                    self.counts["labelled"] += len(labels)
        except (aiohttp.ClientError, TimeoutError, Unavailable):
            return  # a label that is lost is no failure of the service


async def _main(home: str, model: str, rate: str, images: str, told: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    users = Users(Path(home), model, "production", float(rate), Path(images))
    await users.run(stop, Path(told))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:6]))
