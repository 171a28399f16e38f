"""Every environment gets to the tip of main, whatever fails on the way there."""

from collections.abc import Sequence
from typing import Any

import pytest

from mlgitops.app.initialise import initialise_environment
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest.fields import MAIN
from mlgitops.local import wiring
from mlgitops.local.applying import Applier
from mlgitops.local.telling import Problems
from mlgitops.ports.observer import Silent
from mlgitops.ports.repository import Change
from tests.support.memory import MemoryRepository

ROUTE = b"""\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: digits}
spec: {}
"""


class Engines:
    """Notes what is applied; fails as often as it is told to."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str, int]] = []
        self.recorded: dict[str, str] = {}
        self.failures = 0

    def apply(self, environment: str, revision: str, objects: Sequence[Any], *, prune: bool = True) -> None:
        if environment == "production" and self.failures:
            self.failures -= 1
            raise Unavailable("serving", "the disk is full")
        self.applied.append((environment, revision, len(objects)))

    def record_applied(self, environment: str, revision: str, error: str = "") -> None:
        self.recorded[environment] = error


@pytest.fixture
def repository():
    one = MemoryRepository(wiring.TOOL)
    one.create({MAIN: Change(message="init", files=dict(initialise_environment()))})
    return one


def applier(repository, engines, tmp_path) -> Applier:
    return Applier(repository, engines, engines, Problems(Silent(), tmp_path / "bug.txt"))


def write(repository: MemoryRepository, files: dict[str, bytes | None]) -> str | None:
    now = repository.snapshot(MAIN).revision
    return repository.update(MAIN, now, [Change(message="change", files=files)])


def test_what_failed_is_tried_again_and_nothing_else(repository, tmp_path):
    """An environment that could not be applied is applied at a later look, without main moving; the others once."""
    engines = Engines()
    engines.failures = 2
    one = applier(repository, engines, tmp_path)
    for _ in range(5):
        one.look()
    assert [name for name, _, _ in engines.applied] == ["training", "production"]


def test_a_folder_that_cannot_be_built_keeps_its_newest_objects(repository, tmp_path):
    """After a start a broken folder serves what it last said, and the reason is on record."""
    folder = "environments/production/digits"
    good = {f"{folder}/kustomization.yaml": b"resources: [route.yaml]\n", f"{folder}/route.yaml": ROUTE}
    write(repository, good)
    write(repository, {f"{folder}/route.yaml": None})
    tip = write(repository, {"unrelated.md": b"x"})
    engines = Engines()
    applier(repository, engines, tmp_path).look()
    assert ("production", tip, 1) in engines.applied
    assert "route.yaml" in engines.recorded["production"]


@pytest.mark.parametrize("content", [b"{", b"kind: Nonsense\n", None])
def test_a_broken_environments_file_leaves_the_valid_one_in_force(repository, tmp_path, content):
    """However environments.yaml is broken, or deleted, what it said before holds, for commits after it, too."""
    write(repository, {"environments.yaml": content})
    tip = write(repository, {"unrelated.md": b"x"})
    engines = Engines()
    applier(repository, engines, tmp_path).look()
    assert [(name, at) for name, at, _ in engines.applied] == [("training", tip), ("production", tip)]
