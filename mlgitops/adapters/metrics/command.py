"""The `Counts` port on a command of whoever runs mlgitops: any store of counts, by a few lines of their own.

The command comes from the operator's environment, never from a repository: whoever merges there must not run programs
where the credentials are. It gets `environment model rollout` as its last arguments, and prints one JSON object per
line, as `schemas/sample.schema.json` says. It runs with this process's environment without the tool's credentials.
"""

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from jsonschema import Draft202012Validator

from mlgitops.core.errors import Unavailable
from mlgitops.core.redaction import secrets_of
from mlgitops.core.schemas import schema
from mlgitops.ports.metrics import Arm, Sample, SliceCounts

SERVICE: Final = "the metrics command"
SECONDS: Final = 30.0
LARGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024
ERROR_BYTES: Final = 500
_READ: Final = 65_536


class CommandMetrics:
    """Asks a command for the counts of a rollout."""

    def __init__(self, command: Sequence[str], *, seconds: float = SECONDS) -> None:
        """Run `command`, for `seconds` at most."""
        self._command, self._seconds = (*command,), seconds

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first; see the port."""
        lines = self._run(environment, model, str(rollout)).splitlines()
        found = [_sample(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        return tuple(sorted(found, key=lambda one: (one.at, one.cohort, one.arm)))

    def problem(self, environment: str, model: str) -> str:
        """Say that the command tells nothing about what serves now, asked for rollout 0; empty when it does."""
        told = self._run(environment, model, "0")
        return "" if told.strip() else "the metrics command tells nothing about what serves now (rollout 0)"

    def _run(self, *arguments: str) -> bytes:
        secrets = {*secrets_of(os.environ)}
        kept = {name: value for name, value in os.environ.items() if value not in secrets}
        try:
            process = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=kept,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(SERVICE, f"it cannot be started: {error.strerror}") from error
        try:
            told, said = _read(process, monotonic() + self._seconds)
        finally:
            with suppress(ProcessLookupError):  # whatever it started ends with it
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if code != 0:
            raise Unavailable(SERVICE, f"exit code {code}: {said.decode(errors='replace').strip()[-ERROR_BYTES:]}")
        return told


def _read(process: "subprocess.Popen[bytes]", deadline: float) -> tuple[bytes, bytes]:
    """Return what a process wrote to both outputs until it ended.

    Raises:
        Unavailable: It writes too much, or takes too long.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    outputs: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector, process.stdout, process.stderr:
        for number in outputs:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(max(0.0, deadline - monotonic())):
                data = os.read(key.fd, _READ)
                outputs[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
            if monotonic() > deadline:
                raise Unavailable(SERVICE, "it takes too long")
            if sum(map(len, outputs.values())) > LARGEST_ANSWER_BYTES:
                raise Unavailable(SERVICE, f"it prints more than {LARGEST_ANSWER_BYTES} bytes")
        told, said = outputs.values()
        try:
            process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired as error:
            raise Unavailable(SERVICE, "it takes too long") from error
        return bytes(told), bytes(said)


def _sample(number: int, line: bytes) -> Sample:
    try:
        value = json.loads(line)
        problem = next(iter(Draft202012Validator(schema("sample")).iter_errors(value)), None)
        if problem is None:
            return _built(value)
        told = problem.message[:200]
    except (ValueError, RecursionError) as error:
        told = str(error)[:200]
    raise Unavailable(SERVICE, f"line {number} of its output is no sample: {told}")


def _built(value: Mapping[str, Any]) -> Sample:
    at = datetime.fromisoformat(value["at"])
    if at.tzinfo is None:
        raise ValueError(f"{value['at']} has no offset; write it in UTC, like 2026-01-31T09:00:00Z")
    slices = tuple(SliceCounts(name=one["name"], **_counts(one)) for one in value.get("slices", ()))
    place = {"at": at.astimezone(UTC), "cohort": value["cohort"], "arm": Arm(value["arm"])}
    return Sample(**place, **_counts(value), slices=slices)


def _counts(value: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: int(value.get(name, 0)) for name in ("total", "failed", "labelled", "incorrect")}
    return {**numbers, "latency": tuple((float(bound), int(count)) for bound, count in value.get("latency", ()))}
