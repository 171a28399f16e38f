"""Pull-request mode by command, as the how-to shows it: variables, words, JSON, and what is loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_every_verb import fits
from tests.support.github import TOKEN, GitHubServer, github
from tests.support.world import ENVIRONMENTS, push, settle, world_of

MODE = ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    writeMode: pull-request\n    automatic: false\n")


@dataclass
class Shell:
    """A shell in which the variables are set."""

    folder: Path
    server: GitHubServer
    release: str

    def run(self, *words: str, **more: str | None) -> "subprocess.CompletedProcess[str]":
        given = {
            **os.environ,
            "HOME": str(self.folder),
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "MLGITOPS_ENVIRONMENT_REPOSITORY": str(self.folder / "environment.git"),
            "MLGITOPS_FORGE": self.server.address,
            "MLGITOPS_FORGE_TOKEN": TOKEN,
            **more,
        }
        variables = {name: value for name, value in given.items() if value is not None}
        command = [sys.executable, "-m", "mlgitops", *words]
        return subprocess.run(command, env=variables, cwd=self.folder, capture_output=True, text=True, check=False)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    world, engine = world_of(tmp_path, environments=MODE)
    release = push(world, "one", engine=engine)
    settle(world, engine, 1)
    with github(tmp_path / "environment.git") as server:
        yield Shell(tmp_path, server, release.name)


def test_promote_opens_a_pull_request(shell: Shell) -> None:
    """`promote` answers with the pull request and its address, for people and programs; a dry run opens none."""
    planned = json.loads(shell.run("promote", shell.release, "--dry-run", "--output", "json").stdout)
    assert (planned["pullRequest"], planned["url"], fits(planned, "promote")) == (None, "", [])
    rehearsed = shell.run("promote", shell.release[:4], "--dry-run")
    assert (rehearsed.returncode, shell.server.pulls) == (0, {})
    assert "it would commit:\n  mlgitops-proposals/production/digits/" in rehearsed.stdout
    assert f"a pull request proposes release {shell.release} for production" in rehearsed.stdout
    done = shell.run("promote", shell.release[:4], "--reason", "agreed", "--output", "json")
    values = json.loads(done.stdout)
    assert (done.returncode, values["pullRequest"], values["changed"]) == (0, 1, True)
    assert fits(values, "promote") == []
    again = shell.run("promote", shell.release)
    assert again.stdout == (
        f"pull request #1 proposes already release {shell.release} for production: "
        "https://github.example/acme/environments/pull/1\n"
    )
    assert shell.server.refused == []


def test_a_missing_forge_is_told_with_its_mend(shell: Shell) -> None:
    """Without the variable, the error says which one to set, and the exit code says that the input is at fault."""
    done = shell.run("promote", shell.release, MLGITOPS_FORGE=None)
    assert done.returncode == 3
    assert "production takes promotions by pull request, and no forge is known" in done.stderr
    assert "MLGITOPS_FORGE" in done.stderr


def test_a_wrong_token_is_in_no_output(shell: Shell) -> None:
    """A token that is refused ends the command with the forge's word, and is printed nowhere."""
    done = shell.run("promote", shell.release, "--verbose", MLGITOPS_FORGE_TOKEN="not-the-right-one")
    assert done.returncode == 1
    assert "does not take the token" in done.stderr
    assert "not-the-right-one" not in done.stdout + done.stderr


def test_who_does_not_ask_a_forge_does_not_load_one(shell: Shell) -> None:
    """`status` of an environment in pull-request mode loads no HTTP client and asks nobody."""
    variables = {
        **os.environ,
        "HOME": str(shell.folder),
        "MLGITOPS_ENVIRONMENT_REPOSITORY": str(shell.folder / "environment.git"),
        "MLGITOPS_FORGE": shell.server.address,
    }
    script = (
        "import sys\n"
        "from mlgitops.cli.main import main\n"
        "try:\n"
        "    main(['status'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit(7 if 'requests' in sys.modules else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, shell.server.calls) == (0, []), done.stderr
