"""Processes that end by SIGKILL at a write: the next one ends where an undisturbed one would, with nothing doubled.

Repository, store, images and the trainer's own writes are real files; each process opens all of them anew.
"""

import multiprocessing
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import Boundaries, Place, begun

WRITES = 48
"""Writes of two pushes, two rollouts and a rollback; the first test counts them."""
MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.timeout(300)


@contextmanager
def place() -> Iterator[Path]:
    """Give a folder with a fresh environment repository, in memory where the machine has such a place."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        begun(Path(name))
        yield Path(name)


def process(folder: Path, kill_before: int | None) -> int:
    """Let a process of its own go on from what is there; returns how it ended, negative for a signal."""
    child = multiprocessing.get_context("fork").Process(target=Place(folder, Boundaries(kill_before)).go)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def left(folder: Path) -> Mapping[str, Any]:
    """Return what is there at the end, after git itself looked at every object."""
    subprocess.run(["git", "-C", folder / "environment.git", "fsck", "--strict"], check=True, capture_output=True)
    return Place(folder, Boundaries()).left()


@cache
def undisturbed() -> tuple[Mapping[str, Any], int]:
    """Return what a process leaves that nobody kills, and how often it wrote."""
    with place() as folder:
        boundaries = Boundaries()
        Place(folder, boundaries).go()
        return left(folder), len(boundaries.names)


def test_the_walk_writes_to_everything() -> None:
    """What is killed builds two images, trains twice, goes live, rolls back, by a known number of writes."""
    end, writes = undisturbed()
    assert writes == WRITES
    assert [phase for _, phase in end["rollouts"].values()] == ["LIVE", "ROLLED_BACK"]
    assert len(end["trained"]) == 2
    assert len([path for path in end["store"] if path.startswith("models/")]) == 2


def written(folder: Path) -> list[tuple[str, int]]:
    """Return what is there, to see whether a process got on."""
    return sorted((str(one), one.stat().st_size) for one in folder.rglob("*") if one.is_file())


def test_processes_killed_after_every_single_write_end_as_one() -> None:
    """Each process lands one write and is killed: together they train, build, version and commit what one would."""
    with place() as folder:
        kills, lands, before = 0, 1, written(folder)
        while (ended := process(folder, kill_before=lands)) != 0:
            assert ended == -signal.SIGKILL
            # A push begins anew with what it stored already: that write lands nothing.
            lands, before = (lands + 1 if written(folder) == before else 1), written(folder)
            kills += 1
            assert kills < 3 * WRITES, "they get nowhere"
        assert kills >= WRITES - 2
        assert left(folder) == undisturbed()[0]


def ends_the_same(number: int) -> None:
    with place() as folder:
        assert process(folder, kill_before=number) == -signal.SIGKILL
        assert process(folder, kill_before=None) == 0
        assert left(folder) == undisturbed()[0]


@pytest.mark.parametrize("number", [2, 8, 30])
def test_a_process_killed_at_a_sampled_write_is_followed_by_one_that_ends_the_same(number: int) -> None:
    """Killed before the image, before the trained model, or before a step: the next process ends the same."""
    ends_the_same(number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(WRITES))
def test_a_process_killed_at_any_write_is_followed_by_one_that_ends_the_same(number: int) -> None:
    """Whichever write was the last before the kill, the next process ends as if nobody had been killed."""
    ends_the_same(number)
