"""Build logs, kept beside the images: redacted while they are written, the newest few of each image repository."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from mlgitops.adapters.builder.layout import parse_repository
from mlgitops.adapters.redacting import redactor
from mlgitops.core.errors import Unavailable
from mlgitops.core.redaction import Stream

KEPT: Final = 20
"""Logs of one image repository; older ones are deleted."""
LOG_BYTES: Final = 8 << 20
"""What is longer is left out; a build tells its own end."""


class Write(Protocol):
    """Takes a part of a log."""

    def __call__(self, text: str, /) -> None:
        """Keep it."""


@contextmanager
def kept_log(folder: Path, repository: str, tag: str) -> Iterator[Write]:
    """Lend a log to write to: `<folder>/<image repository>/<tag>.log`, anew for each build.

    Raises:
        Unavailable: It cannot be written.
    """
    place = folder.joinpath(*parse_repository(repository))
    stream, left = Stream(redactor()), LOG_BYTES
    try:
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"{tag}.log").open("wb") as file:

            def write(text: str) -> None:
                nonlocal left
                data = stream.take(text.encode(errors="replace"))[:left]
                left -= len(data)
                file.write(data)
                file.flush()

            try:
                yield write
            finally:
                file.write(stream.end()[:left])
        newest_first = sorted(place.glob("*.log"), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in newest_first[KEPT:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"log of the build in {place}", error.strerror or type(error).__name__) from error
