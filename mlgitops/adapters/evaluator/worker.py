"""Evaluates one model; a process of its own, started by the supervisor and by nothing else.

    python -m mlgitops.adapters.evaluator.worker REQUEST.json

It inspects before it loads, starts the model server beside, evaluates candidate and champion on the same examples, asks
the server one real request, and leaves `result.json` beside the request, whole or not at all. The user's own command
comes last, and the result is written when nothing that it started is alive: it cannot write one in its place.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.dataset import EvaluationSet, read_set
from mlgitops.adapters.evaluator.artifact import Inspected, Refused, inspect
from mlgitops.adapters.evaluator.command import run_command
from mlgitops.adapters.evaluator.model import Model, incompatibilities, predictions_digest
from mlgitops.adapters.evaluator.probe import Server, probe
from mlgitops.core.errors import InvalidInput, MlgitopsError
from mlgitops.core.evaluation import statistics
from mlgitops.core.evaluation.intervals import resamples
from mlgitops.core.evaluation.measure import Settings, measure
from mlgitops.core.evaluation.statistics import Statistic

RESULT_FILE: Final = "result.json"
SEED: Final = 20_261_130
BATCH_SIZE: Final = 64
CLASSIFICATION: Final = "classification"


class Evaluated:
    """A model with its answers to the evaluation set."""

    def __init__(self, inspected: Inspected, data: EvaluationSet, specification: Mapping[str, Any]) -> None:
        """Load the model and run it.

        Raises:
            Refused: It cannot answer as it must.
        """
        signature = str(specification.get("signature", "serving_default"))
        self.inspected = inspected
        self.model = Model(inspected.directory, signature, specification.get("output"))
        self.answers = self.model.predict(data.inputs, int(specification.get("batchSize", BATCH_SIZE)))
        self.details: dict[str, Any] = {}
        self.statistics = self._measurable(data, str(specification["task"]))
        self.latency = self.model.latency_milliseconds(data.inputs)

    def _measurable(self, data: EvaluationSet, task: str) -> Sequence[Statistic]:
        labels = statistics.read_labels(data.labels) if task == CLASSIFICATION else data.labels
        try:
            if task != CLASSIFICATION:
                return statistics.regression(labels, self.answers)
            answers = statistics.read_scores(self.answers)
            found = statistics.classification(labels, answers)
        except InvalidInput as error:
            raise Refused(str(error)) from error
        self.details = {
            "scores": answers.scores,
            "calibration": statistics.calibration_bins(labels, answers),
            "confusion": statistics.confusion(labels, answers),
        }
        return found

    def to_mapping(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's part of the report."""
        return {
            **self.inspected.to_mapping(),
            "signature": self.model.to_mapping(),
            "predictionsDigest": predictions_digest(self.answers),
            "latencyMilliseconds": self.latency,
            **self.details,
            **measured,
        }


def evaluate(request: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """Return `report`, `error` and `refused`, as `EvaluationOutcome` has them."""
    specification: Mapping[str, Any] = request["specification"]
    try:
        data = read_set(Path(request["data"]["path"]), specification)
        if specification["task"] == CLASSIFICATION:
            statistics.read_labels(data.labels)
    except MlgitopsError as error:
        return {"report": None, "error": str(error), "refused": []}
    server = Server(request["server"], scratch) if request["server"] else None
    try:
        inspected = inspect(request["candidate"])
        if server:
            server.load(inspected)
        report, refused, answers = _evaluate(request, data, inspected, server)
    except Refused as error:
        return {"report": None, "error": "", "refused": list(error.reasons)}
    except MlgitopsError as error:
        return {"report": None, "error": str(error), "refused": []}
    finally:
        if server:
            server.stop()
    report["selfReported"] = _self_reported(request, data, answers, scratch)
    return {"report": report, "error": "", "refused": refused}


def _evaluate(
    request: Mapping[str, Any], data: EvaluationSet, inspected: Inspected, server: Server | None
) -> tuple[dict[str, Any], list[str], NDArray[Any]]:
    """Return the report, why the model is refused, and the candidate's answers."""
    specification = request["specification"]
    candidate = Evaluated(inspected, data, specification)
    champion, champion_error = _champion(request["champion"], data, specification)
    problems = incompatibilities(candidate.model.inputs, champion.model.inputs) if champion else []
    settings = Settings(confidence=float(specification.get("confidence", 0.95)), seed=SEED)
    measured = measure(candidate.statistics, champion.statistics if champion else None, data.slices, settings)
    refused, probed = list(problems), None
    if server:
        try:
            expected = candidate.model.answer(data.inputs[:1])[0]
            probed = probe(server, data.inputs[0], np.asarray(expected), candidate.model.output)
        except Refused as error:
            refused.extend(error.reasons)
    report = {
        **_head(request, data, settings),
        "candidate": candidate.to_mapping(measured["candidate"]),
        "champion": champion.to_mapping(measured["champion"]) if champion else champion_error,
        "comparison": measured["comparison"],
        "compatibility": {"accepted": not problems, "problems": problems} if champion else None,
        "probe": probed,
    }
    return report, refused, candidate.answers


def _champion(
    request: Mapping[str, Any] | None, data: EvaluationSet, specification: Mapping[str, Any]
) -> tuple[Evaluated | None, dict[str, str] | None]:
    """Evaluate the champion; what is wrong with it is told and is no fault of the candidate."""
    if request is None:
        return None, None
    try:
        return Evaluated(inspect(request), data, specification), None
    except Refused as error:
        return None, {"uri": str(request["uri"]), "error": str(error)}


def _head(request: Mapping[str, Any], data: EvaluationSet, settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "EvaluationReport",
        "key": request["key"],
        "createdAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "task": request["specification"]["task"],
        "data": {"uri": request["data"]["uri"], "digest": str(data.digest), "examples": len(data.labels)},
        "specification": dict(request["specification"]),
        "confidence": settings.confidence,
        "seed": settings.seed,
        "resamples": resamples(len(data.labels)),
    }


def _self_reported(
    request: Mapping[str, Any], data: EvaluationSet, answers: NDArray[Any], scratch: Path
) -> dict[str, Any] | None:
    command = request["specification"].get("command")
    if not command:
        return None
    source = Path(request["source"]) if request["source"] else None
    return run_command(command, source=source, data=data.file, predictions=answers, labels=data.labels, scratch=scratch)


def _plain(value: Any) -> Any:
    """Return what JSON can carry: a number that is not finite becomes null, which fails every gate."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(arguments: Sequence[str]) -> int:
    """Evaluate what the request file asks for."""
    file = Path(arguments[0])
    request: Mapping[str, Any] = json.loads(file.read_bytes())
    result = evaluate(request, Path.cwd())
    write_atomically(file.parent / RESULT_FILE, json.dumps(_plain(result), allow_nan=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
