"""The controller: makes what serves equal to the InferenceServices and HTTPRoutes that git holds.

It behaves as KServe does in Standard mode: a changed InferenceService is a rolling update, in which the old process
answers until the new one is ready; one that cannot be served leaves the old one answering and says why. Every process
is a child of the engine and ends with it, however it ends; what is left of an engine that was killed is found again by
process id and start time, and ended, since servers hold no state.

Files below `home`: `observation.json` (what serves, for other processes), `router.json` (the address), `label-token`
and `control-token`, `router-config.json`, `served/` (the router's log), `logs/`, `processes.json`, `lock`.
"""

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final

import filelock

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving import layout
from mlgitops.adapters.serving.children import Child, kill_recorded, record
from mlgitops.adapters.serving.objects import (
    Object,
    Service,
    Split,
    name_of,
    parse_route,
    parse_service,
    route_model,
)
from mlgitops.adapters.serving.replacement import Replacement, Starter
from mlgitops.adapters.serving.router_client import RouterProcess
from mlgitops.adapters.serving.routing import NO_COHORT, Backend, Configuration, Route
from mlgitops.core.errors import Conflict, InvalidInput
from mlgitops.core.manifest.fields import CANARY_SUFFIX

DRAIN_SECONDS: Final = 30.0
"""How long a replaced server may go on with the requests it has."""


class _Environment:
    """What git holds for one environment, as last applied."""

    def __init__(self) -> None:
        self.revision = ""
        self.splits: dict[str, Split] = {}
        """Route by model: the last one that was not refused."""
        self.refused: dict[str, str] = {}
        """Why an object is refused, by kind and name."""
        self.services: dict[str, Replacement] = {}
        """By InferenceService."""


class ServingController:
    """Runs one server per InferenceService, and the router in front of them."""

    def __init__(
        self,
        home: Path,
        resolve: Callable[[str], Path],
        *,
        router_port: int = 0,
        loader: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Take over `home`; nothing is started before the first `tick`.

        Args:
            home: Folder of this controller alone.
            resolve: From a storageUri to the local folder with its bytes; may raise MlgitopsError.
            router_port: Loopback port of the router; 0 keeps the one used before, or takes a free one.
            loader: `MODULE:FUNCTION` for the model servers; None for SavedModels.
            variables: Environment variables that every server gets beside its own few.

        Raises:
            Conflict: Another engine runs on this home.
        """
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._own = filelock.FileLock(home / layout.LOCK, timeout=0, thread_local=False)
        try:
            self._own.acquire()
        except filelock.Timeout as error:
            raise Conflict(f"serving in {home}", "no other engine", "one that runs") from error
        kill_recorded(home / layout.PROCESSES)
        for name in (layout.LABEL_TOKEN, layout.CONTROL_TOKEN):
            if not (home / name).exists():
                write_atomically(home / name, secrets.token_urlsafe(32).encode(), mode=0o600)
        self._starter = Starter(home, resolve, loader=loader, variables=variables or {})
        self._router = RouterProcess(home, port=router_port, variables=self._starter.variables({}))
        self._environments: dict[str, _Environment] = {}
        self._draining: list[tuple[Child, int | None, float]] = []
        """Child, its port, and when its time is over (monotonic)."""
        self._written: tuple[bytes | None, tuple[int, ...]] = (None, ())
        self.changes = 0
        """Grows whenever something is served otherwise than before; who looks need not look before it does."""
        self._guard = threading.RLock()

    @property
    def router_port(self) -> int | None:
        """Where the router answers; None while it does not."""
        return self._router.port

    def apply(self, environment: str, revision: str, objects: Sequence[Object]) -> None:
        """Take what git holds for one environment now; what is not among `objects` is removed.

        A refused object leaves the one before it in force. Nothing is started or stopped before the next `tick`.

        Args:
            environment: Environment that the objects belong to.
            revision: Commit they come from.
            objects: All of its InferenceServices and HTTPRoutes; others are left alone.
        """
        with self._guard:
            state = self._environments.setdefault(environment, _Environment())
            state.revision, state.refused = revision, {}
            services = [value for value in objects if value.get("kind") == "InferenceService"]
            routes = [value for value in objects if value.get("kind") == "HTTPRoute"]
            self._apply_services(environment, state, services)
            splits = {}
            for value in routes:
                model = route_model(value)
                try:
                    splits[model] = parse_route(value)
                except InvalidInput as error:
                    state.refused[f"HTTPRoute/{model}"] = str(error)
                    if model in state.splits:
                        splits[model] = state.splits[model]
            state.splits = splits

    def _apply_services(self, environment: str, state: _Environment, objects: Sequence[Object]) -> None:
        names = set()
        for value in objects:
            name = name_of(value)
            names.add(name)
            service: Service | None = None
            try:
                service = parse_service(value)
            except InvalidInput as error:
                state.refused[f"InferenceService/{name}"] = str(error)
            replacement = state.services.setdefault(name, Replacement(environment, name, self._starter))
            if service is not None:
                replacement.want(service)
        for name, replacement in state.services.items():
            if name not in names:
                replacement.remove()

    def tick(self) -> None:
        """Move everything one step towards what was applied; never waits for a model. Call it a few times a second."""
        with self._guard:
            self._router.tick()
            for state in self._environments.values():
                for replacement in state.services.values():
                    replacement.tick()
            self._router.put(self._configuration())
            self._retire()
            self._end_drained()
            self._write()

    def close(self) -> None:
        """End every process, the router first so that it finishes what it has, and give up the home."""
        with self._guard:
            if not self._own.is_locked:
                return
            self._router.close(DRAIN_SECONDS)
            replacements = [one for state in self._environments.values() for one in state.services.values()]
            children = [child for one in replacements for child in one.children()]
            children += [child for child, _, _ in self._draining]
            for child in children:
                child.end(0)
            for child in children:
                child.kill()
            self._draining = []
            self._starter.checks.shutdown(wait=False, cancel_futures=True)
            (self._home / layout.OBSERVATION).unlink(missing_ok=True)
            record(self._home / layout.PROCESSES, ())
            self._own.release()

    def observation(self) -> Mapping[str, Any]:
        """Return what serves now, as `observation.json` says it."""
        with self._guard:
            return {
                environment: {
                    "revision": state.revision,
                    "refused": dict(state.refused),
                    "models": {model: self._observe(environment, state, model) for model in _models(state)},
                }
                for environment, state in self._environments.items()
            }

    def _configuration(self) -> Configuration:
        routes = {}
        for environment, state in self._environments.items():
            for model in _models(state):
                split = state.splits.get(model)
                weights = {"baseline": 1} if split is None else split.weights
                routes[environment, model] = Route(
                    environment=environment,
                    model=model,
                    cohort=split.cohort if split else NO_COHORT,
                    backends=tuple(_backend(state, model, arm, weight) for arm, weight in sorted(weights.items())),
                    routed=split is not None,
                    tolerance=split.tolerance if split else None,
                    record=split.record if split else 0,
                )
        return Configuration(routes=routes)

    def _retire(self) -> None:
        """Take replaced servers out, once the router is known to send them nothing."""
        if not self._router.in_force(self._configuration()):
            return
        for state in self._environments.values():
            for name, replacement in list(state.services.items()):
                for child, port in replacement.take_retired():
                    self._draining.append((child, port, monotonic() + DRAIN_SECONDS))
                if replacement.gone:
                    del state.services[name]

    def _end_drained(self) -> None:
        busy = self._router.busy_ports() if self._draining else frozenset()
        remaining = []
        for child, port, deadline in self._draining:
            if port not in busy or monotonic() > deadline:
                child.end(5)
            if not child.reap():
                remaining.append((child, port, deadline))
        self._draining = remaining

    def _observe(self, environment: str, state: _Environment, model: str) -> dict[str, Any]:
        split = state.splits.get(model)
        observed: dict[str, Any] = {"message": state.refused.get(f"HTTPRoute/{model}", "")}
        for arm, name in (("baseline", model), ("canary", model + CANARY_SUFFIX)):
            replacement = state.services.get(name)
            weight = split.weights.get(arm, 0) if split else 0
            if replacement is not None:
                refused = state.refused.get(f"InferenceService/{name}", "")
                port = replacement.current.port if replacement.current else None
                in_force = self._router.sends_to(environment, model, arm, port)
                observed[arm] = replacement.observe(refused, in_force=in_force)
            elif weight:
                message = f"the route gives it weight {weight}, and there is no InferenceService {name}"
                observed[arm] = {"ready": False, "serving": False, "message": message, "port": None}
            else:
                observed[arm] = None
        return observed

    def _write(self) -> None:
        """Write the state for other processes, and the processes for a later engine, where they changed."""
        replacements = [one for state in self._environments.values() for one in state.services.values()]
        children = [child for one in replacements for child in one.children()]
        children += [child for child, _, _ in self._draining] + self._router.children()
        value = {"router_port": self._router.port, "engine_pid": os.getpid(), "environments": self.observation()}
        data, pids = json.dumps(value, sort_keys=True).encode(), tuple(child.pid for child in children)
        if pids != self._written[1]:
            record(self._home / layout.PROCESSES, children)
        if data != self._written[0]:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            write_atomically(self._home / layout.OBSERVATION, json.dumps({**value, "at": at}, indent=1).encode())
            self.changes += 1
        self._written = (data, pids)


def _models(state: _Environment) -> list[str]:
    return sorted({name.removesuffix(CANARY_SUFFIX) for name in state.services} | set(state.splits))


def _backend(state: _Environment, model: str, arm: str, weight: int) -> Backend:
    name = model + (CANARY_SUFFIX if arm == "canary" else "")
    replacement = state.services.get(name)
    if replacement is None or replacement.removed:
        message = f"the route names a service that is not there: {name}"
        return Backend(
            arm=arm, weight=weight, port=None, release="", artifact_digest="", absent_status=500, message=message
        )
    current = replacement.current
    if current is None or current.port is None:
        release, message = replacement.wanted_release, f"{name} is not ready"
        return Backend(arm=arm, weight=weight, port=None, release=release, artifact_digest="", message=message)
    return Backend(
        arm=arm,
        weight=weight,
        port=current.port,
        release=current.service.release,
        artifact_digest=current.artifact_digest,
    )
