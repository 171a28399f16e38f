"""Every environment gets to the tip of main, whatever fails on the way there."""

from collections.abc import Mapping, Sequence
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
metadata:
  name: digits
  annotations: {mlgitops.dev/cohort: 1-1}
spec:
  rules:
    - backendRefs:
        - {name: digits-predictor, port: 80, weight: 100}
"""
FOLDER = "environments/production/digits"
GOOD = {f"{FOLDER}/kustomization.yaml": b"resources: [route.yaml]\n", f"{FOLDER}/route.yaml": ROUTE}


class Engines:
    """Notes what is applied; fails as often as it is told to."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str, int]] = []
        self.recorded: dict[str, str] = {}
        self.failures = 0
        self.routes: list[Any] = []
        """Weights of the last routes."""

    def apply(self, environment: str, revision: str, objects: Sequence[Any], *, prune: bool = True) -> None:
        if environment == "production" and self.failures:
            self.failures -= 1
            raise Unavailable("serving", "the disk is full")
        self.applied.append((environment, revision, len(objects)))
        self.routes = [one["spec"]["rules"][0]["backendRefs"][0]["weight"] for one in objects]

    def record_applied(self, environment: str, revision: str, error: str = "") -> None:
        self.recorded[environment] = error


@pytest.fixture
def repository():
    one = MemoryRepository(wiring.TOOL)
    one.create({MAIN: Change(message="init", files=dict(initialise_environment()))})
    return one


def applier(repository, engines, tmp_path) -> Applier:
    return Applier(repository, engines, engines, Problems(Silent(), tmp_path / "bug.txt"))


def write(repository: MemoryRepository, files: Mapping[str, bytes | None]) -> str | None:
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


@pytest.mark.parametrize("broken", [None, b"{", ROUTE.replace(b"weight: 100", b"weight: many")])
def test_a_folder_that_cannot_be_served_keeps_its_newest_objects(repository, tmp_path, broken):
    """After a start a broken folder serves what it last said, whoever refuses it, and the reason is on record."""
    write(repository, GOOD)
    write(repository, {f"{FOLDER}/route.yaml": broken})
    tip = write(repository, {"unrelated.md": b"x"})
    engines = Engines()
    applier(repository, engines, tmp_path).look()
    assert ("production", tip, 1) in engines.applied
    assert engines.routes == [100]
    assert engines.recorded["production"]


@pytest.mark.parametrize("content", [b"{", b"kind: Nonsense\n", None])
def test_a_broken_environments_file_leaves_the_valid_one_in_force(repository, tmp_path, content):
    """However environments.yaml is broken, or deleted, what it said before holds, for commits after it, too."""
    write(repository, {"environments.yaml": content})
    tip = write(repository, {"unrelated.md": b"x"})
    engines = Engines()
    applier(repository, engines, tmp_path).look()
    assert [(name, at) for name, at, _ in engines.applied] == [("training", tip), ("production", tip)]
