"""No request is lost while what serves is changed."""

import time
from collections.abc import Iterator

import pytest

from mlgitops.ports.serving import Arm
from tests.contract.serving.serving_kit import Engine, Load, route, service

A, B, C = "aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"


@pytest.fixture
def engine(shared: Engine) -> Engine:
    return shared


@pytest.fixture
def place(shared: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """An environment of the test's own, empty again afterwards."""
    name = str(request.function.__name__)
    yield name
    shared.apply(name)


def test_a_whole_rollout_under_load_loses_no_request(engine: Engine, place: str) -> None:
    """Weights move, the canary becomes the champion and goes; both stay ready and every request is answered."""
    first, second = engine.model(favours=0), engine.model(favours=1)
    champion, canary = service("digits", *first, A), service("digits-canary", *second, B)
    engine.apply(place, champion, route("digits", 100, 0, "0-0"))
    engine.until_ready(place)
    with Load(engine.url(place)) as load:
        engine.apply(place, champion, canary, route("digits", 100, 0, "1-0"))
        engine.until_ready(place, Arm.CANARY)
        for step, weight in enumerate((10, 50, 95, 100), start=1):
            engine.apply(place, champion, canary, route("digits", 100 - weight, weight, f"1-{step}"))
            while (seen := engine.observe(place)).weight_percent != weight:
                assert seen.baseline is not None
                assert seen.canary is not None
                assert (seen.baseline.ready, seen.canary.ready) == (True, True)
            time.sleep(0.2)
        engine.apply(place, service("digits", *second, B), canary, route("digits", 0, 100, "1-4"))
        engine.until_ready(place, Arm.BASELINE, release=B)
        engine.apply(place, service("digits", *second, B), route("digits", 100, 0, "0-0"))
        engine.until(lambda: engine.observe(place).canary is None)
        time.sleep(0.3)
    assert set(load.answers) == {(200, A), (200, B)}


def test_the_old_revision_answers_until_the_new_one_is_ready(engine: Engine, place: str) -> None:
    """A slow model replaces the one before it only when it answers; until then the observation says so."""
    engine.apply(place, service("digits", *engine.model(), A))
    engine.until_ready(place)
    engine.apply(place, service("digits", *engine.model(load_seconds=1.0), B))
    engine.until(lambda: not engine.baseline(place).ready)
    seen = engine.baseline(place)
    assert (seen.serving, seen.release) == (True, A)
    assert "being loaded" in seen.message
    engine.until_ready(place, release=B)


def test_a_revision_that_cannot_be_served_leaves_the_old_one(engine: Engine, place: str) -> None:
    """Other bytes than promised are refused with both digests, and what served goes on serving."""
    uri, digest = engine.model()
    engine.apply(place, service("digits", uri, digest, A))
    engine.until_ready(place)
    other, _ = engine.model(favours=2)
    engine.apply(place, service("digits", other, digest, B))
    engine.until(lambda: "expected sha256" in engine.baseline(place).message)
    seen = engine.baseline(place)
    assert (seen.ready, seen.serving, seen.release, seen.artifact_digest) == (False, True, A, str(digest))
    assert engine.send(place, ["one"])[0][1]["X-Mlgitops-Release"] == A


def test_a_refused_object_leaves_the_old_one(engine: Engine, place: str) -> None:
    """An InferenceService that KServe would not take changes nothing, and the reason is told."""
    good = service("digits", *engine.model(), A)
    engine.apply(place, good)
    engine.until_ready(place)
    bad = service("digits", *engine.model(), B)
    bad["spec"]["predictor"]["canaryTrafficPercent"] = 10
    engine.apply(place, bad)
    engine.until(lambda: "canaryTrafficPercent" in engine.baseline(place).message)
    seen = engine.baseline(place)
    assert (seen.ready, seen.serving, seen.release) == (False, True, A)
    engine.apply(place, good)
    engine.until_ready(place, release=A)


def test_a_newer_wish_replaces_one_that_is_being_loaded(engine: Engine, place: str) -> None:
    """Only the newest revision comes to serve when several are applied in a row."""
    engine.apply(place, service("digits", *engine.model(load_seconds=30), A))
    engine.until(lambda: engine.controller.observation()[place]["models"]["digits"]["baseline"])
    time.sleep(0.3)
    engine.apply(place, service("digits", *engine.model(), C))
    engine.until_ready(place, release=C)


def test_a_slow_model_does_not_keep_the_server_from_saying_that_it_is_alive(engine: Engine, place: str) -> None:
    """Health is answered while a prediction runs."""
    engine.apply(place, service("digits", *engine.model(sleep_seconds=1.0), A))
    engine.until_ready(place)
    with Load(engine.url(place), clients=1):
        time.sleep(0.3)
        started = time.monotonic()
        assert engine.ask("GET", f"/{place}/digits/v2/health/live").status == 200
        assert time.monotonic() - started < 0.7
