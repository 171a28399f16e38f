"""What is typed most starts fast: it loads nothing that it does not need."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgitops.cli import remembered
from tests.cli.conftest import Desk

HEAVY = {"tensorflow", "keras", "docker", "kubernetes", "numpy", "scipy", "aiohttp", "jinja2", "jsonschema", "filelock"}
PROGRAM = """
import json, sys
from mlgitops.cli.main import run
code = run(json.loads(sys.argv[1]))
sys.stderr.write(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(*words: str) -> tuple[str, set[str]]:
    """Return what a command printed, and the packages it loaded, in an interpreter of its own."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    return done.stdout, set(modules)


def test_help_loads_nothing() -> None:
    """The help page needs neither the parser of options nor anything heavier."""
    _, modules = loaded("--help")
    assert not modules & (HEAVY | {"click", "pygit2", "yaml", "typing", "dataclasses"})


@pytest.mark.parametrize(
    "words",
    [["promote", "--help"], ["lint", "--help"], ["reconcile", "--help"], ["local", "up", "--help"]],
    ids=" ".join,
)
def test_help_of_a_verb_loads_nothing_heavy(words) -> None:
    """The help of a verb loads no library of its work."""
    assert not loaded(*words, "--help")[1] & (HEAVY | {"pygit2", "yaml"})


def test_status_loads_what_reads_git_and_yaml(desk: Callable[[str], Desk]) -> None:
    """Status loads no numbers, no servers, no schemas: git and YAML suffice."""
    desk("calm")
    _, modules = loaded("status")
    assert not modules & HEAVY
    assert "pygit2" in modules


def test_status_that_has_not_changed_loads_nothing(desk: Callable[[str], Desk]) -> None:
    """Asked again, status gives the same answer without loading anything."""
    desk("calm")
    first, _ = loaded("status")
    second, modules = loaded("status")
    assert first == second
    assert not modules & (HEAVY | {"click", "pygit2", "yaml"})


def test_a_decision_answers_the_next_status_ahead(desk: Callable[[str], Desk]) -> None:
    """After a decision made on this machine, status tells the new state without loading anything."""
    desk("calm")("hold", "--reason", "audit")
    for words in (["status"], ["status", "--output", "json"]):
        told, modules = loaded(*words)
        assert "audit" in told
        assert not modules & (HEAVY | {"click", "pygit2", "yaml"})


def test_status_never_tells_what_is_no_longer_so(desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decision, place and question is answered anew, also after git packed its references."""
    place = desk("calm")
    first = place("status").out
    assert place("status").out == first
    place("hold", "--reason", "audit")
    held = place("status").out
    assert "on hold by" in held
    subprocess.run(["git", "-C", str(place.repository), "pack-refs", "--all"], check=True)
    assert remembered.recall(["status"]) == held
    place("resume")
    assert "on hold by" not in place("status").out
    assert place.json("status").values["models"]
    monkeypatch.setenv("MLGITOPS_ENVIRONMENT_REPOSITORY", str(place.stages.hostile))
    assert place("status").out != first


def test_what_waits_for_a_time_is_not_remembered(desk: Callable[[str], Desk]) -> None:
    """A proposed rollout may wait for the end of a freeze, so it is looked at every time."""
    place = desk("busy")
    assert "waiting: 1 approval missing" in place("status").out
    assert remembered.recall(["status"]) is None


def test_a_memory_that_cannot_be_kept_is_no_error(
    desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Status works where nothing can be written, and with a damaged memory."""
    place = desk("calm")
    told = place("status")
    (file,) = (tmp_path.__class__(os.environ["XDG_CACHE_HOME"]) / "mlgitops" / "status").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"\xff\xfe nonsense")
    assert place("status") == told
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert place("status") == told
