"""Recorded requests: bounded in number, length and sum, and gone when nobody wants them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.adapters.serving import recording
from mlgitops.adapters.serving.objects import parse_route
from mlgitops.adapters.serving.recording import Recorded, Recorder
from mlgitops.core.errors import InvalidInput
from tests.contract.serving.serving_kit import route

PATH = "/v1/models/digits:predict"


def kept(recorder: Recorder) -> list[bytes]:
    return [one.body for one in recorder.newest("production", "digits", 1_000)]


@given(st.lists(st.integers(0, 5)), st.integers(0, 10), st.integers(0, 10))
def test_the_newest_are_kept_in_their_order(numbers: list[int], most: int, later: int) -> None:
    """There are never more than asked for, the newest ones, and fewer at once when fewer are asked for."""
    recorder, bodies = Recorder(), [str(one).encode() for one in numbers]
    for body in bodies:
        recorder.keep("production", "digits", most, Recorded(path=PATH, body=body))
    assert kept(recorder) == (bodies[-most:] if most else [])
    recorder.limit({("production", "digits"): later})
    assert kept(recorder) == (bodies[-most:] if most else [])[-later:] * bool(later)


def test_long_requests_and_other_paths_are_not_kept() -> None:
    """A body that is too long, another model's path, a version's or a health check is not recorded."""
    recorder = Recorder()
    long = b"x" * (recording.REQUEST_BYTES + 1)
    others = ("/v1/models/other:predict", "/v1/models/digits/versions/1:predict", "/v2/health/live", f"{PATH}?a=1")
    for request in (Recorded(path=PATH, body=long), *(Recorded(path=one, body=b"{}") for one in others)):
        recorder.keep("production", "digits", 10, request)
    assert kept(recorder) == []


def test_the_sum_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bodies of a model together never need more than their share of memory; the oldest go."""
    monkeypatch.setattr(recording, "MODEL_BYTES", 1_000)
    recorder = Recorder()
    for number in range(50):
        recorder.keep("production", "digits", 40, Recorded(path=PATH, body=bytes([number]) * 300))
    assert [one[0] for one in kept(recorder)] == [47, 48, 49]


def test_models_and_environments_are_apart() -> None:
    """What one model's users sent is never replayed to another, nor in another environment."""
    recorder = Recorder()
    recorder.keep("production", "digits", 5, Recorded(path=PATH, body=b"mine"))
    assert recorder.newest("staging", "digits", 5) == recorder.newest("production", "other", 5) == []


@pytest.mark.parametrize("text", ["-1", "1001", "all", "1.5", "", "9" * 50, "٣"])
def test_a_route_that_asks_for_something_else_is_refused(text: str) -> None:
    """Only a whole number up to the bound turns recording on."""
    with pytest.raises(InvalidInput, match="record-requests"):
        parse_route(route("digits", 100, 0, **{"mlgitops.dev/record-requests": text}))


def test_a_route_without_the_line_records_nothing() -> None:
    """Recording is off unless somebody turned it on."""
    assert parse_route(route("digits", 100, 0)).record == 0
    assert parse_route(route("digits", 100, 0, **{"mlgitops.dev/record-requests": "250"})).record == 250
