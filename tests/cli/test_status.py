"""Status shows what is asked for and not done yet: a promotion on `main`, a push that made no release."""

import json
import os
import subprocess
from collections.abc import Callable

from mlgitops.adapters.repository.git import open_repository
from mlgitops.cli import remembered, statuses
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.local.wiring import TOOL, context
from mlgitops.ports.repository import Change
from tests.cli.conftest import Desk
from tests.support.world import MODEL

PUSHED = "3f2a9c1d07be3f2a9c1d07be3f2a9c1d07be3f2a"


def promote_by_hand(place: Desk) -> None:
    """Write the promotion of the third release as a pull request would; no reconcile runs."""
    opened = open_repository(str(place.repository), identity=TOOL, cache=place.folder)
    main = opened.snapshot(MAIN)
    path = f"environments/production/{MODEL}/rollout.yaml"
    text = (main.read(path) or b"").decode()
    lines = [
        "number: 4"
        if line.startswith("number:")
        else f"release: {place.stages.names[0]}"
        if line.startswith("release:")
        else line
        for line in text.splitlines()
    ]
    opened.update(MAIN, main.revision, [Change(message="promote", files={path: "\n".join(lines).encode()})])


def push_ended(place: Desk, code: int, said: str) -> None:
    """Leave what an engine leaves beside its environment repository."""
    (place.folder / "pushed.json").write_text(json.dumps({"revision": PUSHED, "code": code, "number": 1}))
    (place.folder / "pushed.log").write_text(said)


def test_a_promotion_that_nobody_took_up_is_shown(desk: Callable[[str], Desk]) -> None:
    """A promotion on `main` is told, with its release, before any reconcile has seen it."""
    place = desk("calm")
    promote_by_hand(place)
    assert f"promotion 4: release {place.stages.names[0]} is on main, not taken up yet" in place("status").out
    (model,) = place.json("status").values["models"]
    assert model["environments"][-1]["promotion"] == {"rollout": 4, "release": place.stages.names[0]}


def test_a_rollout_file_that_nobody_can_read_is_no_trouble_for_status(desk: Callable[[str], Desk]) -> None:
    """Status answers although `rollout.yaml` holds nonsense."""
    place = desk("calm")
    opened = open_repository(str(place.repository), identity=TOOL, cache=place.folder)
    path = f"environments/production/{MODEL}/rollout.yaml"
    for nonsense in (b"\xff\xfe", b"number: [1", b"number: many\nrelease: 3\n", b"- 1\n"):
        main = opened.snapshot(MAIN)
        opened.update(MAIN, main.revision, [Change(message="nonsense", files={path: nonsense})])
        assert place("status").code == 0
        assert place.json("status").values["models"][0]["environments"][-1]["promotion"] is None


def test_a_push_that_made_no_release_is_shown_with_its_reason(desk: Callable[[str], Desk]) -> None:
    """The last push is told when it failed, with the error's line, and not any more once one went well."""
    place = desk("calm")
    assert place.json("status").values["push"] is None
    push_ended(place, 10, "1 failed\nError: the tests of 3f2a9c1d07be failed\nHint: mend it\n")
    told = " ".join(place("status").out.split())
    assert "the last push, 3f2a9c1d07be, made no release (exit code 10): the tests of 3f2a9c1d07be failed" in told
    assert place.json("status").values["push"]["exitCode"] == 10
    push_ended(place, 0, "release made\n")
    os.utime(place.folder / "pushed.json", ns=(1, 1))
    assert "last push" not in place("status").out


def test_a_damaged_note_of_the_last_push_is_no_trouble(desk: Callable[[str], Desk]) -> None:
    """Status answers although what the engine noted about the last push is damaged."""
    place = desk("calm")
    for nonsense in ("", "[]", '{"revision": 1}', '{"revision": "a", "code": "many"}'):
        (place.folder / "pushed.json").write_text(nonsense)
        assert place.json("status").values["push"] is None


def test_the_engine_answers_ahead_only_when_something_changed(desk: Callable[[str], Desk]) -> None:
    """The keeper computes an answer once for each state, from the change of a plain git client too."""
    place = desk("calm")
    location = str(place.repository)
    keep = statuses.keeper(context(location, place.folder / "cache", TOOL), location)
    keep()
    first = remembered.recall(["status"])
    assert first is not None
    promote_by_hand(place)
    assert remembered.recall(["status"]) is None
    keep()
    assert "not taken up yet" in (remembered.recall(["status"]) or "")
    subprocess.run(["git", "-C", location, "pack-refs", "--all"], check=True)
    assert "not taken up yet" in (remembered.recall(["status"]) or "")


def test_a_model_whose_files_cannot_be_read_hides_no_other(desk: Callable[[str], Desk]) -> None:
    """One damaged file of the ledger ends `status` and `models list` with 3, its path and mend; the others are told."""
    place = desk("calm")
    calm = place.json("status").values["models"]
    listed = place.json("models", "list").values["models"]
    opened = open_repository(str(place.repository), identity=TOOL, cache=place.folder)
    path = "models/cats/releases/0123456789ab.yaml"
    change = Change(message="damage", files={path: b"phase: LIVE\n"})
    opened.update(LEDGER, opened.snapshot(LEDGER).revision, [change])
    for _ in range(2):  # an answer that was kept would end with 0
        told = place("status")
        assert told.code == 3
        words = " ".join(told.out.split())
        assert f"cannot be told: {path}" in words
        assert "restore it from an earlier revision of the ledger" in words
    broken, *others = place.json("status").values["models"]
    assert (broken["model"], broken["environments"]) == ("cats", [])
    assert others == calm
    assert place("status", "--model", MODEL).code == 0
    assert place("status", "--model", "cats").code == 3
    found = place.json("models", "list")
    assert found.code == 3
    assert path in found.values["models"][0]["problem"]
    assert found.values["models"][1:] == listed
