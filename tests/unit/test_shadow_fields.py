"""What a plan says of a shadow, and what it must not say."""

from dataclasses import replace

import pytest

from mlgitops.core.configuration import MetricRule, Plan, Shadow, Step
from mlgitops.core.errors import IllegalTransition, InvalidInput
from mlgitops.core.events import Event
from mlgitops.core.loading import load_environments
from mlgitops.core.rollout import Authorised, CanaryReady, Proposal, ReplayStarted, Rollout, advance, read_rollout
from tests.support.world import ENVIRONMENTS, START

PLAN = Plan(
    name="standard",
    steps=(Step(weight_percent=10, seconds=60),),
    metrics=(MetricRule(kind="errors", effect=3.0),),
)
SHADOW = Shadow(requests="recorded", count=100, per_second=5, disagreement=0.1)


def loaded(shadow: str) -> Shadow | None:
    return load_environments(f"{ENVIRONMENTS}    shadow: {shadow}\n".encode(), "e").environments[0].plan.shadow


def test_a_plan_without_a_shadow_keeps_its_digest() -> None:
    """Plans that replay nothing are written, and so identified, as they always were; one that does is another one."""
    assert "shadow" not in PLAN.to_mapping()
    assert replace(PLAN, shadow=SHADOW).digest != PLAN.digest
    assert Shadow.from_mapping(SHADOW.to_mapping()) == SHADOW


def test_a_shadow_is_read_with_its_defaults() -> None:
    """A line is enough: no failure is allowed, other limits are not set, and the rate is bounded."""
    assert loaded("{requests: evaluation}") == Shadow(requests="evaluation")
    full = "{requests: recorded, count: 100, perSecond: 5, limits: {disagreement: 0.1}}"
    assert loaded(full) == SHADOW
    assert load_environments(ENVIRONMENTS.encode(), "e").environments[0].plan.shadow is None


@pytest.mark.parametrize(
    ("shadow", "told"),
    [
        ("{count: 100}", "requests"),
        ("{requests: production}", "requests"),
        ("{requests: recorded, count: 20}", "minimum 50 is more than count, 20"),
        ("{requests: recorded, count: 5000}", "1000"),
        ("{requests: recorded, perSecond: 0}", "perSecond"),
        ("{requests: recorded, limits: {failed: 1}}", "failed"),
        ("{requests: recorded, limits: {nan: 0}}", "nan"),
        ("recorded", "shadow"),
    ],
)
def test_a_wrong_shadow_is_refused_with_its_place(shadow: str, told: str) -> None:
    """What asks for nothing, too much, or something unknown is told before anything is promoted."""
    with pytest.raises(InvalidInput, match="shadow") as caught:
        loaded(shadow)
    assert told in " ".join([str(caught.value), *map(str, caught.value.problems)])


def test_a_replay_that_outlasts_its_rollout_is_refused() -> None:
    """A rollout would be taken back for its age before the replay is over."""
    text = ENVIRONMENTS.replace("86400", "100") + "    shadow: {requests: recorded, count: 1000, perSecond: 5}\n"
    with pytest.raises(InvalidInput) as caught:
        load_environments(text.encode(), "e")
    assert "take longer than maximumAgeSeconds" in " ".join(map(str, caught.value.problems))


def rollout(*, shadow: bool, champion: int | None, events: tuple[type[Event], ...]) -> Rollout:
    plan = replace(PLAN, shadow=SHADOW if shadow else None)
    proposal = Proposal(
        number=2, environment="production", model="digits", release="a" * 12, plan=plan.to_mapping(),
        plan_digest=str(plan.digest), champion=champion, by="Ada <a@x>", revision="f" * 40, proposed_at=START,
    )  # fmt: skip
    one = Rollout(proposal=proposal)
    kinds: tuple[type[Event], ...] = (Authorised, *events)
    for event in kinds:
        one = advance(one, event(at=START))
    return one


def test_nobody_meets_a_release_before_its_replay() -> None:
    """With a shadow the canary is ready only after the replay began, once; without one there is no replay."""
    ready = rollout(shadow=True, champion=1, events=(ReplayStarted, CanaryReady))
    assert read_rollout(ready.to_mapping(), "r") == ready
    rollout(shadow=False, champion=1, events=(CanaryReady,))
    wrong: list[tuple[bool, int | None, tuple[type[Event], ...]]] = [
        (True, 1, (CanaryReady,)),
        (True, 1, (ReplayStarted, ReplayStarted)),
        (False, 1, (ReplayStarted,)),
        (True, None, (ReplayStarted,)),
    ]
    for shadow, champion, events in wrong:
        with pytest.raises(IllegalTransition):
            rollout(shadow=shadow, champion=champion, events=events)
