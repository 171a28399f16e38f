"""Hermetic tests: no person's git configuration, no credentials, no colours."""

import os
from pathlib import Path

import pygit2
import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> None:
    """Repositories of tests need not survive a power cut: a disk's fsync is most of their time."""
    pygit2.settings.enable_fsync_gitdir(value=False)
    type(pygit2.settings).enable_fsync_gitdir = lambda *_, **__: None  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    for name in [*os.environ]:
        if name.startswith(("GIT_", "GITHUB_", "MLGITOPS_", "DOCKER_")):
            monkeypatch.delenv(name)
    person = "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
    (home / ".gitconfig").write_text(person)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture
def repository_root() -> Path:
    return Path(__file__).parent.parent
