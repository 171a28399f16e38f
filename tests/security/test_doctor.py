"""`mlgitops doctor`: each thing that lets somebody in, or loses something, is found and has a mend."""

import json
import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.protection import examine_protection, protect
from mlgitops.app.examining import examine
from mlgitops.app.initialise import initialise_owners
from mlgitops.cli.main import run
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.findings import Finding
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.owners import CODEOWNERS_FILE, codeowners
from mlgitops.core.schemas import schema
from mlgitops.local.machine import examine_machine, examine_token
from mlgitops.ports.repository import Change
from tests.support.world import ENVIRONMENTS, Quality, live, quick_world, world_of

OWNERS = "owners:\n  default: ['@x/platform']\n"


def outcomes(found, check: str) -> list[str]:
    return [one.outcome for one in found if one.check == check]


def examined(world, *, shared: bool = True) -> list[Finding]:
    found = list(examine(world, shared=shared))
    assert all(one.mend for one in found if one.outcome in {"error", "warning"}), found
    return found


def write(world, ref: str, files: dict[str, bytes | None]) -> None:
    world.repository.update(ref, world.repository.snapshot(ref).revision, [Change(message="by hand", files=files)])


def test_a_healthy_repository_has_no_error() -> None:
    """What the tool itself wrote, a release that serves included, is found healthy in every respect."""
    world, engine = quick_world(ENVIRONMENTS + OWNERS)
    live(world, engine, "one", Quality())
    write(world, MAIN, {CODEOWNERS_FILE: codeowners(load_environments((ENVIRONMENTS + OWNERS).encode()))})
    found = [
        one for one in examined(world) if one.check != "clock"
    ]  # commits have the real time, the world's is its own
    assert {one.outcome for one in found} <= {"ok", "warning"}, found
    assert {one.check for one in found} == {"repository", "configuration", "manifests", "owners", "ledger"}


def test_a_configuration_that_is_not_valid_is_named() -> None:
    """Every problem of environments.yaml is told with its place, and the other questions are answered all the same."""
    world, _ = quick_world()
    write(world, MAIN, {"environments.yaml": ENVIRONMENTS.replace("plan: quick", "plan: slow").encode()})
    found = examined(world)
    assert outcomes(found, "configuration") == ["error"]
    assert outcomes(found, "ledger") == ["ok"]


def test_a_missing_damaged_or_rewound_ledger_is_an_error() -> None:
    """No ledger, a file of it that cannot be read, and a `main` that is ahead of it are each found."""
    world, engine = quick_world()
    before = world.repository.snapshot(LEDGER)
    kept = {path: before.read(path) for path in before.paths()}
    name = live(world, engine, "one", Quality())
    path = f"models/digits/releases/{name}.yaml"
    good = world.repository.snapshot(LEDGER).read(path)
    write(world, LEDGER, {path: b"history: !!timestamp x"})
    assert set(outcomes(examined(world), "ledger")) == {"error"}
    write(world, LEDGER, {path: good})
    assert outcomes(examined(world), "ledger") == ["ok"]
    now = world.repository.snapshot(LEDGER)
    write(world, LEDGER, {one: kept.get(one) for one in now.paths() if one.startswith("environments/")})
    (message,) = [one.message for one in examined(world) if one.check == "ledger"]
    assert "rewound" in message
    write(world, LEDGER, {"ledger.yaml": None})
    assert outcomes(examined(world), "ledger") == ["error"]


@pytest.mark.parametrize(
    ("environments", "written", "outcome"),
    [
        (ENVIRONMENTS, None, ["warning"]),
        (ENVIRONMENTS + OWNERS, None, ["error"]),
        (ENVIRONMENTS + OWNERS, codeowners(load_environments(ENVIRONMENTS.encode())), ["error"]),
        (ENVIRONMENTS + OWNERS, b"* @somebody\n", ["warning"]),
    ],
)
def test_owners_that_are_missing_or_not_current_are_found(environments: str, written, outcome: list[str]) -> None:
    """No owners, no CODEOWNERS, and one that is not what environments.yaml says are each told."""
    world, _ = quick_world(environments)
    if written is not None:
        write(world, MAIN, {CODEOWNERS_FILE: written})
    assert outcomes(examined(world), "owners") == outcome


def test_a_clock_that_is_behind_is_found(tmp_path: Path) -> None:
    """A commit from this machine's future means that one of two clocks is wrong."""
    world, engine = world_of(tmp_path)
    engine.clock.pass_seconds((time.time() - world.clock.now().timestamp()) + 10)
    assert outcomes(examined(world), "clock") == ["ok"]
    engine.clock.pass_seconds(-timedelta(hours=1).total_seconds())
    assert outcomes(examined(world), "clock") == ["error"]


def test_branches_that_can_be_rewritten_are_found(tmp_path: Path) -> None:
    """A bare repository that takes force-pushes or deletions is an error until the mend is run."""
    path = tmp_path / "environment.git"
    init_bare(path)
    found = list(examine_protection(str(path)))
    assert outcomes(found, "protection") == ["error", "error"]
    for one in found:
        if one.mend:
            subprocess.run(one.mend, shell=True, check=True)
    assert outcomes(examine_protection(str(path)), "protection") == ["ok"]


def test_the_engines_own_repository_refuses_to_be_rewritten(tmp_path: Path) -> None:
    """After `protect`, git refuses a force-push and a deletion; a setting that a person made stays."""
    world_of(tmp_path)
    path, clone = tmp_path / "environment.git", tmp_path / "clone"
    protect(path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@x", "-C", str(clone)]
    subprocess.run(["git", "clone", "-q", str(path), str(clone)], check=True)
    subprocess.run([*git, "commit", "-q", "--amend", "-m", "rewritten"], check=True)
    for words in (["push", "-q", "--force", "origin", "main"], ["push", "-q", "origin", ":refs/heads/mlgitops/ledger"]):
        assert subprocess.run([*git, *words], capture_output=True, check=False).returncode != 0
    subprocess.run(["git", "-C", str(path), "config", "receive.denyDeletes", "false"], check=True)
    protect(path)
    assert outcomes(examine_protection(str(path)), "protection") == ["error"]


def test_locks_left_behind_are_found(tmp_path: Path) -> None:
    """A lock that a killed process left is named with the file to delete; one that is held right now is not."""
    path = tmp_path / "environment.git"
    init_bare(path)
    protect(path)
    lock = path / "refs" / "heads" / "main.lock"
    lock.touch()
    assert outcomes(examine_protection(str(path)), "locks") == ["ok"]
    os.utime(lock, (time.time() - 3600,) * 2)
    (found,) = [one for one in examine_protection(str(path)) if one.check == "locks"]
    assert found.outcome == "error"
    assert str(lock) in found.mend


def test_a_server_is_not_said_to_protect() -> None:
    """What cannot be seen from here is unknown, never ok."""
    assert outcomes(examine_protection("https://git.example.org/a.git"), "protection") == ["unknown"]


HERE = {"GITHUB_ACTIONS": "true", "GITHUB_TOKEN": "ghs_workflow", "GITHUB_REPOSITORY": "x/model"}


@pytest.mark.parametrize(
    ("location", "token", "outcome"),
    [
        ("https://github.com/x/environment.git", "ghs_workflow", ["error"]),
        ("https://x-access-token:ghs_workflow@github.com/x/environment", None, ["error"]),
        ("https://github.com/x/environment.git", None, ["error"]),
        ("https://github.com/X/Model", "ghs_workflow", ["warning"]),
        ("https://github.com/x/environment", "ghs_app", ["ok"]),
        ("https://git.example.org/x/environment", "ghs_workflow", []),
        ("git@github.com:x/environment.git", None, []),
    ],
)
def test_a_workflows_own_token_is_found_where_it_cannot_work(location: str, token, outcome: list[str]) -> None:
    """GITHUB_TOKEN is an error for another repository, a warning for the workflow's own; it is never shown."""
    found = list(examine_token(location, token, HERE))
    assert outcomes(found, "token") == outcome
    assert not any("ghs_" in one.message + one.mend for one in found)
    assert list(examine_token(location, token, {})) == []


def test_packages_that_do_not_fit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement that is missing or has another version is named; extras are nobody's error."""
    wanted = ["click>=99", "not-there-at-all>=1", "tensorflow>=99; extra == 'tensorflow'", "pyyaml>=5"]
    monkeypatch.setattr("mlgitops.local.machine.metadata.requires", lambda _: wanted)
    faults = [one.message for one in examine_machine(None) if one.outcome == "error"]
    assert len(faults) == 2
    assert faults[0].startswith("click is ")
    assert faults[1] == "not-there-at-all is missing"


def test_an_engine_that_does_not_run_is_told(tmp_path: Path) -> None:
    """Where there is an engine's folder and no engine, that is told."""
    assert outcomes(examine_machine(tmp_path), "engine") == ["warning"]


def test_the_command_tells_people_programs_and_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`doctor` prints every finding, as data by its schema, and ends with 10 while there is an error."""
    world_of(tmp_path)
    path = tmp_path / "environment.git"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLGITOPS_ENVIRONMENT_REPOSITORY", str(path))
    assert run(["doctor", "--output", "json"]) == 10
    told = json.loads(capsys.readouterr().out)
    Draft202012Validator({**schema("output"), "anyOf": [{"$ref": "#/$defs/doctor"}]}).validate(told)
    assert (told["healthy"], told["errors"]) == (False, 2)
    protect(path)
    assert run(["doctor"]) == 0
    assert "ledger: every file can be read" in capsys.readouterr().out


def test_a_place_that_cannot_be_opened_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No repository, an address that says nothing, and a variable that is wrong are findings, with the rest beside."""
    monkeypatch.chdir(tmp_path)
    for location in ("", str(tmp_path / "nothing"), "ftp://x/y", "https://user:hunter2@127.0.0.1:9/x.git"):
        monkeypatch.setenv("MLGITOPS_ENVIRONMENT_REPOSITORY", location)
        assert run(["doctor"]) == 10
        said = capsys.readouterr().out
        assert "packages: mlgitops" in said
        assert "hunter2" not in said


def test_codeowners_are_written_and_never_over_somebody_elses(tmp_path: Path) -> None:
    """`init --codeowners` writes the file, brings its own up to date, and refuses to touch another one or a link."""
    with pytest.raises(NotFound):
        initialise_owners(tmp_path)
    (tmp_path / "environments.yaml").write_text(ENVIRONMENTS)
    assert list(initialise_owners(tmp_path, dry_run=True)) == [CODEOWNERS_FILE]
    assert not (tmp_path / CODEOWNERS_FILE).exists()
    initialise_owners(tmp_path)
    (tmp_path / "environments.yaml").write_text(ENVIRONMENTS + OWNERS)
    initialise_owners(tmp_path)
    assert b"@x/platform" in (tmp_path / CODEOWNERS_FILE).read_bytes()
    assert initialise_owners(tmp_path) == {}
    (tmp_path / CODEOWNERS_FILE).write_text("* @somebody\n")
    with pytest.raises(InvalidInput):
        initialise_owners(tmp_path)
    (tmp_path / CODEOWNERS_FILE).unlink()
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / CODEOWNERS_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput):
        initialise_owners(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "kept"
