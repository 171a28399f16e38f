"""Where data and model artifacts are kept, each under a URI whose bytes never change."""

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

    def delete(self, uri: str) -> int:
        """Delete what is under `uri`; returns bytes freed, 0 when there was nothing."""
