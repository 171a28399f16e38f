"""The router: one address for all models, each request answered by the canary or the baseline.

    python -m mlgitops.adapters.serving.router --config FILE --served-dir DIR --replays-dir DIR
        --label-token-file FILE --control-token-file FILE [--port 0] [--ready-file FILE] [--exit-with-parent]

| path | |
|---|---|
| `/{environment}/{model}/v1/…`, `/{environment}/{model}/v2/…` | forwarded to one side of the split |
| `POST /{environment}/{model}/labels` | true labels of served requests; bearer token |
| `GET /{environment}/{model}/requests/{id}` | which release answered a request; the same token |
| `/metrics` | counts by environment, model, cohort, arm and release |
| `/-/state`, `POST /-/reload` | the configuration in force; its own bearer token |
| `POST /-/replay` | requests replayed to both sides, past the split and not counted; the same token |

The side is a function of the request's id (`X-Request-Id`, or one made here) and the weights, so a split can be checked
request by request. `X-Mlgitops-Slices: mobile,eu` names slices that a request is counted in, too. Answers carry
`X-Request-Id`, `X-Mlgitops-Release` and `X-Mlgitops-Cohort`. A request for a side without a server gets 500 or 503, as
Gateway API says, and counts as failed; it never goes to the other side silently.
"""

import argparse
import asyncio
import hmac
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from yarl import URL

from mlgitops.adapters.loopback import HOST
from mlgitops.adapters.serving import process
from mlgitops.adapters.serving.answers import Reply
from mlgitops.adapters.serving.budget import Budget
from mlgitops.adapters.serving.exposition import ServedCollector
from mlgitops.adapters.serving.http import MAXIMUM_BODY_BYTES, json_answer, json_errors
from mlgitops.adapters.serving.outcomes import Prediction, parse_label, predictions
from mlgitops.adapters.serving.protocol_json import parse_object
from mlgitops.adapters.serving.ready import write_ready
from mlgitops.adapters.serving.recording import Recorded, Recorder
from mlgitops.adapters.serving.replay import Replayer
from mlgitops.adapters.serving.replay_order import Order
from mlgitops.adapters.serving.routing import Backend, Configuration, Route, choose
from mlgitops.adapters.serving.served import SeriesKey, ServedLog

TIMEOUT_SECONDS: Final = 35.0
"""A little more than a model server allows itself, so that its own answer is the one that comes."""
CONNECT_SECONDS: Final = 2.0
LABELS_LIMIT: Final = 1_000
"""Labels in one call."""
CALL_COST: Final = 20
"""A call without labels costs as much time as some labels."""
SHORTEST_TOKEN: Final = 16
SLICES_HEADER: Final = "X-Mlgitops-Slices"
SLICES_LIMIT: Final = 8
"""Slices of one request."""
_SLICE: Final = re.compile(r"[a-z0-9]([a-z0-9._=-]{0,61}[a-z0-9])?")
REPLAYED_BYTES: Final = 4 * 1024 * 1024
"""Longest answer to a replayed request that is read; of a longer one nothing is."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """What came back for one forwarded request."""

    status: int
    body: bytes
    content_type: str


class Router:
    """Forwards, counts, takes labels."""

    def __init__(
        self, config_file: Path, log: ServedLog, replays: Path, *, label_token: str, control_token: str
    ) -> None:
        self._config_file, self._log = config_file, log
        self._label_token, self._control_token = label_token, control_token
        self._configuration = Configuration(routes={})
        self._session: aiohttp.ClientSession | None = None
        self._budget = Budget()
        self._in_flight: Counter[int] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(ServedCollector(log))
        self._recorder = Recorder()
        self._replayer = Replayer(replays, self._recorder, lambda: self._configuration, self._send_again)
        self.reload()

    def reload(self) -> None:
        """Put the configuration file in force, as a whole; `ValueError` or `OSError` leave the former one in force."""
        self._configuration = Configuration.from_bytes(self._config_file.read_bytes())
        routes = self._configuration.routes.values()
        self._recorder.limit({key: route.record for key, route in self._configuration.routes.items()})
        self._log.in_force = frozenset((route.environment, route.model, route.cohort) for route in routes)

    def application(self) -> web.Application:
        """Return the router's routes."""
        app = web.Application(middlewares=[json_errors], client_max_size=MAXIMUM_BODY_BYTES)
        app.cleanup_ctx.append(self._client)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/-/state", self._state),
                web.post("/-/reload", self._reload),
                web.post("/-/replay", self._replay),
                web.post("/{environment}/{model}/labels", self._labels),
                web.get("/{environment}/{model}/requests/{id}", self._trace),
                web.route("*", "/{environment}/{model}/{rest:v[12](/.*)?}", self._forward),
            ]
        )
        return app

    async def _client(self, _: web.Application) -> Any:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS, sock_connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        ) as self._session:
            yield
            await self._replayer.close()

    async def _forward(self, request: web.Request) -> web.Response:
        route = self._route(request)
        if request.method not in ("GET", "POST"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "POST"])
        request_id = _request_id(request)
        body = await request.read()
        predicts = request.method == "POST" and request.path.endswith((":predict", "/infer"))
        started = time.perf_counter()
        backend, upstream = await self._ask(request, route, request_id, body)
        seconds = time.perf_counter() - started
        if predicts and backend is not None:
            key = SeriesKey(
                route.environment, route.model, route.cohort, backend.arm, backend.release, backend.artifact_digest
            )
            outcome, predicted = _judge(route, request.path, upstream)
            self._log.served(request_id, key, outcome, seconds, predicted, slices=_slices(request))
            if outcome == "ok":
                kept = Recorded(path=request.path.removeprefix(f"/{route.environment}/{route.model}"), body=body)
                self._recorder.keep(route.environment, route.model, route.record, kept)
        headers = {"X-Request-Id": request_id, "X-Mlgitops-Cohort": route.cohort}
        if backend is not None and backend.release:
            headers["X-Mlgitops-Release"] = backend.release
        return web.Response(
            status=upstream.status, body=upstream.body, headers=headers, content_type=upstream.content_type
        )

    async def _ask(
        self, request: web.Request, route: Route, request_id: str, body: bytes
    ) -> tuple[Backend | None, Upstream]:
        """Send a request to its side; once more when the connection was refused or closed without an answer."""
        tail = request.rel_url.raw_path.split("/", 3)[3]
        for attempt in (1, 2):
            backend = choose(route, request_id)
            if backend is None:
                return None, _error(503, "the route gives no side any weight")
            if backend.port is None:
                return backend, _error(backend.absent_status, backend.message or "there is no server for this side")
            try:
                return backend, await self._send(backend.port, request, f"/{tail}", request_id, body)
            except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError) as error:
                # Refused, or a kept connection closed at that moment. A prediction changes nothing, so it may be asked
                # again, and by then the side may have been replaced.
                if attempt == 2:
                    return backend, _error(502, f"the model server cannot be reached: {type(error).__name__}")
                await asyncio.sleep(0.02)
                route = self._configuration.routes.get((route.environment, route.model), route)
            except TimeoutError:
                return backend, _error(504, "the model server did not answer in time")
            except (aiohttp.ClientError, OSError) as error:
                return backend, _error(502, f"the model server broke off: {type(error).__name__}")
        raise AssertionError

    async def _send(self, port: int, request: web.Request, path: str, request_id: str, body: bytes) -> Upstream:
        assert self._session is not None
        headers = {"X-Request-Id": request_id, "Content-Type": request.headers.get("Content-Type", "application/json")}
        url = URL.build(scheme="http", host=HOST, port=port, path=path, encoded=True)
        self._in_flight[port] += 1
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as answer:
                return Upstream(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        finally:
            self._in_flight[port] -= 1

    async def _send_again(self, port: int, request: Recorded) -> Reply:
        """Send a replayed request; `OSError` when the connection is refused or breaks."""
        assert self._session is not None
        headers, started = {"Content-Type": "application/json"}, time.perf_counter()
        url = URL.build(scheme="http", host=HOST, port=port, path=request.path, encoded=True)
        self._in_flight[port] += 1
        try:
            async with self._session.post(url, data=request.body, headers=headers, allow_redirects=False) as answer:
                body = b""
                async for part in answer.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > REPLAYED_BYTES:
                        answer.close()
                        body = b""
                        break
                return Reply(status=answer.status, body=body, seconds=time.perf_counter() - started)
        except TimeoutError:
            return Reply(status=None, body=b"", seconds=time.perf_counter() - started)
        except aiohttp.ClientError as error:
            raise ConnectionError(type(error).__name__) from error
        finally:
            self._in_flight[port] -= 1

    async def _replay(self, request: web.Request) -> web.Response:
        _authorise(request, self._control_token)
        try:
            found = self._replayer.ask(Order.from_mapping(parse_object(await request.read())))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return json_answer({"replayed": None if found is None else asdict(found)})

    async def _labels(self, request: web.Request) -> web.Response:
        _authorise(request, self._label_token)
        route = self._route(request)
        if not self._budget.has_some():
            raise web.HTTPTooManyRequests(text="too many labels at once", headers={"Retry-After": "1"})
        body = await request.read()
        labels = _parse_labels(body)
        self._budget.spend(CALL_COST + len(labels))
        told: Counter[str] = Counter(dict.fromkeys(("accepted", "repeated", "late", "unknown", "invalid"), 0))
        refused: list[dict[str, str]] = []
        for request_id, label in labels:
            answer = self._log.label(route.environment, route.model, request_id, label, route.tolerance)
            told[answer] += 1
            if answer != "accepted":
                refused.append({"id": request_id, "answer": answer})
        return json_answer({**told, "refused": refused})

    async def _trace(self, request: web.Request) -> web.Response:
        # Not with the labels' token: who reports labels must not learn which side answered, or labels could be aimed.
        _authorise(request, self._control_token)
        route = self._route(request)
        request_id = request.match_info["id"]
        entry = self._log.find(route.environment, route.model, request_id)
        if entry is None:
            raise web.HTTPNotFound(text=f"no request {request_id!r:.140} is remembered")
        answer = {
            "id": request_id,
            "at": datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds"),
            "environment": entry.key.environment,
            "model": entry.key.model,
            "cohort": entry.key.cohort,
            "arm": entry.key.arm,
            "release": entry.key.release or None,
            "artifact_digest": entry.key.artifact_digest or None,
            "outcome": entry.outcome,
            "seconds": entry.seconds,
            "predicted": entry.predicted,
            "correct": entry.correct,
        }
        return json_answer(answer)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _reload(self, request: web.Request) -> web.Response:
        _authorise(request, self._control_token)
        try:
            self.reload()
        except (OSError, ValueError) as error:
            raise web.HTTPConflict(text=f"the former configuration stays in force: {error}") from error
        return await self._state(request)

    async def _state(self, request: web.Request) -> web.Response:
        _authorise(request, self._control_token)
        routes = [
            {
                "environment": route.environment,
                "model": route.model,
                "cohort": route.cohort,
                "weight_percent": route.weight_percent,
                "ports": {backend.arm: backend.port for backend in route.backends},
            }
            for route in self._configuration.routes.values()
        ]
        in_flight = {str(port): count for port, count in self._in_flight.items() if count}
        return json_answer({"revision": self._configuration.revision, "routes": routes, "in_flight": in_flight})

    def _route(self, request: web.Request) -> Route:
        key = (request.match_info["environment"], request.match_info["model"])
        route = self._configuration.routes.get(key)
        if route is None:
            raise web.HTTPNotFound(text=f"no model {key[1]!r:.80} is served in environment {key[0]!r:.80}")
        return route


def _request_id(request: web.Request) -> str:
    """Return the client's id when it is a plain one; else a new one, which the answer tells."""
    given = request.headers.get("X-Request-Id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _slices(request: web.Request) -> list[str]:
    """Return the slices that the client says the request belongs to; names that no plan could have are left out."""
    told = request.headers.get(SLICES_HEADER, "")
    return [name for one in told.split(",", SLICES_LIMIT)[:SLICES_LIMIT] if _SLICE.fullmatch(name := one.strip())]


def _judge(route: Route, path: str, upstream: Upstream) -> tuple[str, list[Prediction] | None]:
    """Return a request's outcome, and the predictions that a label can be compared with."""
    if upstream.status >= 400:
        return ("refused" if upstream.status < 500 else "failed"), None
    return "ok", predictions(upstream.body, path, regression=route.tolerance is not None)


def _error(status: int, message: str) -> Upstream:
    body = json_answer({"error": message}).body
    assert isinstance(body, bytes)
    return Upstream(status=status, body=body, content_type="application/json")


def _authorise(request: web.Request, token: str) -> None:
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode()):
        raise web.HTTPUnauthorized(text="a bearer token is needed")


def _read_token(file: Path) -> str:
    """Return a token; `ValueError` for one that could be guessed: an empty one would open everything."""
    token = file.read_text().strip()
    if len(token) < SHORTEST_TOKEN:
        raise ValueError(f"the token in {file.name} has less than {SHORTEST_TOKEN} characters")
    return token


def _parse_labels(body: bytes) -> list[tuple[str, list[Prediction]]]:
    """Read `{"labels": [{"id": …, "label": …}, …]}`; one bad entry refuses the call before anything is taken."""
    try:
        entries = parse_object(body).get("labels")
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    if not isinstance(entries, list) or len(entries) > LABELS_LIMIT:
        raise web.HTTPBadRequest(text=f'"labels" must be a list of at most {LABELS_LIMIT} entries')
    labels = []
    for index, entry in enumerate(entries):
        label = parse_label(entry.get("label")) if isinstance(entry, dict) else None
        if label is None or not isinstance(entry.get("id"), str):
            raise web.HTTPBadRequest(text=f'labels[{index}] must be an object with "id" (text) and "label"')
        labels.append((entry["id"], label))
    return labels


def main(argv: Sequence[str] | None = None) -> int:
    """Route until told to end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mlgitops.adapters.serving.router", description="Split traffic.")
    parser.add_argument("--config", required=True, type=Path, help="configuration, written by the controller")
    parser.add_argument("--served-dir", required=True, type=Path, help="folder for the log of served requests")
    parser.add_argument("--replays-dir", required=True, type=Path, help="folder for what replays found")
    parser.add_argument("--label-token-file", required=True, type=Path, help="file with the token for labels")
    parser.add_argument("--control-token-file", required=True, type=Path, help="file with the controller's token")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 for a free one")
    parser.add_argument("--ready-file", type=Path, help="file to write when the router answers")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input closes")
    options = parser.parse_args(argv)
    if options.exit_with_parent:
        process.end_with_parent()
    try:
        log = ServedLog(options.served_dir)
        router = Router(
            options.config,
            log,
            options.replays_dir,
            label_token=_read_token(options.label_token_file),
            control_token=_read_token(options.control_token_file),
        )
        bound = process.listen(options.port)
    except (OSError, ValueError) as error:
        write_ready(options.ready_file, ready=False, reason=str(error), code=1)
        print(f"refused: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the process's log
        return 1
    process.serve(
        router.application(),
        bound,
        lambda port: write_ready(options.ready_file, ready=True, port=port, pid=os.getpid()),
    )
    log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
