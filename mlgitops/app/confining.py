"""A repository in which only one model can be changed: the check stands where everything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mlgitops.app.context import Context
from mlgitops.app.passing import Passing
from mlgitops.core.errors import Denied
from mlgitops.core.manifest.fields import LEDGER, MAIN, PROPOSALS
from mlgitops.ports.repository import Change, Repository

C = TypeVar("C", bound=Context)


class Confined(Passing):
    """Implements `ports.repository.Repository` over another one; refuses to touch what is not the model's."""

    def __init__(self, repository: Repository, model: str) -> None:
        """Confine all writing to the files of `model`: its folders on `main`, its own files in the ledger."""
        super().__init__(repository)
        self._model = model

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Write, where every path is the model's.

        Raises:
            Denied: One is not; nothing was written.
        """
        outside = [path for change in changes for path in change.files if not _belongs(ref, path, self._model)]
        if outside:
            raise Denied("changing", f"{outside[0]!r:.200} of {ref}", f"it does not belong to model {self._model}")
        return self._repository.update(ref, expected, changes)

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Refuse: a whole reference is no model's.

        Raises:
            Denied: Always.
        """
        raise Denied("creating", ", ".join(changes), f"it does not belong to model {self._model}")

    def branch(self, ref: str, base: str, change: Change) -> str:
        """Propose something for `main`, where every path is the model's.

        Raises:
            Denied: One is not, or it is no branch of proposals for the model; nothing was written.
        """
        parts = ref.removeprefix(PROPOSALS).split("/")
        own = ref.startswith(PROPOSALS) and len(parts) == 3 and parts[1] == self._model
        outside = [path for path in change.files if not own or not _belongs(MAIN, path, self._model)]
        if outside:
            raise Denied("proposing", f"{outside[0]!r:.200} by {ref}", f"it does not belong to model {self._model}")
        return self._repository.branch(ref, base, change)


def confined(context: C, model: str) -> C:
    """Return the same world, in which nothing but the files of `model` can be written."""
    return replace(context, repository=Confined(context.repository, model))


def _belongs(ref: str, path: str, model: str) -> bool:
    """Say whether a file is the model's own, and nothing that could be another's by way of `..` or a longer path."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return False
    if ref == MAIN:
        return len(parts) == 4 and parts[0] == "environments" and parts[2] == model
    if ref != LEDGER:
        return False
    owner = {"models": 1, "environments": 2}.get(parts[0])
    return owner is not None and len(parts) > owner + 1 and parts[owner] == model
