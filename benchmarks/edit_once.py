"""What one process of the tool does to bring edits of manifests into a repository behind a server.

    python benchmarks/edit_once.py LOCATION CACHE RELEASE together|apart MANIFEST [MANIFEST …]

Each manifest's release is replaced and committed. `together` pushes all commits at once, `apart` each on its own.
"""

import sys
from dataclasses import replace
from pathlib import Path

from mlgitops.adapters.repository.git import open_repository
from mlgitops.core.errors import Conflict
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.manifest.owned import edit_service, read_service
from mlgitops.ports.repository import Change, Person, Repository


def main(location: str, cache: str, release: str, how: str, *paths: str) -> None:
    """Edit and push."""
    repository = open_repository(
        location, identity=Person(name="mlgitops", email="mlgitops@example.org"), cache=Path(cache)
    )
    for chosen in [paths] if how == "together" else [(path,) for path in paths]:
        while not _push(repository, release, chosen):
            pass


def _push(repository: Repository, release: str, paths: tuple[str, ...]) -> bool:
    """Read, edit, push; False when another writer was faster."""
    snapshot = repository.snapshot(MAIN)
    changes = []
    for path in paths:
        data = snapshot.read(path)
        assert data is not None, path
        edited = edit_service(data, path, replace(read_service(data, path), release=release))
        changes.append(Change(message=f"serve {release} from {path}", files={path: edited}))
    try:
        repository.update(MAIN, snapshot.revision, changes)
    except Conflict:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
