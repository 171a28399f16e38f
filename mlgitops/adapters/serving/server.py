"""The model server: one process, one model, the V1 and V2 prediction protocols on the loopback interface.

    python -m mlgitops.adapters.serving.server --model NAME --release RELEASE --artifact-dir DIR
        --artifact-digest sha256:… [--version-dir N] [--port 0] [--ready-file FILE] [--exit-with-parent]
        [--loader MODULE:FUNCTION] [--timeout-seconds 30]
    python -m mlgitops.adapters.serving.server --model NAME --release RELEASE --order FILE …

This command line is stable. The server reads the digest over the files under DIR before and after it loads them, and
refuses other bytes and a layout without `<integer>/saved_model.pb`. When it answers, the ready file holds one JSON line
`{"ready": true, "port": N, "pid": N, "artifact_digest": "sha256:…", "version": "1"}`. When it refuses, one line goes to
standard error, the ready file says `{"ready": false, "reason": "…", "code": N}`, and it exits with that code: 1 for
other bytes or a model that cannot be loaded, 3 for a layout that cannot be served. SIGTERM ends it after the requests
it has; with `--exit-with-parent` the end of standard input does too.

With `--order` it first imports what loading needs, which takes longer than loading, and touches no model before FILE is
there: a JSON object with `artifact_dir`, `artifact_digest` and `version_dir`.

A request at fault gets the protocol's 4xx error; a fault of the model 500 (a raised error, NaN or infinity in an
output, which JSON cannot carry); 503 means too many requests wait, 504 that one took too long. Only these are failures.
"""

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest

from mlgitops.adapters.files import directory_digest
from mlgitops.adapters.serving import process, protocol
from mlgitops.adapters.serving.buckets import LATENCY_BUCKETS_SECONDS
from mlgitops.adapters.serving.http import MAXIMUM_BODY_BYTES, json_answer, json_errors
from mlgitops.adapters.serving.protocol import Arrays, ModelError, Predictor, RequestError
from mlgitops.adapters.serving.ready import write_ready
from mlgitops.core.errors import DigestMismatch, InvalidInput, MlgitopsError
from mlgitops.core.names import Digest

DEFAULT_LOADER: Final = "mlgitops.adapters.serving.savedmodel:load"
SIGNATURE: Final = "serving_default"
WAITING_LIMIT: Final = 256
"""Requests that may wait for the model at once; more are refused with 503 before they pile up."""
INLINE_SECONDS: Final = 0.005
"""A model whose answers are faster than this runs in the event loop: handing over to a thread would cost as much."""
INLINE_ROWS: Final = 32
ORDER_SECONDS: Final = 0.05

Loader = Callable[[Path, int | None], tuple[Predictor, str]]
"""From an artifact's directory and the version asked for to the loaded model and the version served."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a server says about itself."""

    model: str
    """Name under which the model is served."""
    release: str
    """Release the bytes belong to."""
    digest: Digest
    """Digest of the bytes, read by this process."""
    version: str
    """Version directory that is served."""


class Runner:
    """Runs predictions one at a time, and never lets one keep the server from answering that it is alive."""

    def __init__(self, predictor: Predictor, timeout_seconds: float) -> None:
        self._predictor = predictor
        self._timeout_seconds = timeout_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")
        self._recent_seconds: float | None = None
        """Moving mean of the model's answers; None before the first, which is assumed slow."""
        self._waiting = 0

    async def run(self, arrays: Arrays) -> Arrays:
        """Return the model's outputs, or raise `ModelError` or the HTTP error of an overloaded server."""
        rows = max((array.shape[0] for array in arrays.values() if array.ndim), default=1)
        fast = self._recent_seconds is not None and self._recent_seconds < INLINE_SECONDS
        if fast and rows <= INLINE_ROWS and not self._waiting:
            return self._call(arrays)
        if self._waiting >= WAITING_LIMIT:
            raise web.HTTPServiceUnavailable(text="too many requests wait for the model")
        self._waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, self._call, arrays)
            return await asyncio.wait_for(future, self._timeout_seconds)
        except TimeoutError:
            raise web.HTTPGatewayTimeout(text=f"no answer within {self._timeout_seconds:g} s") from None
        finally:
            self._waiting -= 1

    def _call(self, arrays: Arrays) -> Arrays:
        started = time.perf_counter()
        try:
            return self._predictor.predict(arrays)
        except ModelError:
            raise
        except Exception as error:
            # The model is user code: whatever it raises is its fault, and the server goes on.
            raise ModelError(f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            seconds = time.perf_counter() - started
            former = seconds if self._recent_seconds is None else self._recent_seconds
            self._recent_seconds = 0.8 * former + 0.2 * seconds


class ModelServer:
    """The HTTP face of a loaded model."""

    def __init__(self, predictor: Predictor, identity: Identity, *, timeout_seconds: float = 30.0) -> None:
        self._predictor, self._identity = predictor, identity
        self._runner = Runner(predictor, timeout_seconds)
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mlgitops_server_requests",
            "Predictions asked of this process, by outcome: ok, refused (the request's fault), failed.",
            ["model", "release", "protocol", "outcome"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "mlgitops_server_request_seconds",
            "Time from a whole request to its answer.",
            ["model", "release", "protocol"],
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=self._registry,
        )
        self._headers = {"X-Mlgitops-Release": identity.release, "X-Mlgitops-Artifact-Digest": identity.digest.value}

    def application(self) -> web.Application:
        """Return the routes of both protocols."""
        app = web.Application(middlewares=[json_errors], client_max_size=MAXIMUM_BODY_BYTES)
        app.add_routes(
            [
                web.get("/v1/models", self._v1_list),
                web.get("/v1/models/{model}", self._v1_model),
                web.post("/v1/models/{model}:predict", self._v1_predict),
                web.get("/v2", self._v2_server),
                web.get("/v2/health/live", self._live),
                web.get("/v2/health/ready", self._ready),
                web.get("/v2/models/{model}", self._v2_model),
                web.get("/v2/models/{model}/ready", self._v2_ready),
                web.post("/v2/models/{model}/infer", self._v2_infer),
                web.get("/metrics", self._metrics),
            ]
        )
        return app

    async def _v1_list(self, _: web.Request) -> web.Response:
        return json_answer({"models": [self._identity.model]})

    async def _v1_model(self, request: web.Request) -> web.Response:
        self._check_model(request)
        return json_answer({"name": self._identity.model, "ready": True}, self._headers)

    async def _v2_server(self, _: web.Request) -> web.Response:
        return json_answer({"name": "mlgitops", "version": self._identity.version, "extensions": []})

    async def _live(self, _: web.Request) -> web.Response:
        return json_answer({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        return json_answer({"ready": True})

    async def _v2_ready(self, request: web.Request) -> web.Response:
        self._check_model(request)
        return json_answer({"name": self._identity.model, "ready": True}, self._headers)

    async def _v2_model(self, request: web.Request) -> web.Response:
        self._check_model(request)
        value = {
            "name": self._identity.model,
            "versions": [self._identity.version],
            "platform": "tensorflow_savedmodel",
            "inputs": [protocol.metadata(spec) for spec in self._predictor.inputs],
            "outputs": [protocol.metadata(spec) for spec in self._predictor.outputs],
            "parameters": {"release": self._identity.release, "artifact_digest": self._identity.digest.value},
        }
        return json_answer(value, self._headers)

    async def _v1_predict(self, request: web.Request) -> web.Response:
        async def answer(body: bytes) -> bytes:
            arrays = protocol.read_v1(body, self._predictor.inputs, SIGNATURE)
            return protocol.write_v1(await self._runner.run(arrays))

        return await self._count(request, "v1", answer)

    async def _v2_infer(self, request: web.Request) -> web.Response:
        async def answer(body: bytes) -> bytes:
            asked = protocol.read_v2(body, self._predictor.inputs, self._predictor.outputs)
            outputs = await self._runner.run(asked.arrays)
            return protocol.write_v2(asked, outputs, self._identity.model, self._identity.version)

        return await self._count(request, "v2", answer)

    async def _count(
        self, request: web.Request, protocol_name: str, answer: Callable[[bytes], Awaitable[bytes]]
    ) -> web.Response:
        """Answer one prediction and count how it went; requests for other models are not this model's."""
        self._check_model(request)
        body = await request.read()
        started, outcome = time.perf_counter(), "failed"
        try:
            data = await answer(body)
            outcome = "ok"
            return web.Response(body=data, content_type="application/json", headers=self._headers)
        except RequestError as error:
            outcome = "refused"
            return json_answer({"error": str(error)}, self._headers, status=error.status)
        except ModelError as error:
            return json_answer({"error": f"the model failed: {error}"}, self._headers, status=500)
        finally:
            labels = (self._identity.model, self._identity.release, protocol_name)
            self._requests.labels(*labels, outcome).inc()
            self._seconds.labels(*labels).observe(time.perf_counter() - started)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _check_model(self, request: web.Request) -> None:
        if request.match_info["model"] != self._identity.model:
            raise web.HTTPNotFound(text=f"the model served here is {self._identity.model}")


def warm(predictor: Predictor) -> str:
    """Run one prediction of zeros where the shapes are known, so that no user waits for tracing.

    Returns:
        Why there was none, or how it failed; empty when it answered. Zeros may be no valid input, so a failure is told
        and does not refuse the model.
    """
    arrays = {}
    for spec in predictor.inputs:
        if spec.shape is None or None in spec.shape[1:]:
            return f"the shape of {spec.name} is not known in advance"
        shape = tuple(1 if size is None else size for size in spec.shape)
        fill = b"" if spec.datatype == "BYTES" else 0
        arrays[spec.name] = np.full(shape, fill, dtype=protocol.DATATYPES[spec.datatype])
    try:
        predictor.predict(arrays)
    except Exception as error:  # noqa: BLE001 - the model is user code
        return f"a prediction of zeros failed: {error}"[:300]
    return ""


def load(artifact: Path, expected: Digest, version: int | None, loader: Loader) -> tuple[Predictor, str, Digest]:
    """Load a model whose bytes have the expected digest before and after loading.

    Raises:
        DigestMismatch: They have another one.
        InvalidInput: The layout or the signature cannot be served.
    """
    _verify(artifact, expected)
    predictor, served = loader(artifact, version)
    _verify(artifact, expected)
    return predictor, served, expected


def _verify(artifact: Path, expected: Digest) -> None:
    found = directory_digest(artifact)
    if found != expected:
        raise DigestMismatch(str(artifact), expected.value, found.value)


def _loader(text: str) -> Loader:
    module, _, name = text.partition(":")
    loader: Loader = getattr(importlib.import_module(module), name)
    return loader


def _prepare(text: str) -> None:
    """Import what a loader needs, where its module says how; no model is touched."""
    prepare: Callable[[], None] | None = getattr(importlib.import_module(text.partition(":")[0]), "prepare", None)
    if prepare is not None:
        prepare()


def _await_order(options: argparse.Namespace) -> None:
    """Wait until it is said which model to load."""
    _prepare(options.loader)
    while not options.order.exists():
        time.sleep(ORDER_SECONDS)
    told = json.loads(options.order.read_bytes())
    options.artifact_dir, options.artifact_digest = Path(told["artifact_dir"]), str(told["artifact_digest"])
    options.version_dir = int(told["version_dir"])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mlgitops.adapters.serving.server", description="Serve one model.")
    parser.add_argument("--model", required=True, help="name under which the model is served")
    parser.add_argument("--release", required=True, help="release the model belongs to")
    parser.add_argument("--artifact-dir", type=Path, help="folder with <integer>/saved_model.pb")
    parser.add_argument("--artifact-digest", help="digest over the folder's files, sha256:…")
    parser.add_argument("--order", type=Path, help="file that will say which model to load")
    parser.add_argument("--version-dir", type=int, help="version to serve; the highest by default")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 for a free one")
    parser.add_argument("--ready-file", type=Path, help="file to write when the server is ready, or refuses")
    parser.add_argument("--loader", default=DEFAULT_LOADER, help="MODULE:FUNCTION that loads the model")
    parser.add_argument("--timeout-seconds", type=float, default=30.0, help="longest time for one prediction")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input closes")
    options = parser.parse_args(argv)
    if options.order is None and (options.artifact_dir is None or options.artifact_digest is None):
        parser.error("--artifact-dir and --artifact-digest are needed, or --order")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one model until told to end; returns the exit code."""
    options = _arguments(argv)
    if options.exit_with_parent:
        process.end_with_parent()
    try:
        if options.order is not None:
            _await_order(options)
        expected = Digest(options.artifact_digest)
        loader = _loader(options.loader)
        predictor, version, digest = load(options.artifact_dir, expected, options.version_dir, loader)
        bound = process.listen(options.port)
    except Exception as error:  # noqa: BLE001 - loading runs the model's code; any failure is told in one line
        return _refuse(options.ready_file, error)
    cold = warm(predictor)
    if cold:
        print(f"not warmed: {cold}", file=sys.stderr, flush=True)  # noqa: T201 - the process's log
    identity = Identity(model=options.model, release=options.release, digest=digest, version=version)
    server = ModelServer(predictor, identity, timeout_seconds=options.timeout_seconds)

    def ready(port: int) -> None:
        write_ready(
            options.ready_file,
            ready=True,
            port=port,
            pid=os.getpid(),
            artifact_digest=digest.value,
            version=version,
            not_warmed=cold,
        )

    process.serve(server.application(), bound, ready)
    return 0


def _refuse(ready_file: Path | None, error: Exception) -> int:
    """Say in one line why the model is not served."""
    reason = " ".join(str(error).split())[:1000] or type(error).__name__
    if not isinstance(error, MlgitopsError):
        reason = f"{type(error).__name__}: {reason}"
    code = 3 if isinstance(error, InvalidInput) else 1
    write_ready(ready_file, ready=False, reason=reason, code=code)
    print(f"refused: {reason}", file=sys.stderr, flush=True)  # noqa: T201 - the process's log
    return code


if __name__ == "__main__":
    sys.exit(main())
