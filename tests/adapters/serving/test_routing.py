"""The choice of a side is a function of the request's id and the weights."""

import math

from hypothesis import given
from hypothesis import strategies as st

from mlgitops.adapters.serving.routing import Backend, Configuration, Route, bucket, choose


def route(baseline: int, canary: int) -> Route:
    def side(arm: str, weight: int) -> Backend:
        return Backend(arm=arm, weight=weight, port=1, release="r", artifact_digest="d")

    backends = (side("baseline", baseline), side("canary", canary))
    return Route(environment="production", model="digits", cohort="1-1", backends=backends, routed=True)


WEIGHTS = st.integers(min_value=0, max_value=1000)


@given(st.text(max_size=40), WEIGHTS, WEIGHTS)
def test_weights_are_proportions(request_id: str, baseline: int, canary: int) -> None:
    """A request goes to the canary exactly when its bucket lies below the canary's share of the sum."""
    chosen = choose(route(baseline, canary), request_id)
    if baseline + canary == 0:
        assert chosen is None
        return
    assert chosen is not None
    assert (chosen.arm == "canary") == (bucket(request_id) < round(10_000 * canary / (baseline + canary)))
    assert chosen.weight > 0 or min(baseline, canary) == 0 or 0 < bucket(request_id) < 10_000


@given(st.text(max_size=40))
def test_a_side_without_weight_gets_nothing(request_id: str) -> None:
    """Weight 0 is no request at all, and 100 is every one."""
    assert choose(route(100, 0), request_id).arm == "baseline"  # type: ignore[union-attr]
    assert choose(route(0, 100), request_id).arm == "canary"  # type: ignore[union-attr]


def test_buckets_are_even_for_ids_that_count_up() -> None:
    """Sequential ids spread as a fair draw would: within four standard deviations of each tenth."""
    counts = [0] * 10
    for number in range(20_000):
        counts[bucket(f"request-{number}") // 1000] += 1
    assert all(abs(count - 2000) < 4 * math.sqrt(20_000 * 0.1 * 0.9) for count in counts)


@given(WEIGHTS, WEIGHTS, st.none() | st.floats(min_value=0, max_value=9))
def test_a_configuration_round_trips(baseline: int, canary: int, tolerance: float | None) -> None:
    """What is written for the router is what it reads, and has the same revision."""
    one = route(baseline, canary)
    value = Route(**{**vars(one), "tolerance": tolerance})
    configuration = Configuration(routes={(value.environment, value.model): value})
    read = Configuration.from_bytes(configuration.to_bytes())
    assert read == configuration
    assert read.revision == configuration.revision
