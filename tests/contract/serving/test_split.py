"""How a route's weights become answers."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.adapters.serving.routing import bucket
from mlgitops.core.errors import Denied, NotFound, Unavailable
from mlgitops.ports.serving import Arm
from tests.contract.serving.serving_kit import Engine, Object, route, service

A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


class Pair:
    """A baseline that always answers class 0 and a canary that always answers class 1."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        one, other = engine.model(favours=0), engine.model(favours=1)
        self.baseline, self.canary = service("digits", *one, A), service("digits-canary", *other, B)
        self.weigh(100, 0, "0-0")
        engine.until_ready("split", Arm.BASELINE, Arm.CANARY)

    def weigh(self, baseline: int, canary: int, cohort: str) -> None:
        self.apply(self.baseline, self.canary, route("digits", baseline, canary, cohort))
        self.engine.until(lambda: self.engine.observe("split").cohort == cohort)

    def apply(self, *objects: Object) -> None:
        self.engine.apply("split", *objects)

    def releases(self, ids: Sequence[str]) -> list[str]:
        return [headers["X-Mlgitops-Release"] for _, headers in self.engine.send("split", ids)]


@pytest.fixture(scope="module")
def pair(shared: Engine) -> Pair:
    return Pair(shared)


def test_the_split_is_the_weight_and_is_decided_by_the_request_id(pair: Pair) -> None:
    """The canary answers its weight of the requests, within binomial bounds, and the same ids each time."""
    pair.weigh(80, 20, "7-2")
    ids = [f"req-{number}" for number in range(400)]
    first = pair.releases(ids)
    assert first == pair.releases(ids)
    assert first == [B if bucket(one) < 2000 else A for one in ids]
    assert abs(first.count(B) - 80) < 4 * math.sqrt(400 * 0.2 * 0.8)


def test_answers_say_who_answered(pair: Pair) -> None:
    """Each answer carries the request's id, the release and the cohort."""
    pair.weigh(50, 50, "3-1")
    [(status, headers)] = pair.engine.send("split", ["mine"])
    assert status == 200
    assert headers["X-Request-Id"] == "mine"
    assert headers["X-Mlgitops-Cohort"] == "3-1"
    assert headers["X-Mlgitops-Release"] in (A, B)
    [(_, headers)] = pair.engine.send("split", ["not a plain id"])
    assert headers["X-Request-Id"] != "not a plain id"


def test_a_growing_weight_moves_requests_only_to_the_canary(pair: Pair) -> None:
    """Whoever met the canary at a low weight meets it at every higher one."""
    ids = [f"user-{number}" for number in range(150)]
    pair.weigh(90, 10, "8-1")
    low = {one for one, release in zip(ids, pair.releases(ids), strict=True) if release == B}
    pair.weigh(50, 50, "8-2")
    high = {one for one, release in zip(ids, pair.releases(ids), strict=True) if release == B}
    assert low < high


def test_each_side_can_be_asked_past_the_split(pair: Pair) -> None:
    """`predict` reaches the side it names, whatever the weights are."""
    pair.weigh(100, 0, "9-0")
    body, serving = {"instances": [[1.0, 2.0]]}, pair.engine.serving
    assert serving.predict("split", "digits", Arm.BASELINE, body) == {"predictions": [[1.0, 0.0, 0.0]]}
    assert serving.predict("split", "digits", Arm.CANARY, body) == {"predictions": [[0.0, 1.0, 0.0]]}
    with pytest.raises(Denied, match="shape"):
        serving.predict("split", "digits", Arm.CANARY, {"instances": [[1.0]]})
    with pytest.raises(NotFound):
        serving.predict("split", "unknown", Arm.CANARY, body)


def test_a_missing_canary_with_weight_fails_its_share_and_no_more(pair: Pair) -> None:
    """Requests for a service that is not there get 500, as Gateway API says, and never the other side."""
    pair.apply(pair.baseline, route("digits", 50, 50, "10-1"))
    pair.engine.until(lambda: "no InferenceService digits-canary" in pair.engine.canary("split").message)
    ids = [f"r{number}" for number in range(60)]
    statuses = [status for status, _ in pair.engine.send("split", ids)]
    assert statuses == [500 if bucket(one) < 5000 else 200 for one in ids]
    assert not pair.engine.canary("split").ready


def test_a_canary_that_is_not_ready_answers_503(pair: Pair) -> None:
    """Requests for a service without a ready model get 503, and the observation says why it is not ready."""
    uri, _ = pair.engine.model()
    wrong = service("digits-canary", uri, "sha256:" + "0" * 64, B)
    pair.apply(pair.baseline, route("digits", 0, 100, "11-0"))
    pair.engine.until(lambda: "no InferenceService" in pair.engine.canary("split").message)
    pair.apply(pair.baseline, wrong, route("digits", 0, 100, "11-1"))
    pair.engine.until(lambda: "expected sha256:000" in pair.engine.canary("split").message)
    [(status, _)] = pair.engine.send("split", ["one"])
    assert status == 503
    with pytest.raises(Unavailable, match="sha256"):
        pair.engine.serving.predict("split", "digits", Arm.CANARY, {"instances": [[1.0, 2.0]]})


def test_a_route_of_zeros_answers_503(pair: Pair) -> None:
    """A route whose weights are all zero sends nothing anywhere."""
    pair.weigh(0, 0, "12-1")
    assert [status for status, _ in pair.engine.send("split", ["one"])] == [503]


def test_without_a_route_the_champion_answers_alone(shared: Engine) -> None:
    """An InferenceService serves without a route, and no weight or rollout is observed."""
    shared.apply("alone", service("digits", *shared.model(), A))
    shared.until_ready("alone")
    [(status, headers)] = shared.send("alone", ["one"])
    assert (status, headers["X-Mlgitops-Release"], headers["X-Mlgitops-Cohort"]) == (200, A, "0-0")
    seen = shared.observe("alone")
    assert (seen.weight_percent, seen.canary) == (None, None)


def test_a_missing_weight_is_one(shared: Engine) -> None:
    """A backendRef without a weight counts as weight 1, as in Gateway API."""
    value = route("digits", 1, 1)
    for reference in value["spec"]["rules"][0]["backendRefs"]:
        del reference["weight"]
    shared.apply("ones", value)
    shared.until(lambda: shared.observe("ones").weight_percent == 50)


def test_unknown_models_and_environments_are_404(shared: Engine) -> None:
    """What is not served is not found, in JSON, and other methods are not allowed."""
    shared.apply("known", service("digits", *shared.model(), A))
    shared.until_ready("known")
    assert shared.ask("POST", "/nowhere/digits/v1/models/digits:predict", b"{}").status == 404
    assert shared.ask("POST", "/known/other/v1/models/other:predict", b"{}").status == 404
    assert shared.ask("GET", "/known/digits/metrics").status == 404
    assert shared.ask("DELETE", "/known/digits/v1/models/digits").status == 405
    assert shared.ask("GET", "/known/digits/v2/models/digits/ready").status == 200


def test_an_engine_that_does_not_run_is_unavailable(tmp_path: Path) -> None:
    """Looking at an engine that never ran is an error that says so, not an empty observation."""
    with pytest.raises(Unavailable, match="does not run"):
        EmbeddedServing(tmp_path / "home").observe("production", "digits")
