"""`mlgitops simulate` says what a plan would do with a model's traffic, and changes nothing."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Desk
from tests.cli.test_every_verb import fits

QUICK = ("--runs", "20", "--requests-per-second", "200")
PLAN = """\
# a draft
name: careful
steps:
  - {weight: 50, seconds: 600}
metrics:
  - {kind: errors, effect: 2}
"""


def plan_of(place: Desk, *words: str):
    found = place.json("simulate", *words)
    assert found.code == 0, found.out
    assert fits(found.values, "simulate") == []
    return found.values


def test_traffic_is_measured_where_rollouts_were_judged(desk: Callable[[str], Desk]) -> None:
    """Speed and rates are those of the decision records, what a person says goes before them, and each tells which."""
    place = desk("calm")
    measured = plan_of(place, "--runs", "1")["traffic"]
    assert measured["source"] == "measured"
    assert {one["kind"]: one["source"] for one in measured["rates"]}["errors"] == "measured"
    said = plan_of(place, "--runs", "1", "--requests-per-second", "7", "--rate", "errors=0.25", "--labelled", "0.5")[
        "traffic"
    ]
    assert (said["requestsPerSecond"], said["source"], said["labelledShare"]) == (7, "flag", 0.5)
    assert {"kind": "errors", "rate": 0.25, "source": "flag"} in said["rates"]


def test_a_harm_is_found_and_a_good_release_is_promoted(desk: Callable[[str], Desk]) -> None:
    """With enough traffic the good canary is promoted, the named harm rolled back, and its exposure told."""
    values = plan_of(desk("calm"), *QUICK, "--rate", "errors=0.02", "--effect", "errors=6")
    clean, named, asked, *_ = values["plans"][0]["scenarios"]
    assert (clean["kind"], clean["runs"]) == (None, 20)
    assert clean["fates"]["rolledBack"]["share"] <= 0.1
    assert clean["fates"]["promoted"]["share"] >= 0.9
    assert (named["kind"], named["effect"], asked["effect"]) == ("errors", 3, 6)
    assert named["fates"]["rolledBack"]["share"] >= 0.8
    assert asked["fates"]["rolledBack"]["share"] == 1
    assert asked["secondsToRollBack"]["median"] < named["secondsToRollBack"]["median"]
    assert asked["canaryRequests"]["median"] < named["canaryRequests"]["median"]


def test_the_same_seed_gives_the_same_answer(desk: Callable[[str], Desk]) -> None:
    """Two calls with a seed print the same; another seed does not."""
    place = desk("calm")
    one, again, other = (place("simulate", *QUICK, "--seed", seed).out for seed in ("4", "4", "5"))
    assert one == again
    assert one != other


def test_another_plan_is_compared(desk: Callable[[str], Desk]) -> None:
    """A plan in a file of its own, or a draft of environments.yaml, is simulated with the same traffic beside it."""
    place = desk("calm")
    file = place.folder / "draft.yaml"
    file.write_text(PLAN)
    values = plan_of(place, *QUICK, "--plan", str(file))
    assert [(one["name"], one["file"]) for one in values["plans"]] == [("quick", None), ("careful", str(file))]
    file.write_text(
        "apiVersion: mlgitops.dev/v1\nkind: Environments\nenvironments: [{name: production, plan: careful}]\nplans:\n- "
        + PLAN.partition("\n")[2].strip().replace("\n", "\n  ")
    )
    assert plan_of(place, *QUICK, "--plan", str(file))["plans"][1]["name"] == "careful"


def test_a_wrong_plan_is_refused_where_it_is_wrong(desk: Callable[[str], Desk]) -> None:
    """Every problem of a plan's own file is told at its line there."""
    place = desk("calm")
    file = place.folder / "draft.yaml"
    file.write_text(PLAN.replace("effect: 2", "effect: 1").replace("weight: 50", "weight: 100"))
    found = place.json("simulate", "--plan", str(file))
    assert found.code == 3
    assert {(one["line"], one["pointer"]) for one in found.values["error"]["problems"]} == {
        (4, "steps[0].weight"),
        (6, "metrics[0].effect"),
    }


def test_the_plot_stands_alone(desk: Callable[[str], Desk]) -> None:
    """The SVG file is well-formed, has its own style, and a line for every scenario of every plan."""
    place = desk("calm")
    file: Path = place.folder / "plan.svg"
    values = plan_of(place, *QUICK, "--plot", str(file))
    assert values["plot"] == str(file)
    root = ET.fromstring(file.read_text())
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == sum(len(one["scenarios"]) for one in values["plans"])
    assert "share of rollouts rolled back" in "".join(root.itertext())


def test_what_cannot_be_is_refused(desk: Callable[[str], Desk]) -> None:
    """Numbers out of range, unknown metrics, files and models end in words and a code, without a traceback."""
    place = desk("calm")
    for words, code in (
        (["--requests-per-second", "0"], 3),
        (["--requests-per-second", "nan"], 3),
        (["--effect", "errors=0.5"], 3),
        (["--effect", "speed=2"], 3),
        (["--effect", "errors"], 3),
        (["--rate", "speed=0.1"], 3),
        (["--slice", "mobile=0"], 3),
        (["--effect", "errors=1e999"], 3),
        (["--rate", "errors=1"], 3),
        (["--rate", "errors=1.2.3"], 3),
        (["--labelled", "2"], 3),
        (["--label-delay", "-1"], 3),
        (["--noise", "9"], 3),
        (["--plan", "nowhere.yaml"], 1),
        (["nobody"], 1),
        (["--environment", "prod"], 1),
    ):
        found = place("simulate", *words)
        assert (found.code, "Traceback" in found.err) == (code, False), (words, found.err)


SLICED = PLAN + "  - {kind: errors, slice: mobile, effect: 4}\n"


def test_a_slice_is_simulated_where_its_share_is_known(desk: Callable[[str], Desk]) -> None:
    """A plan with a slice asks for the share of its users where none was seen, and then shows its harm by itself."""
    place = desk("calm")
    (place.folder / "draft.yaml").write_text(SLICED)
    refused = place.json("simulate", *QUICK, "--plan", "draft.yaml")
    assert (refused.code, refused.values["error"]["problems"][0]["mend"]) == (3, "say it, like --slice mobile=0.2")
    words = (*QUICK, "--plan", "draft.yaml", "--slice", "mobile=0.3", "--effect", "errors/mobile=8")
    values = plan_of(place, *words)
    assert values["traffic"]["slices"] == [{"slice": "mobile", "share": 0.3, "source": "flag"}]
    draft = values["plans"][1]
    found = {(one["kind"], one["slice"], one["effect"]) for one in draft["scenarios"]}
    assert found == {(None, None, 1), ("errors", None, 2), ("errors", "mobile", 4), ("errors", "mobile", 8)}
    needs = {one["slice"]: one["expected"] for one in draft["needs"]}
    assert needs["mobile"] == round(0.3 * needs[None])
    assert "errors/mobile × 8" in place("simulate", *words, "--runs", "1").out


def test_a_plan_is_named_as_the_repository_has_it(desk: Callable[[str], Desk]) -> None:
    """`--plan` takes the name of any plan of environments.yaml; a wrong one is answered by those there are."""
    place = desk("calm")
    values = plan_of(place, "--runs", "1", "--requests-per-second", "200", "--plan", "quick")
    assert [(one["name"], one["file"]) for one in values["plans"]] == [("quick", None), ("quick", None)]
    assert values["plans"][0] == values["plans"][1]
    unknown = place("simulate", "--plan", "quik")
    assert unknown.code == 1
    assert "quick" in unknown.err


def test_every_share_is_told_with_its_interval(desk: Callable[[str], Desk]) -> None:
    """People see what a share may truly be, as a few rollouts say little."""
    told = desk("calm")("simulate", *QUICK).out
    assert "100 % (84-100)" in told
    assert "0 % (0-16)" in told


def test_it_changes_nothing(desk: Callable[[str], Desk]) -> None:
    """Both branches stay where they are."""
    place = desk("calm")
    before = place.refs()
    plan_of(place, "--runs", "1")
    assert place.refs() == before
