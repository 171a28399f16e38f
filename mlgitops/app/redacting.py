"""The environment repository as this tool writes it: nothing that is secret enters its history."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mlgitops.core.ledger import without_secrets
from mlgitops.core.manifest.fields import LEDGER
from mlgitops.core.redaction import Redactor
from mlgitops.ports.repository import Change, Commit, Repository, Snapshot


class Redacting:
    """Implements `ports.repository.Repository` over another one, and takes secrets out of whatever is written.

    Messages and the ledger's files are redacted. Manifests on `main` are not: every byte of them belongs to people, and
    what this tool writes there comes from a configuration that is refused when it holds a secret.
    """

    def __init__(self, repository: Repository, redactor: Redactor) -> None:
        """Write to `repository`, through `redactor`."""
        self._repository, self._redactor = repository, redactor

    def snapshot(self, ref: str) -> Snapshot:
        """Fetch a reference and return its tree."""
        return self._repository.snapshot(ref)

    def at(self, revision: str) -> Snapshot:
        """Return the tree of a revision reachable from a fetched reference."""
        return self._repository.at(revision)

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Put changes, without secrets, on top of `expected`; see the port."""
        return self._repository.update(ref, expected, [self._kept(ref, one) for one in changes])

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Create references; see the port."""
        return self._repository.create({ref: self._kept(ref, one) for ref, one in changes.items()})

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        """Walk first parents, newest first."""
        return self._repository.history(revision, until=until, path=path)

    def _kept(self, ref: str, change: Change) -> Change:
        files = change.files
        if ref == LEDGER:
            files = {
                path: None if data is None else without_secrets(path, data, self._redactor)
                for path, data in files.items()
            }
        trailers = {name: self._redactor(value) for name, value in change.trailers.items()}
        return replace(change, message=self._redactor(change.message), files=files, trailers=trailers)
