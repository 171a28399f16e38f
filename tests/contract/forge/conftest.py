"""A forge over a repository with a branch to propose; every adapter runs the same suite."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlgitops.adapters.forge.github import GitHub
from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.redaction import Redactor
from mlgitops.ports.forge import Forge
from mlgitops.ports.repository import Change, Person
from tests.support.github import TOKEN, GitHubServer, github

IDENTITY = Person(name="mlgitops", email="m@x")


@dataclass
class Place:
    """A forge, and what people do there."""

    forge: Forge
    server: GitHubServer
    propose: Callable[[str], str]
    """Makes a branch with a commit; returns its revision."""
    waited: list[float]


@pytest.fixture(params=["github", "github as an App"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "environments.git"
    init_bare(path)
    repository = open_repository(str(path), identity=IDENTITY, cache=tmp_path / "cache")
    repository.create({MAIN: Change(message="init", files={"a": b"a\n"})})

    def propose(branch: str) -> str:
        base = repository.snapshot(MAIN).revision
        assert base is not None
        return repository.branch(f"refs/heads/{branch}", base, Change(message=branch, files={"a": branch.encode()}))

    waited: list[float] = []
    with github(path) as server:
        server.tells_who = request.param == "github"
        forge = GitHub(server.address, TOKEN, redact=Redactor(["hunter2hunter2"]), sleep=waited.append)
        yield Place(forge, server, propose, waited)
