"""Requests replayed to a canary that no user meets yet, through real servers."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgitops.core.analysis.shadow import Replayed
from mlgitops.core.configuration import Shadow
from mlgitops.core.errors import NotFound, Unavailable
from mlgitops.core.names import Digest
from mlgitops.ports.serving import Arm, ReplayRequest
from tests.contract.serving.serving_kit import Engine, Load, route, service

A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
RECORD = {"mlgitops.dev/record-requests": "40"}
CLASSES = {"task": "classification", "inputs": "x", "labels": "y"}


class Pair:
    """A champion with all the traffic, a canary with none, and what is replayed to both."""

    def __init__(self, engine: Engine, place: str, annotations: Mapping[str, str] = {}, **canary: Any) -> None:
        self.engine, self.place = engine, place
        self.champion, self.candidate = engine.model(favours=0), engine.model(**canary)
        self.apply(annotations)
        engine.until_ready(place, Arm.BASELINE, Arm.CANARY)
        engine.until(lambda: engine.observe(place).weight_percent == 0)

    def apply(self, annotations: Mapping[str, str]) -> None:
        services = service("digits", *self.champion, A), service("digits-canary", *self.candidate, B)
        self.engine.apply(self.place, *services, route("digits", 100, 0, "2-0", **annotations))

    def request(self, **options: Any) -> ReplayRequest:
        values = {
            "key": self.place,
            "environment": self.place,
            "model": "digits",
            "baseline_digest": str(self.champion[1]),
            "canary_digest": str(self.candidate[1]),
            "shadow": Shadow(requests="evaluation", count=20, minimum=5, per_second=200),
            "data_uri": "pvc://store/evaluation.npz",
            "specification": CLASSES,
        }
        return ReplayRequest(**{**values, **options})

    def replay(self, **options: Any) -> Replayed:
        found: list[Replayed] = []

        def ended() -> bool:
            answer = self.engine.serving.replay(self.request(**options))
            found.extend([] if answer is None else [answer])
            return bool(found)

        self.engine.until(ended)
        return found[0]

    def asked(self) -> int:
        """Return how many predictions the servers of the two sides answered, by their own count."""
        ports = json.loads((self.engine.home / "observation.json").read_bytes())["environments"][self.place]["models"]
        return sum(count(ports["digits"][arm]["port"]) for arm in ("baseline", "canary"))


def count(port: int) -> int:
    from mlgitops.adapters.loopback import call

    text = call(port, "GET", "/metrics", service="server").body.decode()
    lines = [one for one in text.splitlines() if one.startswith("mlgitops_server_requests_total{")]
    return sum(int(float(one.rpartition(" ")[2])) for one in lines)


@pytest.fixture(scope="module")
def shared(shared: Engine) -> Engine:
    """The shared engine, with an evaluation set in its store: values from 0 to 9."""
    file = shared.resolve("pvc://store/evaluation.npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    np.savez(file, x=np.concatenate([x, x]), y=np.zeros(20, dtype=np.int64))
    return shared


def test_both_sides_answer_the_same_requests_and_no_user_is_counted(shared: Engine) -> None:
    """Each request goes to both servers once, past a split that gives the canary nothing, and counts as nobody's."""
    pair = Pair(shared, "fine")
    found = pair.replay()
    assert (found.tried, found.compared, found.comparable, found.disagreed) == (20, 20, 20, 0)
    assert (found.faults, found.unusable, found.error) == ({}, {}, "")
    assert len(found.seconds) == 20
    assert all(one > 0 and other > 0 for one, other in found.seconds)
    assert pair.asked() == 40
    assert 'environment="fine"' not in shared.ask("GET", "/metrics").body.decode()


BAD: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nan": ({"nan_above": 9.0}, {"not-finite": 10}),
    "fails": ({"fails_above": 17.0}, {"failed": 2}),
    "shape": ({"classes": 4}, {"shape": 20}),
}


@pytest.mark.parametrize("how", BAD)
def test_what_is_wrong_with_a_candidate_is_counted_by_kind(shared: Engine, how: str) -> None:
    """NaN, failures and another shape than the champion's are told apart, request by request."""
    model, faults = BAD[how]
    found = Pair(shared, f"bad-{how}", **model).replay()
    assert found.faults == faults
    assert (found.compared, found.comparable) == (20, 20 - sum(faults.values()))


def test_other_answers_and_slower_ones_are_seen(shared: Engine) -> None:
    """A candidate that always says something else, and takes longer, disagrees in every request, in its own time."""
    found = Pair(shared, "other", favours=1, sleep_seconds=0.05).replay()
    assert (found.comparable, found.disagreed) == (20, 20)
    assert all(candidate > 0.05 for _, candidate in found.seconds)


def test_a_regression_is_compared_by_its_tolerance(shared: Engine) -> None:
    """Numbers are the same within labelTolerance; where nobody says how far that is, they are not compared."""
    pair = Pair(shared, "numbers", classes=1, favours=1)
    pair.champion = shared.model(classes=1)
    pair.apply({})
    shared.until(lambda: shared.baseline("numbers").artifact_digest == str(pair.champion[1]))
    shared.until_ready("numbers", Arm.BASELINE, Arm.CANARY)
    for key, tolerance, expected in (("a", 0.5, (20, 20)), ("b", 1.5, (20, 0)), ("c", None, (0, 0))):
        specification = {**CLASSES, "task": "regression", **({"labelTolerance": tolerance} if tolerance else {})}
        found = pair.replay(key=f"numbers-{key}", specification=specification)
        assert (found.comparable, found.disagreed) == expected


def test_what_was_found_is_the_answer_for_good(engine: Engine) -> None:
    """Asked again, also after the engine was ended and started, the same counts come and no server is asked again."""
    file = engine.resolve("pvc://store/evaluation.npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, x=np.ones((20, 2), dtype=np.float32), y=np.zeros(20, dtype=np.int64))
    pair = Pair(engine, "once")
    first, asked = pair.replay(), pair.asked()
    assert pair.replay() == first
    assert pair.asked() == asked == 40
    engine.close()
    engine.open()
    pair.apply({})
    engine.until_ready("once", Arm.BASELINE, Arm.CANARY)
    assert pair.replay() == first
    assert pair.asked() == 0


def test_a_replay_that_is_killed_is_made_again(engine: Engine) -> None:
    """An engine that ends in the middle leaves no answer behind, and the next one gives a whole one."""
    file = engine.resolve("pvc://store/evaluation.npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, x=np.ones((20, 2), dtype=np.float32), y=np.zeros(20, dtype=np.int64))
    pair = Pair(engine, "killed")
    slow = Shadow(requests="evaluation", count=20, minimum=5, per_second=4)
    assert engine.serving.replay(pair.request(shadow=slow)) is None
    engine.until(lambda: pair.asked() > 2)
    engine.close()
    engine.open()
    pair.apply({})
    engine.until_ready("killed", Arm.BASELINE, Arm.CANARY)
    found = pair.replay()
    assert (found.tried, found.error) == (20, "")


def test_nothing_is_recorded_unless_somebody_asks(shared: Engine) -> None:
    """Without the annotation a router keeps no request, and a replay of recorded ones says that there is none."""
    pair = Pair(shared, "silent")
    shared.send("silent", [f"r{number}" for number in range(30)])
    recorded = Shadow(requests="recorded", count=20, minimum=5, per_second=200)
    assert pair.replay(shadow=recorded) == Replayed(error="0 recorded requests are there")


def test_recorded_requests_are_kept_in_memory_alone(shared: Engine) -> None:
    """With it the newest answered ones are replayed; none is on the disk, and all are gone once the line is."""
    pair = Pair(shared, "recorded", RECORD)
    marked = json.dumps({"instances": [[123456.5, 2.0]]}).encode()
    shared.send("recorded", [f"r{number}" for number in range(60)], marked)
    shared.send("recorded", ["malformed"] * 60, b'{"instances": "no"}')
    shared.send("recorded", ["large"], b'{"instances": [[1.0, 2.0]]}' + b" " * 70_000)
    before = pair.asked()
    found = pair.replay(key="r-1", shadow=Shadow(requests="recorded", count=50, minimum=40, per_second=200))
    assert (found.tried, found.compared, found.error) == (40, 40, "")
    assert pair.asked() == before + 80
    written = [one for one in shared.home.rglob("*") if one.is_file() and b"123456.5" in one.read_bytes()]
    assert written == []
    pair.apply({})
    shared.until(lambda: not kept(pair, "r-2"))
    pair.apply(RECORD)
    shared.until(lambda: json.loads((shared.home / "router-config.json").read_bytes())["routes"])
    assert not kept(pair, "r-3")


def kept(pair: Pair, key: str) -> bool:
    """Say whether the router has requests to replay."""
    shadow = Shadow(requests="recorded", count=20, minimum=1, per_second=200)
    found = pair.engine.serving.replay(pair.request(key=f"{key}-{time.monotonic()}", shadow=shadow))
    return found is None or not found.error


def test_requests_that_the_champion_refuses_prove_nothing(shared: Engine) -> None:
    """Recorded requests that do not fit the champion of now are told, and the candidate is not even asked."""
    pair = Pair(shared, "changed", RECORD)
    shared.send("changed", [f"r{number}" for number in range(30)])
    wide = shared.resolve("pvc://store/wide")
    (wide / "1").mkdir(parents=True, exist_ok=True)
    (wide / "1" / "linear.json").write_text(json.dumps({"weights": [[0.0]] * 5, "bias": [1.0]}))
    from mlgitops.adapters.files import directory_digest

    pair.champion = ("pvc://store/wide", directory_digest(wide))
    pair.apply(RECORD)
    shared.until(lambda: shared.baseline("changed").artifact_digest == str(pair.champion[1]))
    shared.until_ready("changed", Arm.BASELINE, Arm.CANARY)
    found = pair.replay(shadow=Shadow(requests="recorded", count=20, minimum=5, per_second=200))
    assert (found.tried, found.compared, found.unusable, found.faults) == (20, 0, {"refused": 20}, {})


def test_other_bytes_than_those_that_were_asked_for_are_not_tried(shared: Engine) -> None:
    """A server with another model, or none, gives an error and no counts against anybody."""
    pair = Pair(shared, "bytes")
    other = str(Digest.of(b"other"))
    assert "canary's server does not serve" in pair.replay(key="bytes-1", canary_digest=other).error
    found = pair.replay(key="bytes-2", baseline_digest=other)
    assert "champion's server does not serve" in found.error
    assert (found.tried, found.faults) == (0, {})


def test_users_are_served_while_requests_are_replayed_at_a_bounded_rate(shared: Engine) -> None:
    """A replay takes as long as its rate says, the champion answers its users meanwhile, the canary none."""
    pair = Pair(shared, "rate")
    started = time.monotonic()
    with Load(shared.url("rate"), clients=2) as load:
        pair.replay(shadow=Shadow(requests="evaluation", count=20, minimum=5, per_second=20))
    assert time.monotonic() - started >= 0.95
    assert {key for key, times in load.answers.items() if times} == {(200, A)}


def test_what_cannot_be_read_is_no_answer(shared: Engine) -> None:
    """A damaged evaluation set is an error in words, and no server is asked."""
    pair = Pair(shared, "damaged")
    file: Path = shared.resolve("pvc://store/damaged.npz")
    file.write_bytes(b"PK\x03\x04 no archive")
    found = pair.replay(key="damaged-1", data_uri="pvc://store/damaged.npz")
    assert "the evaluation set cannot be read" in found.error
    assert "no .npz file" in found.error
    assert pair.asked() == 0


def test_only_the_engine_may_ask_for_replays(shared: Engine) -> None:
    """Without the control token nothing is replayed, and an order that asks for too much is refused."""
    assert shared.ask("POST", "/-/replay", b"{}").status == 401
    token = (shared.home / "control-token").read_text()
    assert shared.ask("POST", "/-/replay", b"{}", token=token).status == 400
    pair = Pair(shared, "greedy")
    with pytest.raises(Unavailable, match="1,000"):
        shared.serving.replay(pair.request(shadow=Shadow(requests="evaluation", count=5_000)))


def test_v2_requests_are_replayed_too(shared: Engine) -> None:
    """A recorded V2 request is compared by its outputs' names, types, shapes and values."""
    pair = Pair(shared, "second", RECORD, favours=2)
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}
    for _ in range(6):
        answer = shared.ask("POST", "/second/digits/v2/models/digits/infer", json.dumps(body).encode())
        assert answer.status == 200
    found = pair.replay(shadow=Shadow(requests="recorded", count=20, minimum=5, per_second=200))
    assert (found.comparable, found.disagreed, found.faults) == (6, 6, {})


def test_a_missing_evaluation_set_is_not_found(tmp_path: Path) -> None:
    """A URI that the store does not have is said to be missing before anything is asked."""

    def missing(uri: str) -> Path:
        raise NotFound("artifact", uri)

    from mlgitops.adapters.serving.embedded import EmbeddedServing

    shadow = Shadow(requests="evaluation")
    request = ReplayRequest(
        key="k", environment="e", model="m", baseline_digest="", canary_digest="", shadow=shadow,
        data_uri="pvc://store/none", specification=CLASSES,
    )  # fmt: skip
    with pytest.raises(NotFound, match="none"):
        EmbeddedServing(tmp_path, missing).replay(request)
