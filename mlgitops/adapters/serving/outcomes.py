"""What a served prediction says, and whether a label that came later agrees with it. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

Prediction = int | float | str
"""A class (integer or text), or a number."""

ROWS_LIMIT: Final = 256
"""Requests with more rows are served, and their predictions are not kept for labels."""


LARGEST_CLASS: Final = 2**63
"""Whole numbers beyond it are no labels: they could not be compared with a number, either."""


def predictions(body: bytes, path: str, *, regression: bool) -> list[Prediction] | None:
    """Return one prediction per row of a V1 or V2 answer; None where the answer says none that can be compared.

    For classification a vector counts as the place of its largest value, a single number between 0 and 1 as the
    second of two classes from 0.5, an integer or a text as the class itself. Of several outputs the first integer or
    text one counts, else the first. For regression a number counts as itself.
    """
    try:
        value = json.loads(body)
        rows = value["predictions"] if path.endswith(":predict") else _rows_v2(value["outputs"])
        if not isinstance(rows, list) or not 0 < len(rows) <= ROWS_LIMIT:
            return None
        return [_prediction(row, regression=regression) for row in rows]
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def parse_label(value: Any) -> list[Prediction] | None:
    """Return a label as one value per row; None when it is no label."""
    values = value if isinstance(value, list) else [value]
    if not 0 < len(values) <= ROWS_LIMIT or not all(isinstance(one, bool | int | float | str) for one in values):
        return None
    if any(isinstance(one, float) and not math.isfinite(one) for one in values):
        return None
    if any(isinstance(one, int) and abs(one) > LARGEST_CLASS for one in values):
        return None
    return [_whole(one) for one in values]


def agrees(served: Sequence[Prediction], label: Sequence[Prediction], tolerance: float | None) -> bool | None:
    """Say whether every row was right; None when the label does not fit the request's rows or kind."""
    if len(served) != len(label):
        return None
    if tolerance is None:
        return all(type(one) is type(other) and one == other for one, other in zip(served, label, strict=True))
    for one, other in zip(served, label, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            return None
        if _apart(one, other, tolerance):
            return False
    return True


def _apart(one: float, other: float, tolerance: float) -> bool:
    try:
        return abs(one - other) > tolerance
    except OverflowError:  # a whole number beyond every float, beside a float
        return True


def _rows_v2(outputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a V2 answer's outputs by row, each row an object of outputs."""
    count = outputs[0]["shape"][0]
    columns = {}
    for output in outputs:
        size = math.prod(output["shape"][1:])
        data = output["data"]
        columns[output["name"]] = [
            data[row] if size == 1 and len(output["shape"]) == 1 else data[row * size : (row + 1) * size]
            for row in range(count)
        ]
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


def _prediction(row: Any, *, regression: bool) -> Prediction:
    if isinstance(row, dict):
        whole = [value for _, value in sorted(row.items()) if isinstance(value, int | str)]
        row = whole[0] if whole and not regression else row[min(row)]
    while isinstance(row, list) and len(row) == 1:
        row = row[0]
    if regression:
        if isinstance(row, bool) or not isinstance(row, int | float):
            raise TypeError
        return row
    if isinstance(row, list):
        if not all(isinstance(one, int | float) for one in row):
            raise TypeError
        return max(range(len(row)), key=row.__getitem__)
    if isinstance(row, float):
        return int(row >= 0.5)
    if isinstance(row, int | str):
        return _whole(row)
    raise TypeError


def _whole(value: Prediction) -> Prediction:
    """Return booleans and whole floats as the integers they stand for."""
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, bool) or value == int(value) else value
