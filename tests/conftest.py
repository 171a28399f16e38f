"""Hermetic tests: no person's git configuration, no credentials, no colours."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    for name in [*os.environ]:
        if name.startswith(("GIT_", "GITHUB_", "MLGITOPS_")):
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
