"""Metrics as functions of sums over examples, so that resampling them is one matrix product.

Names of metrics, as gates use them:

| task | metric | better | is |
|---|---|---|---|
| classification | `accuracy` | higher | share of examples whose highest score is the right class |
| | `macro_f1` | higher | mean of the classes' F1, over the classes that have examples |
| | `log_loss` | lower | mean of −ln p(right class), p at least 1e-7 |
| | `calibration_error` | lower | expected calibration error over ten equal bins of the highest probability |
| | `recall:<class>` | higher | share of a class' examples that are found; up to 50 classes |
| regression | `mae`, `rmse` | lower | mean absolute error; root of the mean squared error |
| | `r2` | higher | 1 − squared error / variance of the labels |
| | `bias` | nearer to zero | mean of prediction − label |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from mlgitops.core.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

Better = Literal["higher", "lower", "zero"]
CALIBRATION_BINS: Final = 10
CLASS_LIMIT: Final = 50
"""Above so many classes the report carries no metric per class."""
SMALLEST_PROBABILITY: Final = 1e-7
"""About the resolution of float32, in which most models answer; keeps one sure mistake from an infinite loss."""
_SUM_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One metric over some examples."""

    name: str
    """As gates use it."""
    better: Better
    """Which way is better."""
    columns: "NDArray[Any]"
    """Shape [examples, k]: what is summed up."""
    value: Callable[["NDArray[Any]", float], "NDArray[Any]"]
    """From sums, shape [..., k], and the number of examples to the metric, shape [...]; NaN where it is undefined."""
    ratio: bool = False
    """Whether it is a share of examples: the first column's sum (of 0 and 1) over the second's."""

    def take(self, examples: "NDArray[Any]") -> "Statistic":
        """Return the same metric over the examples that a boolean mask names."""
        return Statistic(
            name=self.name, better=self.better, columns=self.columns[examples], value=self.value, ratio=self.ratio
        )

    def estimate(self) -> float:
        """Return the metric over all examples; NaN where it is undefined."""
        return float(self.value(self.columns.sum(axis=0), float(len(self.columns))))


@dataclass(frozen=True, kw_only=True)
class Classified:
    """A classifier's answers."""

    classes: "NDArray[Any]"
    """Shape [examples]: the class with the highest score."""
    probabilities: "NDArray[Any] | None"
    """Shape [examples, classes]; None when the model answers with classes alone."""
    scores: Literal["probabilities", "logits", "classes"]
    """What the model answered with."""


def read_scores(output: "NDArray[Any]") -> Classified:
    """Return classes and probabilities from what a model answered.

    Args:
        output: Integers of shape [examples] are classes. Numbers of shape [examples] or [examples, 1] are the second
            class' probability of two, or its logit when any lies outside 0 to 1. Shape [examples, classes]: rows that
            are not negative and sum to 1 are probabilities; else they are logits.

    Raises:
        InvalidInput: Another shape or type.
    """
    import numpy as np

    flat = output[:, 0] if output.ndim == 2 and output.shape[1] == 1 else output
    if flat.ndim == 1 and flat.dtype.kind in "iub":
        return Classified(classes=flat.astype(np.int64), probabilities=None, scores="classes")
    if flat.dtype.kind != "f" or flat.ndim not in {1, 2}:
        raise InvalidInput(f"an output of type {output.dtype} and shape {list(output.shape)} is no classification")
    values = flat.astype(np.float64)
    kind: Literal["probabilities", "logits"]
    if values.ndim == 1:
        kind = "probabilities" if bool(np.all((values >= 0) & (values <= 1))) else "logits"
        second = values if kind == "probabilities" else 1 / (1 + np.exp(-np.clip(values, -700, 700)))
        probabilities = np.stack([1 - second, second], axis=1)
    elif np.all(values >= 0) and np.allclose(values.sum(axis=1), 1, atol=_SUM_TOLERANCE):
        kind, probabilities = "probabilities", values / values.sum(axis=1, keepdims=True)
    else:
        kind, shifted = "logits", np.exp(values - values.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    return Classified(classes=probabilities.argmax(axis=1), probabilities=probabilities, scores=kind)


def read_labels(labels: "NDArray[Any]") -> "NDArray[Any]":
    """Return classes of shape [examples] from integers or from rows with a single 1.

    Raises:
        InvalidInput: Another shape, or numbers that are no classes.
    """
    import numpy as np

    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim == 2 and np.all((flat == 0) | (flat == 1)) and np.all(flat.sum(axis=1) == 1):
        return _classes(flat.argmax(axis=1))
    whole = flat.dtype.kind in "iub" or (flat.dtype.kind == "f" and bool(np.all(flat == np.floor(flat))))
    if flat.ndim != 1 or not whole or bool(np.any(flat < 0)):
        raise InvalidInput("labels of a classification are whole numbers from 0, or rows with a single 1")
    return _classes(flat)


def _classes(values: Any) -> "NDArray[Any]":
    import numpy as np

    return np.asarray(values, dtype=np.int64)


def classification(labels: "NDArray[Any]", answers: Classified) -> tuple[Statistic, ...]:
    """Return the metrics of a classifier.

    Args:
        labels: Right classes, shape [examples], from `read_labels`.
        answers: From `read_scores`.

    Raises:
        InvalidInput: A label is none of the model's classes.
    """
    import numpy as np

    correct = (answers.classes == labels).astype(np.float64)
    found = [
        Statistic(
            name="accuracy",
            better="higher",
            columns=np.stack([correct, np.ones_like(correct)], axis=1),
            value=_ratio,
            ratio=True,
        ),
        _macro_f1(labels, answers.classes),
    ]
    if answers.probabilities is not None:
        if labels.max(initial=0) >= answers.probabilities.shape[1]:
            raise InvalidInput(
                f"the evaluation set has the label {labels.max()}, the model answers with "
                f"{answers.probabilities.shape[1]} classes"
            )
        right = answers.probabilities[np.arange(len(labels)), labels]
        losses = -np.log(np.clip(right, SMALLEST_PROBABILITY, 1))
        found.append(Statistic(name="log_loss", better="lower", columns=losses[:, np.newaxis], value=_mean))
        found.append(_brier(labels, answers.probabilities))
        found.append(_calibration(correct, answers.probabilities.max(axis=1)))
    classes = np.unique(labels)
    if len(classes) <= CLASS_LIMIT:
        found.extend(_recall(int(one), labels, correct) for one in classes)
    return tuple(found)


def regression(labels: "NDArray[Any]", predictions: "NDArray[Any]") -> tuple[Statistic, ...]:
    """Return the metrics of a regression; with several targets, examples × targets count alike.

    Args:
        labels: Shape [examples] or [examples, targets].
        predictions: The same shape, or [examples, 1] for [examples].

    Raises:
        InvalidInput: The shapes differ.
    """
    import numpy as np

    truth = labels.reshape(len(labels), -1).astype(np.float64)
    answers = predictions.reshape(len(predictions), -1).astype(np.float64)
    if truth.shape != answers.shape:
        raise InvalidInput(f"predictions have the shape {list(predictions.shape)}, labels {list(labels.shape)}")
    error = answers - truth
    squared = (error**2).mean(axis=1)
    centred = truth - truth.mean(axis=0)  # keeps the variance exact where labels are far from zero
    return (
        Statistic(name="mae", better="lower", columns=np.abs(error).mean(axis=1)[:, np.newaxis], value=_mean),
        Statistic(name="rmse", better="lower", columns=squared[:, np.newaxis], value=_root_mean),
        Statistic(
            name="r2",
            better="higher",
            columns=np.concatenate([squared[:, np.newaxis], (centred**2).mean(axis=1)[:, np.newaxis], centred], axis=1),
            value=_explained,
        ),
        Statistic(name="bias", better="zero", columns=error.mean(axis=1)[:, np.newaxis], value=_mean),
    )


def _mean(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":
    return _array(sums[..., 0] / examples)


def _root_mean(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":
    import numpy as np

    # A difference of sums, as the jackknife takes it, may be a hair below zero.
    return _array(np.sqrt(np.maximum(sums[..., 0], 0) / examples))


def _ratio(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":  # noqa: ARG001 - one shape for all metrics
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        return _array(sums[..., 0] / sums[..., 1])


def _explained(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":
    import numpy as np

    variance = sums[..., 1] / examples - ((sums[..., 2:] / examples) ** 2).mean(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _array(np.where(variance > 0, 1 - sums[..., 0] / examples / variance, np.nan))


def _array(values: Any) -> "NDArray[Any]":
    import numpy as np

    return np.asarray(values, dtype=np.float64)


def _macro_f1(labels: "NDArray[Any]", answers: "NDArray[Any]") -> Statistic:
    import numpy as np

    classes = np.unique(labels)
    truth = labels[:, np.newaxis] == classes
    given = answers[:, np.newaxis] == classes
    columns = np.concatenate([truth, given, truth & given], axis=1).astype(np.float64)

    def value(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":  # noqa: ARG001 - one shape for all metrics
        true, predicted, both = np.split(sums, 3, axis=-1)
        present = true > 0.5
        each = np.where(present, 2 * both / np.maximum(true + predicted, 1), 0)
        return _array(each.sum(axis=-1) / np.maximum(present.sum(axis=-1), 1))

    return Statistic(name="macro_f1", better="higher", columns=columns, value=value)


def _brier(labels: "NDArray[Any]", probabilities: "NDArray[Any]") -> Statistic:
    """Return the mean squared distance of the probabilities from the truth, over all classes: 0 to 2 (Brier 1950)."""
    import numpy as np

    distance = (probabilities**2).sum(axis=1) - 2 * probabilities[np.arange(len(labels)), labels] + 1
    return Statistic(name="brier", better="lower", columns=distance[:, np.newaxis], value=_mean)


def _calibration(correct: "NDArray[Any]", confidence: "NDArray[Any]") -> Statistic:
    import numpy as np

    columns = np.zeros((len(correct), CALIBRATION_BINS))
    columns[np.arange(len(correct)), _bins(confidence)] = correct - confidence

    def value(sums: "NDArray[Any]", examples: float) -> "NDArray[Any]":
        return _array(np.abs(sums).sum(axis=-1) / examples)

    return Statistic(name="calibration_error", better="lower", columns=columns, value=value)


def _recall(which: int, labels: "NDArray[Any]", correct: "NDArray[Any]") -> Statistic:
    import numpy as np

    own = (labels == which).astype(np.float64)
    columns = np.stack([own * correct, own], axis=1)
    return Statistic(name=f"recall:{which}", better="higher", columns=columns, value=_ratio, ratio=True)


def _bins(confidence: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    return np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)


def calibration_bins(labels: "NDArray[Any]", answers: Classified) -> list[dict[str, float | int]]:
    """Return bounds, examples, mean confidence and accuracy of each bin of the highest probability, if not empty."""
    if answers.probabilities is None:
        return []
    confidence, correct = answers.probabilities.max(axis=1), answers.classes == labels
    bins, found = _bins(confidence), []
    for number in range(CALIBRATION_BINS):
        own = bins == number
        if own.any():
            found.append(
                {
                    "lower": number / CALIBRATION_BINS,
                    "upper": (number + 1) / CALIBRATION_BINS,
                    "examples": int(own.sum()),
                    "confidence": float(confidence[own].mean()),
                    "accuracy": float(correct[own].mean()),
                }
            )
    return found


def confusion(labels: "NDArray[Any]", answers: Classified) -> Sequence[Sequence[int]]:
    """Return how often each class (row) was answered with each class (column); empty above 50 classes."""
    import numpy as np

    size = int(max(labels.max(initial=0), answers.classes.max(initial=0))) + 1
    if size > CLASS_LIMIT:
        return []
    counts = np.bincount(labels * size + answers.classes, minlength=size * size)
    table: Sequence[Sequence[int]] = counts.reshape(size, size).tolist()
    return table
