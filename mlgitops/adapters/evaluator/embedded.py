"""Evaluations as detached processes of this machine, each run at most once."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.evaluator.processes import start_time
from mlgitops.adapters.evaluator.supervisor import LOG_FILE, OUTCOME_FILE, REQUEST_FILE
from mlgitops.core.configuration import fingerprint
from mlgitops.core.errors import InvalidInput, Unavailable
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest

LOCK_FILE: Final = "lock"
PROCESS_FILE: Final = "process.json"
LOCK_SECONDS: Final = 30.0
START_SECONDS: Final = 60.0
STARTS: Final = 2
TIMEOUT_SECONDS: Final = 300
MEMORY_MEGABYTES: Final = 4096
_MODULES: Final = "mlgitops.adapters.evaluator"
_SERVER: Final = "mlgitops.adapters.serving.server"


class EmbeddedEvaluator:
    """Runs evaluations as processes that survive their caller; any process may ask how one went.

    State is in files below `home`, a folder per key: the request, the supervisor's process, the log, the outcome. The
    first request for a key is the one that is evaluated; whoever makes keys puts into them what must differ.
    """

    def __init__(
        self,
        home: Path,
        resolve: Callable[[str], Path],
        *,
        python: str = sys.executable,
        worker: Sequence[str] | None = None,
        server: Sequence[str] | None = None,
        probe: bool = True,
    ) -> None:
        """Remember where things are; nothing is started or written.

        Args:
            home: Folder of this evaluator.
            resolve: From a URI of the store to a local path.
            python: Interpreter that runs supervisor, worker and server; it has TensorFlow.
            worker: Command of the worker, called with the request file; None for this package's.
            server: Command of the model server that is probed; None for this package's.
            probe: Whether the model server is probed at all.
        """
        self._home, self._resolve, self._python = home, resolve, python
        # -P: the folder a worker runs in is writable by what it runs, so it must not be searched for modules.
        module = (python, "-P", "-m")
        self._worker = tuple(worker or (*module, f"{_MODULES}.worker"))
        self._server = tuple(server or (*module, _SERVER)) if probe else None

    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
        """Start the evaluation unless it was started; its outcome when it has ended, None while it runs.

        Raises:
            InvalidInput: The specification has no task, or limits that are no numbers.
            NotFound: The model, the evaluation set or the source is not where its URI says.
            Unavailable: No process could be started, the disk is full, or another one holds this evaluation's lock.
        """
        folder = self.folder(request.key)
        if outcome := _ended(folder):
            return outcome
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / LOCK_FILE, timeout=LOCK_SECONDS):
                return self._locked(folder, request)
        except TimeoutError as error:
            raise Unavailable("the evaluator", f"another process holds {folder / LOCK_FILE}") from error
        except OSError as error:
            raise Unavailable("the evaluator", error.strerror or type(error).__name__) from error

    def folder(self, key: str) -> Path:
        """Return the folder of one evaluation, for its log."""
        return self._home / fingerprint(key)[:32]

    def log(self, key: str) -> str:
        """Return what the evaluation has written so far; empty when nothing."""
        try:
            return (self.folder(key) / LOG_FILE).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _locked(self, folder: Path, request: EvaluationRequest) -> EvaluationOutcome | None:
        process = _process(folder)
        if _alive(process):
            return None
        # The outcome is looked for after the process, so that one that ends in between is not run again.
        if outcome := _read_outcome(folder):
            return outcome
        if process["starts"] >= STARTS:
            lost: dict[str, Any] = {
                "report": None,
                "error": f"the evaluation was ended from outside {STARTS} times",
                "refused": [],
            }
            write_atomically(folder / OUTCOME_FILE, json.dumps(lost).encode())
            return _read_outcome(folder)
        if not (folder / REQUEST_FILE).exists():
            write_atomically(folder / REQUEST_FILE, json.dumps(self._request(request), allow_nan=False).encode())
        self._start(folder, int(process["starts"]) + 1)
        return None

    def _start(self, folder: Path, starts: int) -> None:
        command = [self._python, "-P", "-m", f"{_MODULES}.supervisor", str(folder)]
        try:
            started = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_SECONDS, check=True
            )
            pid = int(started.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise Unavailable("the evaluator", f"its process cannot be started: {error}") from error
        process = {"pid": pid, "startTime": start_time(pid), "starts": starts}
        write_atomically(folder / PROCESS_FILE, json.dumps(process).encode())

    def _request(self, request: EvaluationRequest) -> dict[str, Any]:
        """Return the request as the processes read it, with every URI resolved."""
        specification = dict(request.specification)
        if specification.get("task") not in {"classification", "regression"}:
            raise InvalidInput(f"evaluation.task is {specification.get('task')!r}; classification or regression")
        source, champion = request.source_uri, request.champion_uri
        return {
            "key": request.key,
            "candidate": self._model(request.candidate_uri, request.candidate_digest),
            "champion": self._model(champion, request.champion_digest) if champion else None,
            "data": {"uri": request.data_uri, "path": str(self._resolve(request.data_uri))},
            "source": str(self._resolve(source)) if source else None,
            "specification": specification,
            "timeoutSeconds": _positive(specification, "timeoutSeconds", TIMEOUT_SECONDS),
            "memoryMegabytes": _positive(specification, "memoryMegabytes", MEMORY_MEGABYTES),
            "worker": list(self._worker),
            "server": list(self._server) if self._server else None,
        }

    def _model(self, uri: str, digest: str | None) -> dict[str, str | None]:
        return {"uri": uri, "path": str(self._resolve(uri)), "digest": digest}


def _positive(specification: Mapping[str, Any], name: str, default: int) -> int:
    value = specification.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"evaluation.{name} is {value!r}; it must be a whole number of at least 1")
    return value


def _process(folder: Path) -> dict[str, Any]:
    return _read_json(folder / PROCESS_FILE) or {"starts": 0}


def _alive(process: Mapping[str, Any]) -> bool:
    return "pid" in process and start_time(int(process["pid"])) == process["startTime"]


def _ended(folder: Path) -> EvaluationOutcome | None:
    """Return the outcome once its supervisor has ended: what a user's command writes there is written over before."""
    return None if _alive(_process(folder)) else _read_outcome(folder)


def _read_outcome(folder: Path) -> EvaluationOutcome | None:
    outcome = _read_json(folder / OUTCOME_FILE)
    if outcome is None:
        return None
    return EvaluationOutcome(
        report=outcome["report"], error=str(outcome["error"]), refused=tuple(str(one) for one in outcome["refused"])
    )


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
