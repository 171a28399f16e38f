"""Keeps the environment repository small: every decision is a commit, and loose objects would grow for ever."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgitops.core.errors import Unavailable

GIT_SETTINGS: Final = (
    "gc.auto=1000",  # loose objects before anything is done
    "gc.autoDetach=false",  # a child of the engine, which ends it
    "gc.pruneExpire=2.weeks.ago",  # what a writer has not tied to a branch yet stays
    "gc.packRefs=false",  # references are moved meanwhile
    "pack.threads=1",  # next to servers
)
_POLL_SECONDS: Final = 0.5


class Housekeeping:
    """Lets git pack a bare repository when that is worth it."""

    def __init__(self, repository: Path) -> None:
        """Keep `repository`."""
        self._repository = repository

    def collect(self, stop: threading.Event) -> None:
        """Pack what lies loose, until done or told to stop; git does nothing when there is little.

        Raises:
            Unavailable: git is not there, or could not do it.
        """
        settings = [word for one in GIT_SETTINGS for word in ("-c", one)]
        command = ["git", *settings, "-C", str(self._repository), "gc", "--auto", "--quiet"]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable("git", error.strerror or str(error)) from error
        words = self._wait(process, stop)
        if process.returncode and not stop.is_set():
            raise Unavailable(
                f"git gc in {self._repository}", words.strip()[-500:] or f"exit code {process.returncode}"
            )

    def _wait(self, process: "subprocess.Popen[str]", stop: threading.Event) -> str:
        """Wait for the end of git, and of its children when told to stop: what is half packed does no harm."""
        while True:
            try:
                return process.communicate(timeout=_POLL_SECONDS)[1]
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
