"""Where data and model artifacts are kept, each under a URI whose bytes never change."""

from datetime import datetime
from pathlib import Path
from typing import Protocol

from mlgitops.core.names import Digest


class Store(Protocol):
    """A shared volume, an object store, or a folder of this machine."""

    def put(self, source: Path, folder: str) -> tuple[str, Digest]:
        """Put a file or directory under `<folder>/<digest>` unless it is there; return its URI and digest.

        Links that leave `source`, devices and sockets are refused with `InvalidInput`.
        """

    def uri(self, path: str) -> str:
        """Return the URI for a path of this store (like `models/digits/3f2a…`)."""

    def path(self, uri: str) -> Path:
        """Return a local path with the bytes of `uri`; `NotFound` where there are none."""

    def digest(self, uri: str) -> Digest:
        """Return the digest over the files under `uri`, read now; `NotFound` where there are none."""

    def paths(self, folder: str) -> tuple[str, ...]:
        """Return the URIs directly below a folder."""

    def size_bytes(self, uri: str) -> int:
        """Return the size of all files under `uri`; 0 when there is nothing."""

    def delete(self, uri: str, *, unless_used_since: datetime | None = None) -> int:
        """Delete what is under `uri`; returns bytes freed, 0 when there was nothing.

        What was put, or found there by a `put`, since `unless_used_since` stays, however close that `put` is: somebody
        may be about to refer to it.
        """

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what interrupted puts and deletions left."""
