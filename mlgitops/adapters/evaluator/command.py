"""A user's own metric command: possible, bounded like everything here, and marked as self-reported."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.evaluator.processes import adopt_orphans, bound_to_parent, descendants, kill_descendants

PREDICTIONS_VARIABLE: Final = "MLGITOPS_PREDICTIONS"
"""An `.npz` file with `predictions` and `labels`, in the order of the evaluation set."""
DATA_VARIABLE: Final = "MLGITOPS_EVALUATION_DATA"
METRICS_LIMIT: Final = 100
OUTPUT_LIMIT_BYTES: Final = 1 << 20


def run_command(
    command: Sequence[str],
    *,
    source: Path | None,
    data: Path,
    predictions: NDArray[Any],
    labels: NDArray[Any],
    scratch: Path,
) -> dict[str, Any]:
    """Run the command and return what it reports.

    It runs in a copy of `source` and writes its metrics to standard output: the last line is a JSON object from name
    to number. Nothing that it started is alive when this returns, so that nothing of it can touch what is written next.

    Args:
        command: Program and arguments; `python` is this interpreter.
        source: Folder with the model repository's files; None for an empty one.
        data: The evaluation set.
        predictions: The candidate's answers.
        labels: The right answers.
        scratch: A folder to work in.

    Returns:
        `selfReported: true`, the command, `metrics`, and `error` (None when it went well).
    """
    folder, file = scratch / "source", scratch / "predictions.npz"
    if source is not None:
        shutil.copytree(source, folder, symlinks=True)
    folder.mkdir(exist_ok=True)
    np.savez(file, predictions=predictions, labels=labels)
    program = sys.executable if command[0] in {"python", "python3"} else command[0]
    environment = {**os.environ, PREDICTIONS_VARIABLE: str(file), DATA_VARIABLE: str(data)}
    metrics: dict[str, float] = {}
    adopt_orphans()
    before = descendants(os.getpid())
    try:
        done = subprocess.run(
            bound_to_parent([program, *command[1:]]),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
        error = "" if done.returncode == 0 else f"ended with status {done.returncode}"
        metrics = _parse(done.stdout) if not error else {}
    except OSError as problem:
        error = f"cannot be run: {problem.strerror}"
    except ValueError as problem:
        error = str(problem)
    finally:
        kill_descendants(spare=before)
    return {"selfReported": True, "command": list(command), "metrics": metrics, "error": error or None}


def _parse(output: bytes) -> dict[str, float]:
    """Return the metrics on the last line; `ValueError` says what is wrong with them."""
    if len(output) > OUTPUT_LIMIT_BYTES:
        raise ValueError(f"wrote more than {OUTPUT_LIMIT_BYTES} bytes")
    lines = output.decode(errors="replace").strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, Mapping) or len(found) > METRICS_LIMIT:
        raise ValueError("its last line must be a JSON object from metric to number")
    numbers = {str(name): float(one) for name, one in found.items() if isinstance(one, int | float)}
    flawed = sorted(name for name in found if name not in numbers or not math.isfinite(numbers[name]))
    if flawed:
        raise ValueError(f"these are no finite numbers: {', '.join(flawed)}")
    return numbers
