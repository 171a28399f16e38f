"""A tiny model format for tests, and faults to order: `<int>/linear.json` instead of a SavedModel."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from mlgitops.adapters.files import directory_digest
from mlgitops.adapters.serving.protocol import Arrays, TensorSpec
from mlgitops.core.errors import InvalidInput
from mlgitops.core.names import Digest

LOADER = "tests.contract.serving.linear_model:load"
ROOT = Path(__file__).parents[3]
"""Where `LOADER` is found from: a process that loads with it has this on its PYTHONPATH."""


class LinearModel:
    """Scores = x · weights + bias."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._weights = np.asarray(value["weights"], dtype=np.float32)
        self._bias = np.asarray(value["bias"], dtype=np.float32)
        self._sleep_seconds = value.get("sleep_seconds", 0.0)
        self._fails_above = value.get("fails_above")
        self._nan_above = value.get("nan_above")
        self.inputs = (TensorSpec(name="x", datatype="FP32", shape=(None, self._weights.shape[0])),)
        self.outputs = (TensorSpec(name="scores", datatype="FP32", shape=(None, self._weights.shape[1])),)

    def predict(self, arrays: Arrays) -> Arrays:
        x = arrays["x"]
        if self._sleep_seconds:
            time.sleep(self._sleep_seconds)
        if self._fails_above is not None and x.max() > self._fails_above:
            raise RuntimeError("ordered to fail")
        scores = x @ self._weights + self._bias
        if self._nan_above is not None and x.max() > self._nan_above:
            scores[:] = np.nan
        return {"scores": scores}


def load(artifact: Path, version: int | None) -> tuple[LinearModel, str]:
    name = str(version or 1)
    file = artifact / name / "linear.json"
    if not file.is_file():
        raise InvalidInput(f"{artifact} holds no {name}/linear.json")
    value = json.loads(file.read_text())
    time.sleep(value.get("load_seconds", 0.0))
    return LinearModel(value), name


def write_model(folder: Path, *, favours: int = 0, classes: int = 3, **faults: float) -> Digest:
    """Write a model of two inputs that always answers the class `favours`; return its digest."""
    value = {"weights": [[0.0] * classes] * 2, "bias": [float(index == favours) for index in range(classes)], **faults}
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "linear.json").write_text(json.dumps(value))
    return directory_digest(folder)
