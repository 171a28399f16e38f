"""An engine to hold to the contract: apply objects, wait for what is observed, send requests."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

from mlgitops.adapters.loopback import Answer, call
from mlgitops.adapters.serving.controller import ServingController
from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.core.errors import Unavailable
from mlgitops.core.names import Digest
from mlgitops.ports.serving import Arm, ServiceObservation, ServingObservation
from tests.contract.serving.linear_model import LOADER, ROOT, write_model

ONE = json.dumps({"instances": [[1.0, 2.0]]}).encode()
Object = dict[str, Any]


def service(name: str, uri: str, digest: Digest | str, release: str = "aaaaaaaaaaaa") -> Object:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "labels": {"mlgitops.dev/release": release},
            "annotations": {
                "serving.kserve.io/deploymentMode": "Standard",
                "mlgitops.dev/artifact-digest": str(digest),
            },
        },
        "spec": {"predictor": {"model": {"modelFormat": {"name": "tensorflow"}, "storageUri": uri}}},
    }


def route(model: str, baseline: int | None, canary: int | None, cohort: str = "1-1", **annotations: str) -> Object:
    names = ((f"{model}-predictor", baseline), (f"{model}-canary-predictor", canary))
    references = [{"name": name, "port": 80, "weight": weight} for name, weight in names if weight is not None]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": model, "annotations": {"mlgitops.dev/cohort": cohort, **annotations}},
        "spec": {"rules": [{"backendRefs": references}]},
    }


class Engine:
    """A controller that ticks in a thread, as the engine's loop does, and the port that looks at it."""

    def __init__(self, root: Path, *, loader: str | None = LOADER) -> None:
        self.root, self.home, self._loader = root, root / "home", loader
        self.serving = EmbeddedServing(self.home, self.resolve)
        self._stop = threading.Event()
        self._models = 0
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        self._stop.clear()
        variables = {"PYTHONPATH": str(ROOT)}
        self.controller = ServingController(self.home, self.resolve, loader=self._loader, variables=variables)
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        self.until(lambda: self.controller.router_port is not None)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.controller.close()

    def resolve(self, uri: str) -> Path:
        return self.root / "models" / uri.removeprefix("pvc://store/")

    def model(self, **options: Any) -> tuple[str, Digest]:
        """Write a model and return its URI and digest."""
        self._models += 1
        uri = f"pvc://store/m{self._models}"
        return uri, write_model(self.resolve(uri), **options)

    def apply(self, environment: str, *objects: Object) -> None:
        self.controller.apply(environment, "f" * 40, objects)

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except Unavailable:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s; observed: {self.controller.observation()}")

    def observe(self, environment: str) -> ServingObservation:
        return self.serving.observe(environment, "digits")

    def baseline(self, environment: str) -> ServiceObservation:
        """Return what is observed of the baseline, which must be there."""
        seen = self.observe(environment).baseline
        assert seen is not None
        return seen

    def canary(self, environment: str) -> ServiceObservation:
        """Return what is observed of the canary, which must be there."""
        seen = self.observe(environment).canary
        assert seen is not None
        return seen

    def until_ready(self, environment: str, *arms: Arm, release: str | None = None) -> None:
        def ready() -> bool:
            seen = self.observe(environment)
            sides = [seen.canary if arm is Arm.CANARY else seen.baseline for arm in arms or (Arm.BASELINE,)]
            return all(side and side.ready and release in (None, side.release) for side in sides)

        self.until(ready)

    def ask(self, method: str, path: str, body: bytes | None = None, **options: Any) -> Answer:
        port = self.controller.router_port
        assert port is not None
        return call(port, method, path, service="router", body=body, timeout_seconds=30, **options)

    def labels(
        self, environment: str, labels: Sequence[tuple[str, Any]], token: str | None = None
    ) -> Mapping[str, Any]:
        body = json.dumps({"labels": [{"id": one, "label": label} for one, label in labels]}).encode()
        answer = self.ask("POST", f"/{environment}/digits/labels", body, token=token or self.serving.label_token())
        return dict(json.loads(answer.body))

    def send(
        self, environment: str, ids: Sequence[str], body: bytes = ONE, *, slices: str = ""
    ) -> list[tuple[int, Mapping[str, str]]]:
        """Send one prediction per id, in order, and return status and headers of each answer."""
        return asyncio.run(self._send(environment, ids, body, {"X-Mlgitops-Slices": slices} if slices else {}))

    async def _send(
        self, environment: str, ids: Sequence[str], body: bytes, headers: Mapping[str, str]
    ) -> list[tuple[int, Mapping[str, str]]]:
        gate = asyncio.Semaphore(8)
        async with aiohttp.ClientSession() as session:

            async def one(request_id: str) -> tuple[int, Mapping[str, str]]:
                async with (
                    gate,
                    session.post(
                        self.url(environment), data=body, headers={**headers, "X-Request-Id": request_id}
                    ) as answer,
                ):
                    await answer.read()
                    return answer.status, answer.headers

            return list(await asyncio.gather(*(one(request_id) for request_id in ids)))

    def url(self, environment: str) -> str:
        return f"http://127.0.0.1:{self.controller.router_port}/{environment}/digits/v1/models/digits:predict"

    def _loop(self) -> None:
        while not self._stop.wait(0.05):
            self.controller.tick()


class Load:
    """Sends requests from several clients until told to stop, in a thread; counts what came back."""

    def __init__(self, url: str, clients: int = 4) -> None:
        self._url, self._clients = url, clients
        self.answers: Counter[tuple[int, str]] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(self._client(session) for _ in range(self._clients)))

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            try:
                async with session.post(self._url, data=ONE) as answer:
                    await answer.read()
                    self.answers[answer.status, answer.headers.get("X-Mlgitops-Release", "")] += 1
            except aiohttp.ClientError as error:
                self.answers[0, repr(error)] += 1
