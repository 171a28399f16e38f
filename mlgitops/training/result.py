"""The job's result: the termination message, read by whoever asked for the training."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import InvalidInput, MlgitopsError
from mlgitops.core.manifest.fields import OUTPUT_URI_VARIABLE
from mlgitops.training.artifact import Artifact, artifact_digest
from mlgitops.training.files import to_json
from mlgitops.training.locations import output_path
from mlgitops.training.task import is_chief

TERMINATION_VARIABLE: Final = "MLGITOPS_TERMINATION_LOG"
TERMINATION_LOG: Final = "/dev/termination-log"
LIMIT_BYTES: Final = 4096
"""Kubernetes keeps no more of a termination message."""
FAILED: Final = 1
"""Exit status of a training that failed for good: `ExitCode` restart policies retry from 128 on only."""


def report(
    metrics: Mapping[str, float],
    *,
    history: Sequence[Mapping[str, float]] = (),
    artifact: Artifact | None = None,
) -> Mapping[str, Any] | None:
    """Write the result to the termination message; call it last, on any worker.

    Args:
        metrics: Metrics by name. NaN and infinities become null and are named under `nonFinite`.
        history: One mapping per epoch. It is thinned out, then left out, when the message would be too long;
            `truncated` says so (metadata.json has all of it).
        artifact: What `export` returned; None to look at what is under `MLGITOPS_OUTPUT_URI`.

    Returns:
        What was written; None on workers that are not the chief, which write nothing.

    Raises:
        InvalidInput: No model was exported, or the metrics alone exceed 4,096 bytes.
    """
    if not is_chief():
        return None
    if artifact is None:
        folder = output_path()
        if not any(path.name.isdigit() for path in (folder.iterdir() if folder.is_dir() else ())):
            raise InvalidInput(f"nothing was exported to {folder}: call export before report")
        artifact = Artifact(uri=os.environ[OUTPUT_URI_VARIABLE], digest=str(artifact_digest(folder)), path=folder)
    result: dict[str, Any] = {"metrics": dict(metrics), "artifact": {"uri": artifact.uri, "digest": artifact.digest}}
    if strange := [name for name, value in metrics.items() if not _finite(value)]:
        result["nonFinite"] = strange
    fitted = fit_message(result, history)
    _write(to_json(fitted))
    return fitted


def _finite(value: float) -> bool:
    return abs(float(value)) < float("inf")


def fit_message(result: Mapping[str, Any], history: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
    """Return the result with as much history as 4,096 bytes hold: all of it, evenly thinned out, or none.

    The first and last epochs stay as long as any do.

    Raises:
        InvalidInput: The result is too long even without history.
    """
    whole = {**result, "history": list(history)}
    if len(to_json(whole)) <= LIMIT_BYTES:
        return whole
    kept = len(history) // 2
    while kept >= 2:
        spread = [history[round(index * (len(history) - 1) / (kept - 1))] for index in range(kept)]
        thinned = {**result, "history": spread, "truncated": True}
        if len(to_json(thinned)) <= LIMIT_BYTES:
            return thinned
        kept //= 2
    bare = {**result, "history": [], "truncated": True}
    if len(to_json(bare)) > LIMIT_BYTES:
        raise InvalidInput(f"the result has more than {LIMIT_BYTES} bytes without any history: report fewer metrics")
    return bare


def _write(message: bytes) -> None:
    path = Path(os.environ.get(TERMINATION_VARIABLE) or TERMINATION_LOG)
    try:
        # In place: in a pod the file is a mount of its own, which nothing can be renamed over.
        path.write_bytes(message)
    except OSError as error:
        if TERMINATION_VARIABLE in os.environ or os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise InvalidInput(f"the result cannot be written to {path}: {error.strerror}") from error
        sys.stderr.write(f"no termination message outside a job; the result is {message.decode()}\n")


def report_failure(error: Exception) -> None:
    """Leave the reason of a failed training in the termination message, in at most 4,096 bytes."""
    text = str(error)
    message = to_json({"error": text})
    while len(message) > LIMIT_BYTES:
        text = text[: len(text) // 2]
        message = to_json({"error": text + "…"})
    try:
        _write(message)
    except InvalidInput as second:
        sys.stderr.write(f"Error: {second}\n")


def run(main: Callable[[], object]) -> None:
    """Run a training script's main function; a failure this package names ends it with one clear line.

    The chief leaves the reason in the termination message, and the exit status is 1, which no restart policy but
    `OnFailure` and `Always` retries. Other exceptions keep their traceback.
    """
    try:
        main()
    except MlgitopsError as error:
        sys.stderr.write(f"Error: {error}\n")
        if is_chief():
            report_failure(error)
        sys.exit(FAILED)
