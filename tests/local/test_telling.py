"""Problems are told once while they last, again when they come back, and never without end."""

import pytest

from mlgitops.core.errors import Unavailable
from mlgitops.local.telling import QUIET_SECONDS, REMEMBERED, Problems, Seldom


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.time = 0.0

    def note(self, message: str) -> None:
        self.said.append(message)

    def now(self) -> float:
        return self.time


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def problems(listener, tmp_path) -> Problems:
    return Problems(listener, tmp_path / "bug.txt", listener.now)


def test_a_problem_is_told_once_while_it_lasts_and_again_when_it_comes_back(listener, problems):
    """Twice a second for an hour is one line; gone and back is another."""
    for _ in range(10):
        problems.are("serving", ["the disk is full"])
        listener.time += QUIET_SECONDS
    assert listener.said == ["problem  the disk is full"]
    problems.are("serving", [])
    problems.are("serving", ["the disk is full"])
    assert len(listener.said) == 2


def test_a_problem_that_flickers_is_told_seldom(listener, problems):
    """What comes and goes with every pass is told once in the quiet time."""
    for _ in range(100):
        problems.are("serving", ["the port is taken"])
        problems.are("serving", [])
    assert len(listener.said) == 1


def test_a_new_problem_beside_an_old_one_is_told(listener, problems):
    """Each problem of a topic is told by itself."""
    problems.are("reconcile", ["a"])
    problems.are("reconcile", ["a", "b"])
    assert listener.said == ["problem  a", "problem  b"]


def test_what_fails_is_told_and_goes_on(listener, problems, tmp_path):
    """An outage is told in its own words, a bug with the file that holds its trace, and neither ends the engine."""

    def down() -> None:
        raise Unavailable("git", "no route")

    def bug() -> None:
        raise KeyError("x")

    assert not problems.attempt("one", down)
    assert not problems.attempt("two", bug)
    assert problems.attempt("two", lambda: None)
    assert "no route" in listener.said[0]
    assert "bug in mlgitops" in listener.said[1]
    assert "KeyError" in (tmp_path / "bug.txt").read_text()


def test_the_same_words_are_not_repeated_within_the_quiet_time(listener):
    """A pass that waits says so now and then, however often it looks."""
    seldom = Seldom(listener, listener.now)
    for _ in range(120):
        seldom.note("rolling back waits")
        listener.time += 0.5
    assert listener.said == ["rolling back waits"] * 2


def test_memory_is_bounded(listener):
    """An engine that runs for a year does not remember every problem of the year."""
    seldom = Seldom(listener, listener.now)
    for number in range(10 * REMEMBERED):
        seldom.note(str(number))
    assert len(seldom._told) == REMEMBERED
