"""The router as the controller sees it: a process, and the configuration it acknowledged."""

import json
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.loopback import HOST, call
from mlgitops.adapters.serving import layout
from mlgitops.adapters.serving.children import Child
from mlgitops.adapters.serving.routing import Configuration
from mlgitops.core.errors import Unavailable

RESTART_SECONDS: Final = 1.0


class RouterProcess:
    """Keeps the router running on one address, and tells it what to do."""

    def __init__(self, home: Path, *, port: int, variables: Mapping[str, str]) -> None:
        self._home, self._asked_port, self._variables = home, port, variables
        self._last_port = port or _saved_port(home)
        self._child: Child | None = None
        self._retry_at = 0.0
        self.acknowledged: Configuration | None = None
        """What the router said it goes by; None while nothing is known of it."""
        self.port: int | None = None
        """Where it answers; None while it does not."""

    def tick(self) -> None:
        """Start it when it does not run, and see whether it has become ready."""
        if self._child is not None and not self._child.running:
            self._lost(self._child)
        if self._child is None and monotonic() >= self._retry_at:
            self._start()
        if self._child is not None and self.port is None:
            said = self._child.ready()
            if said is not None and said.get("ready"):
                self.port = self._last_port = int(said["port"])
                value = {"host": HOST, "port": self.port}
                write_atomically(self._home / layout.ROUTER, json.dumps(value).encode())

    def put(self, configuration: Configuration) -> None:
        """Put a configuration in force unless it is; when the router cannot be asked now, a later call does it."""
        if self.in_force(configuration):
            return
        file = self._home / layout.ROUTER_CONFIG
        data = configuration.to_bytes()
        if not file.exists() or file.read_bytes() != data:
            write_atomically(file, data)
        if self.port is not None:
            said = self._ask("POST", "/-/reload") or {}
            self.acknowledged = configuration if said.get("revision") == configuration.revision else None

    def in_force(self, configuration: Configuration) -> bool:
        """Say whether the router acknowledged this configuration."""
        return self.port is not None and self.acknowledged == configuration

    def sends_to(self, environment: str, model: str, arm: str, port: int | None) -> bool:
        """Say whether the router is known to send an arm's requests to this port, or none at all to that arm."""
        if self.port is None or self.acknowledged is None:
            return False
        route = self.acknowledged.routes.get((environment, model))
        ports = [backend.port for backend in route.backends if backend.arm == arm] if route else []
        return not ports or ports == [port]

    def busy_ports(self) -> frozenset[int]:
        """Return the ports that requests are under way to; all unknown while it cannot be asked, which is none."""
        said = self._ask("GET", "/-/state") or {}
        return frozenset(int(port) for port in said.get("in_flight", {}))

    def children(self) -> list[Child]:
        """Return its process."""
        return [] if self._child is None else [self._child]

    def close(self, grace_seconds: float) -> None:
        """End it after the requests it has."""
        if self._child is None:
            return
        self._child.end(grace_seconds)
        deadline = monotonic() + grace_seconds + 1
        while not self._child.reap() and monotonic() < deadline:
            sleep(0.02)
        self._child, self.port, self.acknowledged = None, None, None

    def _start(self) -> None:
        if not (self._home / layout.ROUTER_CONFIG).exists():
            write_atomically(self._home / layout.ROUTER_CONFIG, Configuration(routes={}).to_bytes())
        arguments = [
            "mlgitops.adapters.serving.router",
            *("--config", str((self._home / layout.ROUTER_CONFIG).absolute())),
            *("--served-dir", str((self._home / layout.SERVED).absolute())),
            *("--replays-dir", str((self._home / layout.REPLAYS).absolute())),
            *("--label-token-file", str((self._home / layout.LABEL_TOKEN).absolute())),
            *("--control-token-file", str((self._home / layout.CONTROL_TOKEN).absolute())),
            *("--port", str(self._last_port)),
        ]
        folder = self._home / layout.LOGS
        self._child = Child(arguments, folder=folder.absolute(), name="router", variables=self._variables)

    def _lost(self, child: Child) -> None:
        """Forget a router that ended; an address somebody else has taken is given up unless a person chose it."""
        never_ready = self.port is None
        child.reap()
        self._child, self.port, self.acknowledged = None, None, None
        if never_ready:
            self._retry_at = monotonic() + RESTART_SECONDS
            self._last_port = self._asked_port

    def _ask(self, method: str, path: str) -> Mapping[str, Any] | None:
        if self.port is None:
            return None
        token = (self._home / layout.CONTROL_TOKEN).read_text()
        try:
            answer = call(self.port, method, path, service="router", token=token)
            return dict(json.loads(answer.body)) if answer.status == 200 else None
        except (Unavailable, ValueError):
            return None


def _saved_port(home: Path) -> int:
    try:
        return int(json.loads((home / layout.ROUTER).read_bytes())["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
