"""One real request to the server that will serve: it loads the model itself and must answer like it does here."""

import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.evaluator.artifact import Inspected, Refused
from mlgitops.adapters.loopback import HOST
from mlgitops.core.errors import Unavailable

MODEL: Final = "probe"
READY_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 5.0
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How far the served answer may be from the one here; both are float32, perhaps from differently fused kernels."""


class Server:
    """The model server as a process of ours: started while the model is read, it loads what was found good."""

    def __init__(self, command: Sequence[str], scratch: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="probe-", dir=scratch))
        self._ready = self._folder / "ready.json"
        self._order = self._folder / "order.json"
        self._log = (self._folder / "log").open("wb+")
        arguments = {
            "--model": MODEL,
            "--release": MODEL,
            "--order": str(self._order),
            "--port": "0",
            "--ready-file": str(self._ready),
        }
        self._process = subprocess.Popen(
            [*command, "--exit-with-parent", *(part for pair in arguments.items() for part in pair)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=dict(os.environ),
        )

    def load(self, model: Inspected) -> None:
        """Let it load a model, whose operations were read and allowed."""
        told = {"artifact_dir": str(model.path), "artifact_digest": str(model.digest), "version_dir": model.version}
        write_atomically(self._order, json.dumps(told).encode())

    def port(self) -> int:
        """Wait until it answers and return its port.

        Raises:
            Refused: It refuses the model.
            Unavailable: It ends without a reason, or is not ready in time.
        """
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            told = self._told()
            if told.get("ready"):
                return int(told["port"])
            if self._process.poll() is not None:
                self._explain()
            time.sleep(POLL_SECONDS)
        raise Unavailable("the probed model server", f"not ready after {READY_SECONDS:.0f} seconds")

    def _explain(self) -> NoReturn:
        """Raise why the server ended: a reason it gave is the model's fault, an end without one may not be."""
        if reason := self._told().get("reason"):
            raise Refused(f"the model server refuses the model: {reason}")
        raise Unavailable("the probed model server", f"ended with {self._process.returncode}: {self._last_lines()}")

    def _told(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self._ready.read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _last_lines(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().decode(errors="replace").strip().splitlines()[-3:])[-500:]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin
        self._process.stdin.close()
        self._log.close()


def probe(server: Server, example: NDArray[Any], expected: NDArray[Any], output: str) -> dict[str, Any]:
    """Send one V1 request with one example and compare the answer.

    Args:
        server: Started before.
        example: One example of the evaluation set, without a batch axis.
        expected: What the model answers to it here, without a batch axis.
        output: Name of the output that is compared, where the signature has several.

    Returns:
        What the report says of it.

    Raises:
        Refused: The answer has another shape, is not finite, or is another answer.
        Unavailable: The server is not ready in time.
    """
    port = server.port()
    started = time.perf_counter()
    status, body = _post(port, {"instances": [example.tolist()]})
    milliseconds = 1000 * (time.perf_counter() - started)
    if status != http.HTTPStatus.OK:
        raise Refused(f"the served model answers a real request with status {status}: {body[:300]}")
    answer = _prediction(body, output)
    if answer.shape != expected.shape:
        raise Refused(f"the served model answers with shape {list(answer.shape)} instead of {list(expected.shape)}")
    if answer.dtype.kind == "f" and not np.isfinite(answer).all():
        raise Refused("the served model answers a real request with NaN or infinity")
    if not _alike(answer, expected):
        raise Refused("the served model answers a real request otherwise than the same bytes loaded here")
    return {"protocol": "v1", "status": status, "milliseconds": round(milliseconds, 3), "shape": list(answer.shape)}


def _alike(answer: NDArray[Any], expected: NDArray[Any]) -> bool:
    if expected.dtype.kind in "fiub" and answer.dtype.kind in "fiub":
        return bool(np.allclose(answer, expected, rtol=RELATIVE, atol=ABSOLUTE))
    return bool(
        np.array_equal(answer.astype(str), np.char.decode(expected) if expected.dtype.kind == "S" else expected)
    )


def _post(port: int, content: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v1/models/{MODEL}:predict", json.dumps(content), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Refused(f"the served model does not answer a real request: {error}") from error
    finally:
        connection.close()


def _prediction(body: str, output: str) -> NDArray[Any]:
    try:
        predictions = json.loads(body)["predictions"]
        (first,) = predictions
        return np.asarray(first[output] if isinstance(first, dict) else first)
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"the served model's answer holds no prediction for one instance: {body[:200]}") from error
