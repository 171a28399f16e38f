"""Answers of a model that nobody trusts yet: read to a fault in one word, whatever the bytes are."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.adapters.serving.answers import Reply, form, same_answer
from mlgitops.core.analysis.shadow import FAULTS

V1, V2 = "/v1/models/digits:predict", "/v2/models/digits/infer"
DEEP = b"[" * 100_000 + b"]" * 100_000


def reply(body: bytes, status: int | None = 200) -> Reply:
    return Reply(status=status, body=body, seconds=0.01)


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        (b'{"predictions": [[0.1, 0.9]]}', 200, ""),
        (b"", None, "silent"),
        (b'{"error": "the model failed: output scores holds NaN or infinity"}', 500, "not-finite"),
        (b'{"error": "out of memory"}', 500, "failed"),
        (b'{"error": "no"}', 400, "refused"),
        (b"", 302, "refused"),
        (b'{"predictions": [NaN]}', 200, "not-finite"),
        (b'{"predictions": [[-Infinity, 1]]}', 200, "not-finite"),
        (b'{"predictions": [1e999]}', 200, "not-finite"),
        (b'{"predictions": 1}', 200, "malformed"),
        (b'{"predictions": [' + DEEP + b"]}", 200, "malformed"),
        (b'{"predictions": [' + b"[" * 400 + b"]" * 400 + b"]}", 200, "malformed"),
        (b'{"predictions": [1], "more": ' + b"[" * 400 + b"]" * 400 + b"}", 200, ""),
        (b'{"predictions": [' + b"9" * 10_000 + b"]}", 200, "malformed"),
        (b"\xff\xfe\x00", 200, "malformed"),
        (b"null", 200, "malformed"),
        (b'{"predictions": ["\x00\x1b[2J"]}', 200, "malformed"),
    ],
)
def test_every_v1_answer_has_a_fault_or_none(body: bytes, status: int | None, fault: str) -> None:
    """Huge, deep, cut, infinite and binary answers are told apart in one word, within a second."""
    started = time.monotonic()
    assert form(reply(body, status), V1)[1] == fault
    assert time.monotonic() - started < 1


@given(st.binary(max_size=200), st.sampled_from([V1, V2]), st.sampled_from([None, 200, 400, 500]))
def test_no_bytes_raise(body: bytes, path: str, status: int | None) -> None:
    """Whatever comes, there is a form or a known fault, and comparing it ends."""
    _, fault = form(reply(body, status), path)
    assert not fault or fault in FAULTS
    same_answer(body, body, path, regression=False, tolerance=None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(JSON, st.sampled_from([("predictions", V1), ("outputs", V2)]), st.booleans(), st.none() | st.floats(0, 9))
def test_no_values_raise(value: object, protocol: tuple[str, str], regression: bool, tolerance: float | None) -> None:
    """Any JSON in the place of predictions has a form or a fault, and equals itself or cannot be compared."""
    key, path = protocol
    body = json.dumps({key: value}).encode()
    found, fault = form(reply(body), path)
    assert (found is None) is bool(fault)
    assert same_answer(body, body, path, regression=regression, tolerance=tolerance) is not False


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([[0.1, 0.9]], [[1, 0]], True),
        ([[0.1, 0.9]], [[0.1, 0.2, 0.7]], False),
        ([[0.1, 0.9]], [[0.1, 0.9]] * 2, False),
        ([{"class": 1}], [{"classes": 1}], False),
        ([{"b": 1, "a": 2}], [{"a": 3, "b": 4}], True),
        ([1], ["1"], False),
        ([True], [1], False),
        ([[1, "a"]], [[2, "b"]], True),
    ],
)
def test_forms_are_alike_by_kind_and_shape(one: object, other: object, alike: bool) -> None:
    """Values may differ; rows, lengths, keys and kinds may not."""
    first, second = (form(reply(json.dumps({"predictions": rows}).encode()), V1)[0] for rows in (one, other))
    assert (first == second) is alike


def test_v2_forms_are_names_types_and_shapes() -> None:
    """Another name, datatype or shape of an output is another form."""
    output = {"name": "scores", "shape": [1, 2], "datatype": "FP32", "data": [0.1, 0.9]}
    others = [{**output, **change} for change in ({"name": "s"}, {"datatype": "FP64"}, {"shape": [2, 1]})]
    first, *rest = (form(reply(json.dumps({"outputs": [one]}).encode()), V2)[0] for one in (output, *others))
    assert len({first, *rest}) == 4
    assert form(reply(b'{"outputs": [1]}'), V2)[1] == "malformed"


def test_huge_numbers_are_another_answer_and_break_nothing() -> None:
    """An integer that no float holds is far from every float, and no reason to stop a replay."""
    huge, small = (json.dumps({"predictions": [value]}).encode() for value in (10**4000, 0.5))
    assert same_answer(huge, small, V1, regression=True, tolerance=1.0) is False
