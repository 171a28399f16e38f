"""A training job that people edited while the training section changes: their edits stay, and the rest is told."""

import pytest

from mlgitops.app import reading
from mlgitops.app.context import World
from mlgitops.cli import render
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.release import Release
from tests.support.memory import edited
from tests.support.world import CONFIGURATION, MODEL, Engine, Quality, push, quick_world, settle, view_of

PATH = f"environments/training/{MODEL}/tfjob.yaml"
TOLD = "spec.tfReplicaSpecs.Worker.replicas is 1, and mlgitops.yaml says 3"
THREE = CONFIGURATION.replace("worker: 1", "worker: 3")


@pytest.fixture
def world() -> tuple[World, Engine]:
    """A model that was trained once."""
    made = quick_world()
    trained(*made, "one")
    return made


def trained(
    world: World, engine: Engine, code: str, configuration: str = CONFIGURATION, specification: str = "spec"
) -> Release:
    quality = Quality()
    release = push(
        world, code, quality=quality, engine=engine, configuration=configuration, specification=specification
    )
    settle(world, engine, 15)
    return view_of(world).ledger.release(MODEL, release.name)


def job(world: World) -> bytes:
    data = world.repository.snapshot(MAIN).read(PATH)
    assert data is not None
    return data


def raised_by_hand(world: World) -> None:
    changed = job(world).replace(b"backoffLimit: 3", b"backoffLimit: 9  # flaky disks")
    assert changed != job(world)
    edited(world.repository, MAIN, {PATH: changed})


def messages(world: World) -> str:
    main = world.repository.snapshot(MAIN).revision
    assert main is not None
    return "\n".join(one.message for one in world.repository.history(main, path=PATH))


def shown(world: World) -> list[str]:
    (model,) = reading.status(world, MODEL)["models"]
    found: list[str] = model["notCarriedOver"]
    return found


def test_what_is_not_carried_over_is_told(world: tuple[World, Engine]) -> None:
    """A changed training section that an edited job does not follow is in the commit, the ledger and status."""
    raised_by_hand(world[0])
    before = job(world[0]).count(b"\n")
    second = trained(*world, "two", THREE, "three workers")
    assert b"backoffLimit: 9  # flaky disks" in job(world[0])
    assert job(world[0]).count(b"\n") == before
    assert second.not_carried == (TOLD,)
    assert f"- {TOLD}\n\nWrite these lines there, or delete the file" in messages(world[0])
    assert shown(world[0]) == [TOLD]
    assert TOLD in " ".join(render.status({**reading.status(world[0]), "push": None}).split())


def test_it_is_told_until_the_file_follows(world: tuple[World, Engine]) -> None:
    """The next push of the same training section tells it again, and nothing once people wrote it there themselves."""
    raised_by_hand(world[0])
    trained(*world, "two", THREE, "three workers")
    assert trained(*world, "three", THREE, "three workers").not_carried == (TOLD,)
    head, worker, rest = job(world[0]).partition(b"Worker:\n")
    edited(world[0].repository, MAIN, {PATH: head + worker + rest.replace(b"replicas: 1", b"replicas: 3", 1)})
    assert trained(*world, "four", THREE, "three workers").not_carried == ()
    assert shown(world[0]) == []


def test_a_deleted_job_is_written_anew(world: tuple[World, Engine]) -> None:
    """Who deletes the edited file, as the message says, gets all of the training section with the next release."""
    raised_by_hand(world[0])
    trained(*world, "two", THREE, "three workers")
    edited(world[0].repository, MAIN, {PATH: None})
    assert trained(*world, "three", THREE, "three workers").not_carried == ()
    assert b"replicas: 3" in job(world[0])
    assert b"backoffLimit: 3\n" in job(world[0])


def test_what_follows_by_itself_and_what_people_set_is_not_told(world: tuple[World, Engine]) -> None:
    """A file that nobody edited is written anew, and an edit that no training section contradicts is theirs."""
    assert trained(*world, "two", THREE, "three workers").not_carried == ()
    assert b"replicas: 3" in job(world[0])
    raised_by_hand(world[0])
    assert trained(*world, "three", THREE, "three workers").not_carried == ()
    assert "not carried over" not in messages(world[0])
