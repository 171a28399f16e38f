"""Making the two bare repositories of the embedded engine, and the remote `local` that a push goes to."""

import subprocess
from pathlib import Path
from typing import Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.protection import protect
from mlgitops.app.initialise import initialise_environment
from mlgitops.core.errors import InvalidInput, Unavailable
from mlgitops.core.ledger import first_files
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.local.wiring import TOOL
from mlgitops.ports.repository import Change

ENVIRONMENT_REPOSITORY: Final = "environment.git"
MODEL_REPOSITORY: Final = "model.git"
REMOTE: Final = "local"
_BRANCH: Final = "branch"


def prepare(home: Path, directory: Path) -> None:
    """Make what is missing of an engine's home for the model repository at `directory`; what is there stays.

    Raises:
        InvalidInput: `directory` is no git repository, or its remote `local` leads elsewhere.
    """
    top = _git(directory, "rev-parse", "--show-toplevel")
    current = _git(directory, "symbolic-ref", "--short", "HEAD")
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / ".gitignore", b"*\n")
    for name, first in ((MODEL_REPOSITORY, current), (ENVIRONMENT_REPOSITORY, "main")):
        if not (home / name / "HEAD").exists():
            init_bare(home / name, first)
    # Pushes are taken one by one from this log; a bare repository keeps none by default.
    _git(home / MODEL_REPOSITORY, "config", "core.logAllRefUpdates", "true")
    if not (home / _BRANCH).exists():
        write_atomically(home / _BRANCH, current.encode())
    _first_commits(home / ENVIRONMENT_REPOSITORY, home)
    protect(home / ENVIRONMENT_REPOSITORY)
    _remote(Path(top), home / MODEL_REPOSITORY, branch(home))


def branch(home: Path) -> str:
    """Return the branch of the model repository that is released."""
    return (home / _BRANCH).read_text().strip()


def _first_commits(repository: Path, home: Path) -> None:
    opened = open_repository(str(repository), identity=TOOL, cache=home)
    if opened.snapshot(MAIN).revision is None:
        files = Change(message="init: the environment repository", files=initialise_environment())
        opened.create({MAIN: files, LEDGER: Change(message="init: the ledger", files=first_files())})


def _remote(directory: Path, target: Path, released: str) -> None:
    found = _git(directory, "remote", "get-url", REMOTE, quiet=True)
    if not found:
        _git(directory, "remote", "add", REMOTE, str(target))
        # Without an upstream branch, `git push local` would ask for one.
        _git(directory, "config", f"remote.{REMOTE}.push", f"refs/heads/{released}")
    elif Path(found) != target:
        raise InvalidInput(
            f"the remote `{REMOTE}` leads to {found}, not to {target}; "
            f"`git remote remove {REMOTE}` lets it be made anew"
        )


def _git(directory: Path, *words: str, quiet: bool = False) -> str:
    try:
        done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable("git", error.strerror or str(error)) from error
    if done.returncode and not quiet:
        raise InvalidInput(done.stderr.strip() or f"git {words[0]} failed", path=str(directory))
    return done.stdout.strip() if not done.returncode else ""
