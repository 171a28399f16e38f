"""The `Serving` port on the embedded servers, from any process of this machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlgitops.adapters.loopback import HOST, Answer, call
from mlgitops.adapters.serving import layout
from mlgitops.adapters.serving.label_files import Label
from mlgitops.adapters.serving.replay_order import Order, read_replayed
from mlgitops.core.errors import Denied, NotFound, Unavailable
from mlgitops.ports.serving import Arm, Replayed, ReplayRequest, ServiceObservation, ServingObservation

SERVICE = "embedded serving"


class EmbeddedServing:
    """Reads what the controller wrote, and asks the router what it really does."""

    def __init__(self, home: Path, resolve: Callable[[str], Path] | None = None) -> None:
        """Look at the serving home of an engine that runs, or will.

        Args:
            home: Its folder.
            resolve: From a URI of the store to a local path; for replays of evaluation sets.
        """
        self._home, self._resolve = home, resolve

    def observe(self, environment: str, model: str) -> ServingObservation:
        """Look at what serves; `Unavailable` when the engine does not run."""
        observed = self._model(environment, model)
        route = self._route(environment, model)
        return ServingObservation(
            baseline=_service(observed.get("baseline"), observed.get("message", "")),
            canary=_service(observed.get("canary"), observed.get("message", "")),
            weight_percent=route.get("weight_percent"),
            cohort=route.get("cohort"),
        )

    def predict(self, environment: str, model: str, arm: Arm, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one V1 prediction to one side, past the router, and return its answer.

        Raises:
            NotFound: There is no such side.
            Denied: The server refused the request, in its words.
            Unavailable: The side does not answer, or its model failed.
        """
        side = self._model(environment, model).get(arm.value)
        if side is None:
            raise NotFound(f"{arm.value} in {environment}", model)
        if side.get("port") is None:
            raise Unavailable(f"{arm.value} of {model}", str(side.get("message", "")))
        path = f"/v1/models/{quote(model)}:predict"
        data = json.dumps(body).encode()
        answer = call(side["port"], "POST", path, service=f"{arm.value} of {model}", body=data, timeout_seconds=35)
        if answer.status >= 500:
            raise Unavailable(f"{arm.value} of {model}", _error(answer))
        if answer.status >= 400:
            raise Denied("predicting with", model, _error(answer))
        return _json(answer)

    def replay(self, request: ReplayRequest) -> Replayed | None:
        """Let the router replay requests to both sides; how it went, None while it goes on.

        Raises:
            Unavailable: The engine does not run.
            NotFound: The evaluation set is not where its URI says.
        """
        order = self._order(request)
        body, token = json.dumps(asdict(order)).encode(), self._token(layout.CONTROL_TOKEN)
        answer = call(self._router_port(), "POST", "/-/replay", service=SERVICE, token=token, body=body)
        if answer.status != 200:
            raise Unavailable(SERVICE, _error(answer))
        found = _json(answer)["replayed"]
        return None if found is None else read_replayed(found)

    def _order(self, request: ReplayRequest) -> Order:
        shadow, specification = request.shadow, request.specification
        regression = specification.get("task") == "regression"
        evaluation = shadow.requests == "evaluation" and self._resolve is not None
        return Order(
            key=request.key,
            environment=request.environment,
            model=request.model,
            digests={"baseline": request.baseline_digest, "canary": request.canary_digest},
            source=shadow.requests,
            count=shadow.count,
            minimum=shadow.minimum,
            per_second=shadow.per_second,
            regression=regression,
            tolerance=specification.get("labelTolerance") if regression else None,
            file=str(self._resolve(request.data_uri)) if evaluation and self._resolve else "",
            specification={name: specification[name] for name in ("inputs", "labels") if name in specification},
        )

    def trace(self, environment: str, model: str, request_id: str) -> Mapping[str, Any]:
        """Return what answered a request: release, cohort, arm, artifact_digest, at, outcome, predicted, correct.

        Raises:
            NotFound: No such request is remembered.
            Unavailable: The engine does not run.
        """
        path = f"/{quote(environment, safe='')}/{quote(model, safe='')}/requests/{quote(request_id, safe='')}"
        answer = call(self._router_port(), "GET", path, service=SERVICE, token=self._token(layout.CONTROL_TOKEN))
        if answer.status == 404:
            raise NotFound("remembered request", request_id)
        if answer.status != 200:
            raise Unavailable(SERVICE, _error(answer))
        return _json(answer)

    def address(self) -> str:
        """Return the router's address, like `http://127.0.0.1:8080`; `Unavailable` when the engine does not run."""
        return f"http://{HOST}:{self._router_port()}"

    def label_token(self) -> str:
        """Return the bearer token of the label endpoint; `Unavailable` before the engine ran for the first time."""
        return self._token(layout.LABEL_TOKEN)

    def report(self, environment: str, model: str, labels: Sequence[Label]) -> Mapping[str, str] | None:
        """Report labels, at most 1,000, and return what became of those that were not accepted, by request.

        None where too many labels come at once, so that none was taken.

        Raises:
            NotFound: No such model is served there.
            Unavailable: The engine does not run, or takes no labels now; who asks again loses and doubles none.
        """
        path = f"/{quote(environment, safe='')}/{quote(model, safe='')}/labels"
        body = json.dumps({"labels": [{"id": one.id, "label": list(one.values)} for one in labels]}).encode()
        answer = call(
            self._router_port(), "POST", path, service=SERVICE, body=body, token=self.label_token(), timeout_seconds=10
        )
        if answer.status == 404:
            raise NotFound(f"model served in {environment}", model)
        if answer.status == 429:
            return None
        if answer.status != 200:
            raise Unavailable(SERVICE, _error(answer), retry_after_seconds=1)
        try:
            return {str(one["id"]): str(one["answer"]) for one in _json(answer)["refused"]}
        except (KeyError, TypeError) as error:
            raise Unavailable(SERVICE, "the answer is not one about labels") from error

    def _token(self, name: str) -> str:
        try:
            return (self._home / name).read_text().strip()
        except OSError as error:
            raise Unavailable(SERVICE, "the engine has not run here") from error

    def _observation(self) -> Mapping[str, Any]:
        try:
            return dict(json.loads((self._home / layout.OBSERVATION).read_bytes()))
        except FileNotFoundError as error:
            raise Unavailable(SERVICE, "the engine does not run", retry_after_seconds=5) from error
        except (OSError, ValueError) as error:
            raise Unavailable(SERVICE, str(error)) from error

    def _router_port(self) -> int:
        port = self._observation().get("router_port")
        if port is None:
            raise Unavailable(SERVICE, "the router is starting", retry_after_seconds=1)
        return int(port)

    def _model(self, environment: str, model: str) -> Mapping[str, Any]:
        models = self._observation().get("environments", {}).get(environment, {}).get("models", {})
        return dict(models.get(model, {}))

    def _route(self, environment: str, model: str) -> Mapping[str, Any]:
        """Return the route that is in force in the router itself."""
        answer = call(self._router_port(), "GET", "/-/state", service=SERVICE, token=self._token(layout.CONTROL_TOKEN))
        if answer.status != 200:
            raise Unavailable(SERVICE, _error(answer))
        for route in _json(answer)["routes"]:
            if (route["environment"], route["model"]) == (environment, model):
                return dict(route)
        return {}


def _service(value: Mapping[str, Any] | None, route_message: str) -> ServiceObservation | None:
    if value is None:
        return None
    messages = [one for one in (value.get("message"), route_message) if one]
    return ServiceObservation(
        ready=bool(value["ready"]),
        serving=bool(value["serving"]),
        storage_uri=value.get("storage_uri"),
        artifact_digest=value.get("artifact_digest"),
        release=value.get("release"),
        message="; ".join(messages),
    )


def _json(answer: Answer) -> Mapping[str, Any]:
    try:
        return dict(json.loads(answer.body))
    except (ValueError, TypeError) as error:
        raise Unavailable(SERVICE, "the answer is not JSON") from error


def _error(answer: Answer) -> str:
    """Return a server's own words, cut."""
    try:
        return str(json.loads(answer.body)["error"])[:500]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}"
