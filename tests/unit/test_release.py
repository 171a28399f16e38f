"""The release machine: what it may become, and that its history is all there is to it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.core.errors import IllegalTransition, InvalidInput
from mlgitops.core.events import read_event
from mlgitops.core.release import EVENTS, OPEN, RELEASE, Rejected, Release, ReleasePhase, Revised, advance, read_release
from tests.support.values import event, submission

P = ReleasePhase


def walked(kinds: list[str]) -> Release:
    """Return a release after the events that it takes; the others are refused and change nothing."""
    release = Release(submission=submission())
    for count, kind in enumerate(kinds):
        try:
            release = advance(release, event(EVENTS[kind], count))
        except IllegalTransition:
            assert (release.phase, EVENTS[kind]) not in RELEASE or (kind == "Revised" and not release.revisable)
    return release


def test_every_phase_is_reachable() -> None:
    """There is no phase that no history leads to."""
    reached, more = {P.SUBMITTED}, True
    while more:
        found = reached | {to for (at, _), to in RELEASE.items() if at in reached}
        more, reached = found != reached, found
    assert reached == set(P)


def test_ends_are_ends() -> None:
    """What ended moves no more, but to be judged anew, or by a person's word for good; that is the last."""
    ends = {P.FAILED, P.ERRORED, P.ABORTED, P.CANDIDATE}
    assert {(event, to) for (at, event), to in RELEASE.items() if at in ends and to is not at} == {
        (Revised, P.EVALUATING),
        (Rejected, P.REJECTED),
    }
    assert not [at for at, _ in RELEASE if at is P.REJECTED]
    assert (P.ABORTED, Revised) not in RELEASE


def test_only_a_model_that_is_there_is_judged_anew() -> None:
    """A release that failed in training, or whose model was deleted, cannot be evaluated by another content."""
    revised = event(Revised)
    for kinds in (
        ["Queued", "TrainingStarted", "Failed"],
        ["Queued", "TrainingStarted", "TrainingSucceeded", "EvaluationPassed", "Collected"],
    ):
        release = walked(kinds)
        assert not release.revisable
        with pytest.raises(IllegalTransition):
            advance(release, revised)
    failed = walked(["Queued", "TrainingStarted", "TrainingSucceeded", "Failed"])
    assert advance(failed, revised).phase is P.EVALUATING


def test_people_can_stop_it_wherever_it_moves() -> None:
    """Abort, reject and the loss of an answer are possible in every phase that moves by itself."""
    for phase in OPEN:
        assert {to for (at, _), to in RELEASE.items() if at is phase} >= {P.ABORTED, P.REJECTED, P.ERRORED}


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
def test_nothing_moves_that_is_not_listed_and_the_history_rebuilds_it(kinds: list[str]) -> None:
    """Whatever happens to a release, only listed moves are made, and YAML gives the same value back."""
    release = walked(kinds)
    text = yaml.safe_dump(release.to_mapping(), allow_unicode=True)
    assert read_release(yaml.safe_load(text), "x") == release


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_every_event_survives_yaml_with_every_field(kind: str) -> None:
    """An event comes back from YAML as it was written, whatever it says."""
    one = event(EVENTS[kind])
    assert read_event(yaml.safe_load(yaml.safe_dump(one.to_mapping())), EVENTS, "x") == one


def test_a_history_that_cannot_be_is_refused() -> None:
    """Moves that are not listed, unknown events and another phase than the history's are no release."""
    values = walked(["Queued", "TrainingStarted"]).to_mapping()
    with pytest.raises(IllegalTransition):
        read_release({**values, "history": values["history"][::-1]}, "x")
    with pytest.raises(InvalidInput, match="Dreamt"):
        read_release({**values, "history": [{"event": "Dreamt", "at": values["history"][0]["at"]}]}, "x")
    with pytest.raises(InvalidInput, match="the file says CANDIDATE"):
        read_release({**values, "phase": "CANDIDATE"}, "x")
