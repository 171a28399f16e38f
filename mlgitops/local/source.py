"""A pushed commit, checked out into a folder of its own."""

import subprocess
import tempfile
from pathlib import Path

from mlgitops.adapters.repository.export import export_tree
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.source.checkout import Checkout
from mlgitops.core.errors import InvalidInput, Unavailable
from mlgitops.core.names import parse_revision
from mlgitops.local.wiring import TOOL
from mlgitops.ports.source import SourceCommit


def checkout(repository: Path, revision: str, target: Path) -> Checkout:
    """Write a commit's tree to `target`, an empty folder, and return it as a source.

    Args:
        repository: A bare repository.
        revision: The commit, 40 hexadecimal digits.
        target: An empty folder, or one that does not exist.

    Raises:
        NotFound: There is no such repository or commit.
        InvalidInput: The tree holds what must not be written.
    """
    opened = open_repository(str(repository), identity=TOOL, cache=target)
    commit = next(iter(opened.history(revision)))
    export_tree(repository, revision, target)
    return Checkout(
        target,
        SourceCommit(
            revision=revision,
            author=f"{commit.author.name} <{commit.author.email}>",
            subject=commit.message.splitlines()[0] if commit.message else "",
        ),
    )


def checkout_of(repository: Path, revision: str | None, target: Path) -> Checkout:
    """Write the tree of a commit of any repository, one with a working tree too, and return it as a source.

    The commit alone is read: uncommitted files, the index, filters and hooks of the working tree play no part.

    Args:
        repository: A folder in a working tree, or a bare repository.
        revision: Anything that names a commit there; None for HEAD.
        target: An empty folder, or one that does not exist.

    Raises:
        InvalidInput: There is no repository, or no such commit, or the tree holds what must not be written.
        Unavailable: git is not there.
    """
    name = f"{revision or 'HEAD'}^{{commit}}"
    commit = parse_revision(_git(repository, "rev-parse", "--verify", "--end-of-options", name))
    with tempfile.TemporaryDirectory(prefix="mlgitops-objects-") as folder:
        bare = Path(folder) / "objects.git"
        _git(Path(folder), "init", "--quiet", "--bare", "--template=", str(bare))
        _share(repository, bare)
        _git(bare, "update-ref", "refs/heads/main", commit)  # what is read must belong to a branch
        return checkout(bare, commit, target)


def _share(repository: Path, bare: Path) -> None:
    """Let a bare repository read the objects of another one, without copying any."""
    objects = _git(repository, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (bare / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (bare / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    shallow = Path(_git(repository, "rev-parse", "--path-format=absolute", "--git-path", "shallow"))
    if shallow.is_file():  # a workflow's checkout has one commit without its parents
        (bare / "shallow").write_bytes(shallow.read_bytes())


def _git(directory: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable("git", error.strerror or str(error)) from error
    if done.returncode:
        raise InvalidInput(done.stderr.strip() or f"git {words[0]} failed", path=str(directory))
    return done.stdout.strip()
