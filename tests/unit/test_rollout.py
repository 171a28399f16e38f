"""The rollout machine: how it may end once users met it, and that its history is all there is to it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.core.errors import IllegalTransition, InvalidInput
from mlgitops.core.events import read_event
from mlgitops.core.rollout import EVENTS, MOVED, OPEN, ROLLOUT, Rollout, RolloutPhase, advance, read_rollout
from tests.support.values import event, proposal

P = RolloutPhase
SETTLED = {P.WITHDRAWN, P.REFUSED, P.ERRORED, P.ROLLED_BACK}
kinds_of_events = st.lists(st.sampled_from(sorted(EVENTS)), max_size=30)


def walked(kinds: list[str], champion: int | None) -> list[Rollout]:
    """Return a rollout at each point of its way; events that it does not take change nothing."""
    way = [Rollout(proposal=proposal(2, champion=champion))]
    for count, kind in enumerate(kinds):
        try:
            way.append(advance(way[-1], event(EVENTS[kind], count)))
        except IllegalTransition:
            continue
        assert (way[-2].phase, EVENTS[kind]) in ROLLOUT
    return way


def test_every_phase_is_reachable() -> None:
    """There is no phase that no history leads to."""
    reached, more = {P.PROPOSED}, True
    while more:
        found = reached | {to for (at, _), to in ROLLOUT.items() if at in reached}
        more, reached = found != reached, found
    assert reached == set(P)


def test_ends_are_ends() -> None:
    """What was withdrawn, refused, never answered or rolled back moves no more."""
    assert not [at for at, _ in ROLLOUT if at in SETTLED]


def test_rolling_back_has_no_failing_exit() -> None:
    """From ROLLING_BACK there is one way: on, and to ROLLED_BACK."""
    assert {to for (at, _), to in ROLLOUT.items() if at is P.ROLLING_BACK} == {P.ROLLING_BACK, P.ROLLED_BACK}


def test_rollback_is_possible_wherever_something_moved() -> None:
    """Every phase in which users are, or may soon be, answered has a way back."""
    assert {at for (at, _), to in ROLLOUT.items() if to is P.ROLLING_BACK and at is not to} == set(MOVED)


@given(kinds_of_events, st.sampled_from([None, 1]))
def test_once_traffic_moved_it_ends_live_retired_or_rolled_back(kinds: list[str], champion: int | None) -> None:
    """A rollout that started never ends refused, withdrawn or without an answer."""
    way = walked(kinds, champion)
    started = next((at for at, one in enumerate(way) if one.phase is P.STARTING), len(way))
    after = {one.phase for one in way[started:]}
    assert not after & {P.WITHDRAWN, P.REFUSED, P.ERRORED, P.PROPOSED}
    assert after <= {*OPEN, P.LIVE, P.RETIRED, P.ROLLED_BACK}


@given(kinds_of_events, st.sampled_from([None, 1]))
def test_the_history_rebuilds_it(kinds: list[str], champion: int | None) -> None:
    """Whatever happened, YAML gives the same value back, step and part included."""
    rollout = walked(kinds, champion)[-1]
    text = yaml.safe_dump(rollout.to_mapping(), allow_unicode=True)
    assert read_rollout(yaml.safe_load(text), "x") == rollout


@given(kinds_of_events)
def test_no_step_is_skipped(kinds: list[str]) -> None:
    """All traffic follows only after every weight of the plan was asked for, seen and passed."""
    rollout = walked(["Authorised", "CanaryReady", *kinds], 1)[-1]
    assert 0 <= rollout.step < len(rollout.proposal.weights)
    if rollout.was_serving_all:
        names = [type(one).__name__ for one in rollout.history]
        assert names.count("StepPassed") == len(rollout.proposal.weights) - 1
        assert names.count("SplitObserved") == len(rollout.proposal.weights)


def test_first_rollout_and_later_ones_start_differently() -> None:
    """A first rollout serves at once; one with a champion goes through its steps."""
    for champion, taken, refused in ((None, "ServingAll", "CanaryReady"), (1, "CanaryReady", "ServingAll")):
        starting = walked(["Authorised"], champion)[-1]
        assert advance(starting, event(EVENTS[taken])).phase in {P.LIVE, P.STEP}
        with pytest.raises(IllegalTransition):
            advance(starting, event(EVENTS[refused]))


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_every_event_survives_yaml_with_every_field(kind: str) -> None:
    """An event comes back from YAML as it was written, whatever it says."""
    one = event(EVENTS[kind])
    assert read_event(yaml.safe_load(yaml.safe_dump(one.to_mapping())), EVENTS, "x") == one


def test_another_phase_than_the_historys_is_refused() -> None:
    """The phase in the file is checked: an edited one is no rollout."""
    values = walked(["Authorised"], 1)[-1].to_mapping()
    with pytest.raises(InvalidInput, match="the file says LIVE"):
        read_rollout({**values, "phase": "LIVE"}, "x")
