"""What a prediction says, and when a label agrees with it."""

import json
from typing import Any

import pytest

from mlgitops.adapters.serving.outcomes import agrees, parse_label, predictions


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.1, 0.7, 0.2]], [1]),
        ([[0.1, 0.9], [0.6, 0.4]], [1, 0]),
        ([3], [3]),
        ([[3]], [3]),
        (["cat"], ["cat"]),
        ([0.7], [1]),
        ([[0.2]], [0]),
        ([{"probabilities": [0.1, 0.9], "classes": 5}], [5]),
        ([{"b": [0.1, 0.9], "a": [0.8, 0.2]}], [0]),
        ([], None),
        ([None], None),
        ("text", None),
        ([[[1, 2], [3, 4]]], None),
    ],
)
def test_classes_of_v1_answers(rows: Any, expected: Any) -> None:
    """Vectors count as their largest place, integers and texts as themselves, and what says no class counts as none."""
    body = json.dumps({"predictions": rows}).encode()
    assert predictions(body, "/v1/models/m:predict", regression=False) == expected


def test_classes_of_v2_answers() -> None:
    """V2 data is read by its shape, row by row."""
    outputs = [{"name": "p", "shape": [2, 3], "datatype": "FP32", "data": [0.1, 0.2, 0.7, 0.5, 0.3, 0.2]}]
    body = json.dumps({"outputs": outputs}).encode()
    assert predictions(body, "/v2/models/m/infer", regression=False) == [2, 0]
    body = json.dumps({"outputs": [{"name": "c", "shape": [2], "datatype": "INT64", "data": [4, 5]}]}).encode()
    assert predictions(body, "/v2/models/m/infer", regression=False) == [4, 5]


def test_numbers_of_a_regression() -> None:
    """With a tolerance a number counts as itself, and a vector as nothing."""
    body = json.dumps({"predictions": [[2.5], [3]]}).encode()
    assert predictions(body, "/v1/models/m:predict", regression=True) == [2.5, 3]
    assert predictions(b'{"predictions": [[1, 2]]}', "/v1/models/m:predict", regression=True) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"outputs": [{}]}', b'{"predictions": {"a": 1}}'])
def test_answers_of_any_shape_are_survived(body: bytes) -> None:
    """An answer that is none of the protocols gives no prediction and no error."""
    assert predictions(body, "/v1/models/m:predict", regression=False) is None
    assert predictions(body, "/v2/models/m/infer", regression=False) is None


@pytest.mark.parametrize(
    ("served", "label", "tolerance", "expected"),
    [
        ([1], 1, None, True),
        ([1], 1.0, None, True),
        ([1], True, None, True),
        ([1], 2, None, False),
        ([1], "1", None, False),
        (["cat"], "cat", None, True),
        ([1, 2], [1, 2], None, True),
        ([1, 2], [1, 3], None, False),
        ([1, 2], 1, None, None),
        ([1.0], 1.4, 0.5, True),
        ([1.0], 1.6, 0.5, False),
        ([1.0], "1", 0.5, None),
    ],
)
def test_a_label_agrees_when_every_row_does(served: Any, label: Any, tolerance: float | None, expected: Any) -> None:
    """A request is right when all its rows are; a label of other rows or kind fits none."""
    parsed = parse_label(label)
    assert parsed is not None
    assert agrees(served, parsed, tolerance) is expected


@pytest.mark.parametrize("value", [None, {}, [], [None], float("nan"), [float("inf")], [[1]], list(range(257))])
def test_what_is_no_label(value: Any) -> None:
    """Only numbers and texts, one or a list of them, are labels."""
    assert parse_label(value) is None


@pytest.mark.parametrize(("served", "label"), [([10**400], [1.5]), ([1.5], [10**400])])
def test_a_number_beyond_every_float_is_a_wrong_one(served: Any, label: Any) -> None:
    """A whole number that no float can hold is far from every float; it ends no request with a fault of the server."""
    assert agrees(served, label, 0.5) is False
