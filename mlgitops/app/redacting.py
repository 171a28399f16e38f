"""The environment repository as this tool writes it: nothing that is secret enters its history."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlgitops.app.passing import Passing
from mlgitops.core.ledger import without_secrets
from mlgitops.core.manifest.fields import LEDGER
from mlgitops.core.redaction import Redactor
from mlgitops.ports.repository import Change, Repository


class Redacting(Passing):
    """Implements `ports.repository.Repository` over another one, and takes secrets out of whatever is written.

    Messages and the ledger's files are redacted. Manifests on `main` are not: every byte of them belongs to people, and
    what this tool writes there comes from a configuration that is refused when it holds a secret.
    """

    def __init__(self, repository: Repository, redactor: Redactor) -> None:
        """Write to `repository`, through `redactor`."""
        super().__init__(repository)
        self._redactor = redactor

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Put changes, without secrets, on top of `expected`; see the port."""
        return self._repository.update(ref, expected, [self._kept(ref, one) for one in changes])

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Create references; see the port."""
        return self._repository.create({ref: self._kept(ref, one) for ref, one in changes.items()})

    def branch(self, ref: str, base: str, change: Change) -> str:
        """Create a branch, without secrets in its message; see the port."""
        return self._repository.branch(ref, base, self._kept(ref, change))

    def _kept(self, ref: str, change: Change) -> Change:
        files = change.files
        if ref == LEDGER:
            files = {
                path: None if data is None else without_secrets(path, data, self._redactor)
                for path, data in files.items()
            }
        trailers = {name: self._redactor(value) for name, value in change.trailers.items()}
        return replace(change, message=self._redactor(change.message), files=files, trailers=trailers)
