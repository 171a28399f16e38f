"""Metrics agree with an independent implementation, and refuse what they cannot measure."""

import math

import numpy as np
import pytest
from sklearn import metrics as reference

from mlgitops.core.errors import InvalidInput
from mlgitops.core.evaluation import statistics


def scores(seed, examples=200, classes=5):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, examples)
    logits = generator.normal(size=(examples, classes)) + 1.5 * np.eye(classes)[labels]
    return labels, logits


def values(found):
    return {one.name: one.estimate() for one in found}


@pytest.mark.parametrize("seed", range(3))
def test_classification_agrees_with_scikit_learn(seed) -> None:
    """Accuracy, F1, log loss and recall are what scikit-learn computes from the same answers."""
    labels, logits = scores(seed)
    answers = statistics.read_scores(logits.astype(np.float32))
    found = values(statistics.classification(labels, answers))
    assert answers.scores == "logits"
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(labels, answers.classes))
    assert found["macro_f1"] == pytest.approx(
        reference.f1_score(labels, answers.classes, average="macro", labels=np.unique(labels), zero_division=0)
    )
    assert found["log_loss"] == pytest.approx(reference.log_loss(labels, answers.probabilities, labels=range(5)))
    truth = np.eye(5)[labels]
    assert found["brier"] == pytest.approx(float(((answers.probabilities - truth) ** 2).sum(axis=1).mean()))
    for one, recall in enumerate(reference.recall_score(labels, answers.classes, average=None)):
        assert found[f"recall:{one}"] == pytest.approx(recall)


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_regression_agrees_with_scikit_learn(shape) -> None:
    """MAE, RMSE and R² are what scikit-learn computes, also far from zero and for several targets."""
    generator = np.random.default_rng(1)
    labels = 1e6 + generator.normal(size=(150, *shape))
    answers = labels + 0.3 * generator.normal(size=labels.shape) + 0.1
    found = values(statistics.regression(labels, answers))
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(labels, answers))
    assert found["rmse"] == pytest.approx(math.sqrt(reference.mean_squared_error(labels, answers)))
    assert found["r2"] == pytest.approx(reference.r2_score(labels, answers, multioutput="variance_weighted"), rel=1e-6)
    assert found["bias"] == pytest.approx(float((answers - labels).mean()))


def test_calibration_error_is_the_weighted_gap_of_its_bins() -> None:
    """Ten answers at 80 % of which five are right are off by 30 points."""
    labels = np.array([0] * 5 + [1] * 5)
    answers = statistics.read_scores(np.tile([[0.8, 0.2]], (10, 1)))
    found = values(statistics.classification(labels, answers))
    assert found["calibration_error"] == pytest.approx(0.3)
    (row,) = statistics.calibration_bins(labels, answers)
    assert row == {"lower": 0.8, "upper": 0.9, "examples": 10, "confidence": pytest.approx(0.8), "accuracy": 0.5}


@pytest.mark.parametrize(
    ("output", "kind", "classes"),
    [
        (np.array([[0.2, 0.8], [0.9, 0.1]], dtype=np.float32), "probabilities", [1, 0]),
        (np.array([[-2.0, 3.0], [5.0, 1.0]]), "logits", [1, 0]),
        (np.array([[0.7], [0.2]]), "probabilities", [1, 0]),
        (np.array([4.0, -3.0]), "logits", [1, 0]),
        (np.array([1, 0]), "classes", [1, 0]),
    ],
)
def test_each_form_of_scores_is_told_apart(output, kind: str, classes) -> None:
    """Probabilities, logits, a single score and bare classes are each read as what they are."""
    found = statistics.read_scores(output)
    assert found.scores == kind
    assert found.classes.tolist() == classes
    if found.probabilities is not None:
        assert np.allclose(found.probabilities.sum(axis=1), 1)


def test_sure_mistakes_cost_a_finite_loss() -> None:
    """A probability of exactly 0 for the right class does not make the loss infinite."""
    found = values(statistics.classification(np.array([1]), statistics.read_scores(np.array([[1.0, 0.0]]))))
    assert found["log_loss"] == pytest.approx(-math.log(1e-7))


@pytest.mark.parametrize("labels", [[[0, 1], [1, 0]], [1, 0], [[1], [0]], [1.0, 0.0]])
def test_labels_may_be_classes_or_rows_with_one(labels) -> None:
    """One-hot rows, whole numbers and whole floats name the same classes."""
    assert statistics.read_labels(np.array(labels)).tolist() == [1, 0]


@pytest.mark.parametrize("labels", [[0.5, 1.0], [-1, 0], [[0.2, 0.8], [0.5, 0.5]]])
def test_labels_that_are_no_classes_are_refused(labels) -> None:
    """Fractions and negative numbers are no classes."""
    with pytest.raises(InvalidInput):
        statistics.read_labels(np.array(labels))


def test_label_beyond_the_models_classes_is_refused() -> None:
    """A model with fewer outputs than the labels need cannot be measured, and the reason says so."""
    with pytest.raises(InvalidInput, match=r"label 3.*2 classes"):
        statistics.classification(np.array([3]), statistics.read_scores(np.array([[0.5, 0.5]])))


def test_constant_labels_leave_r2_undefined() -> None:
    """R² of labels without variance is not a number, not a division error or a perfect score."""
    found = values(statistics.regression(np.ones(5), np.ones(5)))
    assert math.isnan(found["r2"])


def test_confusion_counts_every_example_once() -> None:
    """Rows are right classes, columns given ones."""
    answers = statistics.read_scores(np.array([0, 1, 1, 2]))
    assert statistics.confusion(np.array([0, 0, 1, 2]), answers) == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
