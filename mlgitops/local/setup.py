"""Making the two bare repositories of the embedded engine, and the remote `local` that a push goes to."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from mlgitops.ports.repository import Change, Repository

ENVIRONMENT_REPOSITORY: Final = "environment.git"
MODEL_REPOSITORY: Final = "model.git"
REMOTE: Final = "local"
_BRANCH: Final = "branch"


@dataclass(frozen=True, kw_only=True)
class Missing:
    """One thing that an engine's home lacks."""

    words: str
    """What making it does, like `make …`."""
    make: Callable[[], None]


def prepare(home: Path, directory: Path) -> None:
    """Make what is missing of an engine's home for the model repository at `directory`; what is there stays.

    Raises:
        InvalidInput: `directory` is no git repository, or its remote `local` leads elsewhere; nothing was made.
    """
    for one in missing(home, directory):
        one.make()
    protect(home / ENVIRONMENT_REPOSITORY)


def missing(home: Path, directory: Path) -> Sequence[Missing]:
    """Return what `prepare` would make, in its order; empty where everything is there.

    Raises:
        InvalidInput: As `prepare`.
    """
    return tuple(_missing(home, directory))


def _missing(home: Path, directory: Path) -> Iterator[Missing]:
    top = Path(_git(directory, "rev-parse", "--show-toplevel"))
    current = _git(directory, "symbolic-ref", "--short", "HEAD")
    model, environment = home / MODEL_REPOSITORY, home / ENVIRONMENT_REPOSITORY
    remote = _remote(top, model)
    if not (home / ".gitignore").exists():
        yield Missing(words=f"make the folder {home}", make=partial(write_atomically, home / ".gitignore", b"*\n"))
    if not (model / "HEAD").exists():
        yield Missing(words=f"make {model}, a bare repository", make=partial(init_bare, model, current))
    # Pushes are taken one by one from this log; a bare repository keeps none by default.
    if not model.exists() or _git(model, "config", "core.logAllRefUpdates", quiet=True) != "true":
        yield Missing(words=f"keep a log of pushes in {model}", make=lambda: _log_pushes(model))
    if not (home / _BRANCH).exists():
        words = f"release what is pushed to the branch {current}"
        yield Missing(words=words, make=partial(write_atomically, home / _BRANCH, current.encode()))
    if not (environment / "HEAD").exists():
        yield Missing(words=f"make {environment}, a bare repository", make=partial(init_bare, environment, "main"))
    if not environment.exists() or _opened(environment, home).snapshot(MAIN).revision is None:
        words = "commit environments.yaml to its main, and begin its ledger"
        yield Missing(words=words, make=lambda: _first_commits(environment, home))
    if remote is None:
        words = f"add the remote `{REMOTE}` to {top}"
        yield Missing(words=words, make=lambda: _add_remote(top, model, branch(home)))


def branch(home: Path) -> str:
    """Return the branch of the model repository that is released."""
    return (home / _BRANCH).read_text().strip()


def _first_commits(repository: Path, home: Path) -> None:
    files = Change(message="init: the environment repository", files=initialise_environment())
    ledger = Change(message="init: the ledger", files=first_files())
    _opened(repository, home).create({MAIN: files, LEDGER: ledger})


def _log_pushes(repository: Path) -> None:
    _git(repository, "config", "core.logAllRefUpdates", "true")


def _opened(repository: Path, home: Path) -> Repository:
    return open_repository(str(repository), identity=TOOL, cache=home)


def _remote(directory: Path, target: Path) -> str | None:
    """Return where the remote leads; None where there is none."""
    found = _git(directory, "remote", "get-url", REMOTE, quiet=True)
    if found and Path(found) != target:
        raise InvalidInput(
            f"the remote `{REMOTE}` leads to {found}, not to {target}; "
            f"`git remote remove {REMOTE}` lets it be made anew"
        )
    return found or None


def _add_remote(directory: Path, target: Path, released: str) -> None:
    _git(directory, "remote", "add", REMOTE, str(target))
    # Without an upstream branch, `git push local` would ask for one.
    _git(directory, "config", f"remote.{REMOTE}.push", f"refs/heads/{released}")


def _git(directory: Path, *words: str, quiet: bool = False) -> str:
    try:
        done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable("git", error.strerror or str(error)) from error
    if done.returncode and not quiet:
        raise InvalidInput(done.stderr.strip() or f"git {words[0]} failed", path=str(directory))
    return done.stdout.strip() if not done.returncode else ""
