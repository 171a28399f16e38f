"""What the embedded servers answer, straight and through the split, and what a change of weights loses.

    python benchmarks/serving.py [--quick]

A light model (a small matrix) shows what the servers themselves take, a SavedModel what is usual. Requests are V1
predictions of one row over kept connections, from clients in this process, which share the machine with the servers.
Straight and split are measured in turn; a row tells the median of the rounds, and the 50th and 99th percentile over all
requests. With one client, the difference of the medians is the latency that the split adds. `weights` sends requests
while the weights change every half second; not one may fail. Exit code 1 when one does. `--quick` leaves the SavedModel
out.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mlgitops.adapters.files import directory_digest  # noqa: E402 - found from any folder
from mlgitops.adapters.serving import layout  # noqa: E402
from mlgitops.core.names import Digest  # noqa: E402
from mlgitops.ports.serving import Arm  # noqa: E402
from tests.contract.serving.linear_model import LOADER, write_model  # noqa: E402
from tests.contract.serving.serving_kit import Engine, route, service  # noqa: E402

ENVIRONMENT: Final = "production"
MODEL: Final = "digits"
CLIENTS: Final = (1, 8)
CHANGE_SECONDS: Final = 0.5
WEIGHTS: Final = (10, 50, 95, 0, 100, 20)
SAVED_MODEL: Final = """
import sys
import tensorflow as tf
inputs = tf.keras.Input((64,), name="x")
hidden = tf.keras.layers.Dense(128, activation="relu")(inputs)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(10, activation="softmax")(hidden))
model.export(sys.argv[1], verbose=False)
"""


@dataclass(kw_only=True)
class Runs:
    """What came of the requests of one kind."""

    rates: list[float] = field(default_factory=list)
    """Answers in a second, by round."""
    latencies: list[float] = field(default_factory=list)
    """Seconds, of every answer."""
    failed: int = 0

    def send(self, port: int, path: str, body: bytes, clients: int, seconds: float) -> None:
        """Send requests for some seconds."""
        head = f"POST {path} HTTP/1.1\r\nHost: mlgitops\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        before, started = len(self.latencies), time.perf_counter()
        asyncio.run(_clients([_client(port, request, started + seconds, self) for _ in range(clients)]))
        self.rates.append((len(self.latencies) - before) / (time.perf_counter() - started))

    def percentile(self, percent: int) -> float:
        """Return a percentile of the latency in milliseconds."""
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[percent - 1] * 1000

    def cells(self) -> list[str]:
        rate = statistics.median(self.rates)
        return [f"{rate:,.0f}", f"{self.percentile(50):.2f}", f"{self.percentile(99):.2f}", str(self.failed)]


async def _client(port: int, request: bytes, until: float, runs: Runs) -> None:
    """Send requests over one connection, each after the answer to the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (started := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        runs.latencies.append(time.perf_counter() - started)
        runs.failed += not head.startswith(b"HTTP/1.1 200 ")
    writer.close()


async def _clients(clients: Sequence[Coroutine[None, None, None]]) -> None:
    await asyncio.gather(*clients)


class Bench:
    """A baseline and a canary of one model behind the split."""

    def __init__(self, engine: Engine, uri: str, digest: Digest, features: int) -> None:
        self._engine = engine
        self._services = (service(MODEL, uri, digest), service(f"{MODEL}-canary", uri, digest, "bbbbbbbbbbbb"))
        self._body = json.dumps({"instances": [[0.5] * features]}).encode()
        self._changes = 0
        self.weigh(50)
        engine.until_ready(ENVIRONMENT, Arm.BASELINE, Arm.CANARY)
        state = json.loads(self._state())
        (self._straight,) = {one["ports"]["baseline"] for one in state["routes"]}

    def weigh(self, percent: int) -> None:
        """Apply a weight, as the engine does when `main` says so."""
        self._changes += 1
        split = route(MODEL, 100 - percent, percent, f"1-{self._changes}")
        self._engine.apply(ENVIRONMENT, *self._services, split)

    def straight(self, runs: Runs, clients: int, seconds: float) -> None:
        """Ask the baseline's server itself."""
        runs.send(self._straight, f"/v1/models/{MODEL}:predict", self._body, clients, seconds)

    def split(self, runs: Runs, clients: int, seconds: float) -> None:
        """Ask through the split."""
        port = self._engine.controller.router_port
        assert port is not None
        path = f"/{ENVIRONMENT}/{MODEL}/v1/models/{MODEL}:predict"
        runs.send(port, path, self._body, clients, seconds)

    def changing(self, runs: Runs, clients: int, seconds: float) -> int:
        """Ask through the split while weights change; returns how many changes came into force."""
        before, stop = self._changes, threading.Event()

        def change() -> None:
            for percent in itertools.cycle(WEIGHTS):
                if stop.wait(CHANGE_SECONDS):
                    return
                self.weigh(percent)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            self.split(runs, clients, seconds)
        finally:
            stop.set()
            thread.join()
        cohort = f"1-{self._changes}"
        self._engine.until(lambda: self._engine.observe(ENVIRONMENT).cohort == cohort)
        return self._changes - before

    def _state(self) -> bytes:
        token = (self._engine.home / layout.CONTROL_TOKEN).read_text()
        return self._engine.ask("GET", "/-/state", token=token).body


def main() -> int:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a second, and no SavedModel")
    quick = parser.parse_args().quick
    rounds, seconds = (1, 0.5) if quick else (5, 3.0)
    print(f"{rounds} rounds of {seconds:g} s; load {os.getloadavg()[0]:.1f}")
    lost = 0
    with tempfile.TemporaryDirectory(prefix="mlgitops-serving-") as home:
        with Engine(Path(home) / "light", loader=LOADER) as engine:
            uri = "pvc://store/light"
            bench = Bench(engine, uri, write_model(engine.resolve(uri)), features=2)
            lost += _measure("a light model", bench, rounds, seconds)
        if not quick:
            with Engine(Path(home) / "saved", loader=None) as engine:
                uri = "pvc://store/saved"
                bench = Bench(engine, uri, _write_saved_model(engine.resolve(uri)), features=64)
                lost += _measure("a SavedModel of 9,610 parameters", bench, rounds, seconds)
    return int(bool(lost))


def _write_saved_model(folder: Path) -> Digest:
    quiet = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-c", SAVED_MODEL, str(folder / "1")]
    subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return directory_digest(folder)


def _measure(name: str, bench: Bench, rounds: int, seconds: float) -> int:
    """Print one model's table and return how many requests failed."""
    for clients in CLIENTS:  # unmeasured: connections and caches
        bench.split(Runs(), clients, 0.3)
    table: dict[tuple[str, int], Runs] = {}
    for clients in CLIENTS:
        straight = table["straight", clients] = Runs()
        split = table["split", clients] = Runs()
        for _ in range(rounds):
            bench.straight(straight, clients, seconds)
            bench.split(split, clients, seconds)
    changing = table["weights", CLIENTS[-1]] = Runs()
    changes = bench.changing(changing, CLIENTS[-1], rounds * seconds)
    print(f"\n{name}")
    print("".join(f"{one:>12}" for one in ("", "clients", "answers/s", "p50 ms", "p99 ms", "failed")))
    for (kind, clients), runs in table.items():
        print("".join(f"{one:>12}" for one in [kind, str(clients), *runs.cells()]))
    added = table["split", 1].percentile(50) - table["straight", 1].percentile(50)
    slow = table["split", 1].percentile(99) - table["straight", 1].percentile(99)
    share = statistics.median(table["split", 8].rates) / statistics.median(table["straight", 8].rates)
    print(f"the split adds {added:.2f} ms at p50, {slow:.2f} ms at p99, {share:.2f} of the answers")
    print(f"{len(changing.latencies):,} requests while weights changed {changes} times: {changing.failed} failed")
    return sum(runs.failed for runs in table.values())


if __name__ == "__main__":
    sys.exit(main())
