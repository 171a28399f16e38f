"""A pushed commit, checked out into a folder of its own."""

import subprocess
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


def resolve(repository: Path, revision: str | None) -> tuple[Path, str]:
    """Return the folder of a repository's objects, and the full revision of a commit; HEAD for None.

    Raises:
        InvalidInput: There is no repository, or no such commit.
    """
    words = ["git", "-C", str(repository), "rev-parse", "--absolute-git-dir", f"{revision or 'HEAD'}^{{commit}}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable("git", error.strerror or str(error)) from error
    if done.returncode:
        raise InvalidInput(done.stderr.strip() or f"no commit {revision}", path=str(repository))
    folder, commit = done.stdout.split("\n")[:2]
    return Path(folder), parse_revision(commit)
