"""What repositories over another one share: reading is passed on, writing is their matter."""

from collections.abc import Iterator

from mlgitops.ports.repository import Commit, Repository, Snapshot


class Passing:
    """The reading half of `ports.repository.Repository`, over another one."""

    def __init__(self, repository: Repository) -> None:
        """Read from `repository`."""
        self._repository = repository

    def snapshot(self, ref: str) -> Snapshot:
        """Fetch a reference and return its tree."""
        return self._repository.snapshot(ref)

    def at(self, revision: str) -> Snapshot:
        """Return the tree of a revision reachable from a fetched reference."""
        return self._repository.at(revision)

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Return the paths of files that differ between two revisions."""
        return self._repository.changed(before, after)

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        """Walk first parents, newest first."""
        return self._repository.history(revision, until=until, path=path)
