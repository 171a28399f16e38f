"""What a checkout's files were at another revision: what a change is compared with."""

from collections.abc import Callable
from pathlib import Path

import pygit2

from mlgitops.adapters.repository import trees
from mlgitops.core.errors import InvalidInput, NotFound


def files_at(directory: Path, revision: str) -> Callable[[str], bytes | None]:
    """Return what reads files of a folder as a revision of its repository has them.

    Args:
        directory: A folder of a checkout; paths are relative to it.
        revision: A branch, tag or commit that the repository knows, like `origin/main`.

    Raises:
        InvalidInput: The folder belongs to no checkout.
        NotFound: There is no such revision.
    """
    found = pygit2.discover_repository(str(directory))
    repository = pygit2.Repository(found) if found else None
    if repository is None or repository.workdir is None:
        raise InvalidInput("a base can be given only for the checkout of a repository", path=str(directory))
    try:
        tree = repository.revparse_single(revision).peel(pygit2.Tree)
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise NotFound("revision", revision) from error
    prefix = directory.resolve().relative_to(Path(repository.workdir).resolve()).as_posix()
    return lambda path: trees.read(tree, path if prefix == "." else f"{prefix}/{path}")
