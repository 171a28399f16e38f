"""`mlgitops explain` retells a release's life from the ledger alone."""

import xml.etree.ElementTree as ET
from collections.abc import Callable

from tests.cli.conftest import Desk


def told(place: Desk, number: int, *words: str) -> str:
    """Return what is said of the release of that number, as one line."""
    found = place("explain", place.stages.names[number - 1], *words)
    assert found.code == 0, found.err
    return " ".join(found.out.split())


def test_a_release_that_went_through_every_step(desk: Callable[[str], Desk]) -> None:
    """Push, training, gates, each judged step and the end are told in order, with the numbers behind them."""
    place = desk("calm")
    words = told(place, 2)
    chapters = [
        "A push made the release, by Ada <ada@example.org>",
        "It was trained",
        "It was evaluated",
        "Rollout 2 was asked for",
        "The gates let it start",
        "step 1 at 10 % of the requests, passed",
        "step 2 at 50 % of the requests, passed",
        "step 3 at 95 % of the requests, passed",
        "It serves all requests",
        "It is trusted",
    ]
    places = [words.index(one) for one in chapters]
    assert places == sorted(places)
    assert "(counted: 4 of 4,000, and 36 of 36,000)" in words
    assert "`mlgitops rollback` returns all requests to what served before" in words


def test_a_release_that_no_user_met(desk: Callable[[str], Desk]) -> None:
    """A refused rollout is told with the gate that was missed, and what can be done about it."""
    place = desk("calm")
    words = told(place, 3)
    assert "The rollout was refused before any user met the release missed: accuracy is 0.17 worse" in words
    assert f"`mlgitops promote {place.stages.names[2]}` asks for a rollout again" in words


def test_a_release_that_was_rolled_back_by_a_person(desk: Callable[[str], Desk]) -> None:
    """A rollback is told with who decided it and why, and how to bring the release back."""
    place = desk("calm")
    assert place("rollback", "--reason", "customers complain").code == 0
    words = told(place, 2)
    assert "It was decided to go back" in words
    assert "customers complain" in words
    assert "`mlgitops resume` lets automation go on" in words


def test_the_plot_is_one_drawing_that_stands_alone(desk: Callable[[str], Desk]) -> None:
    """The SVG file is well-formed, with its own style, and draws traffic and evidence."""
    place = desk("calm")
    file = place.folder / "why.svg"
    assert str(file) in told(place, 2, "--plot", "why.svg")
    root = ET.fromstring(file.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = "".join(root.itertext())
    assert "evidence against the canary" in texts
    assert "font" in texts


def test_nothing_to_draw_is_said(desk: Callable[[str], Desk]) -> None:
    """A release that never started has no plot, and no file is left."""
    place = desk("calm")
    found = place("explain", place.stages.names[2], "--plot", "why.svg")
    assert found.code == 3
    assert "no rollout of this release ever started" in found.err
    assert not (place.folder / "why.svg").exists()


def test_an_attacker_draws_nothing_on_the_terminal(desk: Callable[[str], Desk]) -> None:
    """Control characters and secrets in a commit's subject are shown harmless."""
    place = desk("hostile")
    (name,) = [one["release"] for one in place.json("models", "list").values["models"][0]["releases"]]
    found = place("explain", name)
    assert "\x1b" not in found.out
    assert "ghp_0123456789abcdef" not in found.out
