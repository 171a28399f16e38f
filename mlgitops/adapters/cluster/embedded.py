"""The embedded cluster as everybody else sees it: answers from the files that its engine writes."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.cluster.logs import log_parts, read_log
from mlgitops.adapters.cluster.state import folders, held, instant, newest, read_json
from mlgitops.core.errors import InvalidInput, Unavailable
from mlgitops.core.names import parse_name
from mlgitops.ports.cluster import Applied, JobObservation, JobPhase, LogPart

SERVICE: Final = "embedded cluster"
ENGINE_LOCK: Final = "engine.lock"
SYNC_FILE: Final = "sync"
_NAME_LENGTH: Final = 63


class EmbeddedCluster:
    """The port `Cluster`, for any process of this machine."""

    def __init__(self, home: Path) -> None:
        """Look at the cluster whose engine keeps its files in `home`."""
        self._home = home

    def job(self, environment: str, name: str) -> JobObservation | None:
        """Look at one training job; None when the engine does not know it.

        A job that was pruned keeps its last observation; one that was pruned while it ran is Failed, `Deleted`.

        Raises:
            Unavailable: The job has no outcome yet and no engine runs, so nothing is known about it.
        """
        folder = self._folder(environment, name)
        if folder is None:
            return None
        values = read_json(folder / "status.json") or {"observation": {"phase": JobPhase.PENDING}}
        seen: Mapping[str, Any] = values["observation"]
        phase = JobPhase(seen["phase"])
        if phase not in (JobPhase.SUCCEEDED, JobPhase.FAILED) and not self.running:
            raise Unavailable(SERVICE, "its engine does not run; start it with `mlgitops local up`")
        return JobObservation(
            name=name,
            phase=phase,
            reason=seen.get("reason", ""),
            message=seen.get("message", ""),
            started_at=instant(seen.get("started_at")),
            finished_at=instant(seen.get("finished_at")),
            result=seen.get("result", {}),
            restarts=seen.get("restarts", 0),
        )

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        """Return the logs kept of each pod of a job, by pod name; they outlive the pods."""
        folder = self._folder(environment, name)
        return {} if folder is None else {path.name: read_log(path) for path in folders(folder / "logs")}

    def log_parts(self, environment: str, name: str, after: Mapping[str, int]) -> Mapping[str, Sequence[LogPart]]:
        """Return what the pods of a job wrote since a position of each, by pod name."""
        folder = self._folder(environment, name)
        found = {} if folder is None else {path.name: path for path in folders(folder / "logs")}
        return {pod: tuple(log_parts(path, after.get(pod, 0))) for pod, path in found.items()}

    def applied(self, environment: str) -> Applied:
        """Say which commit of `main` is applied for an environment."""
        values = read_json(self._home / "applied" / f"{parse_name(environment)}.json") or {}
        return Applied(revision=values.get("revision"), error=values.get("error", ""))

    def sync(self) -> None:
        """Ask the engine to look at `main` now; an engine that starts later finds the wish, too."""
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / SYNC_FILE).write_text(f"{time.time_ns()}\n", encoding="utf-8")

    @property
    def running(self) -> bool:
        """Whether an engine runs."""
        return held(self._home / ENGINE_LOCK)

    def _folder(self, environment: str, name: str) -> Path | None:
        try:
            parse_name(name, "job", _NAME_LENGTH)
        except InvalidInput:
            return None
        return newest(self._home / "jobs" / parse_name(environment) / name)
