"""What the engine tells: a problem once for as long as it lasts, and again when it comes back."""

import threading
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from mlgitops.adapters.atomic import full_disk, write_atomically
from mlgitops.adapters.redacting import redacted
from mlgitops.core.errors import MlgitopsError
from mlgitops.ports.observer import Observer

QUIET_SECONDS: Final = 30.0
"""The same words are told once in this time, however often what they say comes and goes."""
REMEMBERED: Final = 256
"""Words that are remembered at most; the oldest go first."""


class Seldom:
    """An observer that does not repeat itself: a pass that waits says so twice a second."""

    def __init__(self, observer: Observer, now: Callable[[], float] = time.monotonic) -> None:
        """Tell `observer`; `now` is in seconds."""
        self._observer, self._now = observer, now
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, message: str) -> None:
        """Tell it, unless the same words were told within `QUIET_SECONDS`."""
        now = self._now()
        with self._lock:
            if now - self._told.get(message, -QUIET_SECONDS) < QUIET_SECONDS:
                return
            self._told.pop(message, None)
            self._told[message] = now  # the newest last
            while len(self._told) > REMEMBERED:
                del self._told[next(iter(self._told))]
        self._observer.note(message)


class Problems:
    """What is wrong now, by topic; each is told when it appears in its topic, not while it stays there."""

    def __init__(self, observer: Observer, trace: Path, now: Callable[[], float] = time.monotonic) -> None:
        """Tell `observer`; the trace of a bug goes to the file `trace`."""
        self._observer, self._trace = Seldom(observer, now), trace
        self._present: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def are(self, topic: str, words: Collection[str]) -> None:
        """Say everything that is wrong with one topic now; nothing when it is well."""
        with self._lock:
            before = self._present.pop(topic, frozenset())
            if words:
                self._present[topic] = frozenset(words)
        for one in dict.fromkeys(words):
            if one not in before:
                self._observer.note(f"problem  {one}")

    def attempt(self, topic: str, work: Callable[[], None]) -> bool:
        """Do something and say whether it went well; the engine goes on: what serves must not stop for a bug."""
        try:
            work()
        except MlgitopsError as error:
            self.are(topic, [str(error)])
            return False
        except Exception as error:  # noqa: BLE001 - told as the bug it is, with the trace in a file
            if isinstance(error, OSError) and (full := full_disk(error)):
                self.are(topic, [str(full)])
                return False
            self._keep(traceback.format_exc())
            what = f"{type(error).__name__}: {error}"
            self.are(topic, [f"this is a bug in mlgitops: {what}; please report it with {self._trace}"])
            return False
        self.are(topic, [])
        return True

    def _keep(self, trace: str) -> None:
        try:
            write_atomically(self._trace, redacted(trace).encode(errors="backslashreplace"))
        except (OSError, MlgitopsError):  # a full disk must not end the thread that meets it
            return
