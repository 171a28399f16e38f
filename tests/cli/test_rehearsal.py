"""Dry runs use the decisions that really are made, over a repository that is only read."""

from pathlib import Path

import pytest

from mlgitops.app.context import look
from mlgitops.app.reconciling import reconcile
from mlgitops.app.rehearsing import Rehearsal, rehearsed
from mlgitops.core.errors import Conflict
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.ports.repository import Change, Person
from tests.support.world import FOLDER, Quality, push, settle, state_of, world_of

TOOL = Person(name="mlgitops", email="m@x")


def revisions(world):
    return [world.repository.snapshot(ref).revision for ref in (MAIN, LEDGER)]


def subjects(world, before):
    """Return what was written since, oldest first, by reference."""
    found = {}
    for ref, until in zip((MAIN, LEDGER), before, strict=True):
        tip = world.repository.snapshot(ref).revision
        found[ref] = [one.message.partition("\n")[0] for one in world.repository.history(tip, until=until)][::-1]
    return found


def test_a_rehearsed_pass_foretells_the_real_one(tmp_path: Path) -> None:
    """What a dry run says of a pass are the first commits of the pass that follows; nothing is written or asked for."""
    world, engine = world_of(tmp_path)
    push(world, "one", engine=engine)
    before = revisions(world)
    quiet, intents = rehearsed(world, TOOL)
    done = reconcile(quiet)
    assert done.moves
    assert done.problems == []
    assert revisions(world) == before
    assert engine.trained == []
    reconcile(world)
    for ref, real in subjects(world, before).items():
        foretold = [one.subject for one in intents if one.ref == ref]
        assert foretold
        assert real[: len(foretold)] == foretold


def test_a_rehearsed_rollback_of_a_change_by_hand(tmp_path: Path) -> None:
    """Drafts are history, too: a foreign change is found in a rehearsal as it is in reality, with its author."""
    world, engine = world_of(tmp_path)
    push(world, "one", quality=Quality(), engine=engine)
    settle(world, engine, 15)
    route = f"{FOLDER}/route.yaml"
    main = world.repository.snapshot(MAIN)
    by_hand = (main.read(route) or b"").replace(b"weight: 100", b"weight: 70")
    ada = Person(name="Ada", email="ada@example.org")
    world.repository.update(MAIN, main.revision, [Change(message="try", files={route: by_hand}, author=ada)])
    quiet, intents = rehearsed(world, TOOL)
    reconcile(quiet)
    assert any(one.subject.startswith("hold(digits)") for one in intents)
    foreign = look(quiet).ledger.state("production", "digits").foreign
    assert foreign is not None
    assert foreign.by == "Ada <ada@example.org>"
    assert state_of(world).foreign is None


def test_a_draft_is_a_tree(tmp_path: Path) -> None:
    """A rehearsal reads, lists, walks and refuses as a repository does; an edit that changes nothing makes no draft."""
    world, _ = world_of(tmp_path)
    rehearsal = Rehearsal(world.repository, TOOL, world.clock)
    first = rehearsal.snapshot(MAIN).revision
    added = Change(message="add\n\nwhy\n", files={"a/b.txt": b"1"})
    second = rehearsal.update(MAIN, first, [added])
    assert rehearsal.update(MAIN, second, [added]) == second
    third = rehearsal.update(MAIN, second, [Change(message="take away", files={"environments.yaml": None})])
    assert second is not None
    assert third is not None
    assert rehearsal.snapshot(MAIN).paths() == ("a/b.txt",)
    assert rehearsal.snapshot(MAIN).paths("a") == ("a/b.txt",)
    assert rehearsal.snapshot(MAIN).read("environments.yaml") is None
    assert rehearsal.at(second).read("environments.yaml") is not None
    assert [one.revision for one in rehearsal.history(third)] == [third, second, first]
    assert [one.revision for one in rehearsal.history(third, until=second)] == [third]
    assert [one.revision for one in rehearsal.history(third, path="a")] == [second]
    assert [one.subject for one in rehearsal.intents] == ["add", "take away"]
    with pytest.raises(Conflict):
        rehearsal.update(MAIN, first, [added])
