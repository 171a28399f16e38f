"""Brings labels that come in files of the store to the router.

They are in the file `labels/<environment>/<model>.jsonl`, which grows, and in all objects that come below the folder
`labels/<environment>/<model>/` and end with `.jsonl`.

Reading is remembered only after the router has the labels, and the router counts the first label of a request alone:
so a kill at any moment, and any number of readings, lose no label and double none.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.serving.label_files import Label, Part, Place, read_labels
from mlgitops.core.errors import MlgitopsError
from mlgitops.local.telling import Problems
from mlgitops.ports.observer import Observer
from mlgitops.ports.store import Store

FOLDER: Final = "labels"
ENDING: Final = ".jsonl"
STATE: Final = "labels.json"
DEPTH: Final = 6
"""Folders in folders that are looked into below a model's."""
TOLD_LINES: Final = 5
"""Lines of a reading that are told by their number, when they are no labels; the others are counted."""
CUT_OFF_SECONDS: Final = 60.0
"""A last line without an end in a file that did not change for so long was cut off."""
PARTS: Final = 20
"""Readings of one file in one look, at most: other files wait."""
_WHY: Final = {
    "unknown": "of requests that nobody remembers",
    "late": "of requests that are too old",
    "invalid": "that do not fit what was predicted",
}


class Router(Protocol):
    """Where labels go."""

    def report(self, environment: str, model: str, labels: Sequence[Label]) -> Mapping[str, str] | None:
        """See `EmbeddedServing.report`."""


class _File(NamedTuple):
    name: str
    """Path in the store."""
    environment: str
    model: str


class Labels:
    """Looks for labels that came; one object for the life of an engine."""

    def __init__(
        self,
        home: Path,
        store: Store,
        router: Router,
        observer: Observer,
        problems: Problems,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Go on where an earlier engine of this home ended.

        Args:
            home: The engine's folder, which remembers what was read.
            store: Where label files are.
            router: Takes labels.
            observer: Told of lines that are no labels, and of labels that found no request.
            problems: Told what is wrong for as long as it is: a file that cannot be read, a line that was cut off.
            now: Seconds since 1970.
        """
        self._state, self._store, self._router, self._now = home / STATE, store, router, now
        self._observer, self._problems = observer, problems
        self._places = _load(self._state)
        self._read: dict[str, tuple[int, int, int]] = {}
        """Inode, size and time of files that are read to their end."""
        self._open: dict[str, int] = {}
        """Number of the last line of files in which it has no end yet."""

    def look(self) -> None:
        """Take what came since the last look; a file that makes trouble holds up no other."""
        words, there = list[str](), set[str]()
        for one in self._files():
            there.add(one.name)
            try:
                words += self._take(one)
            except MlgitopsError as error:
                words.append(f"{one.name}: {error}")
            except OSError as error:
                words.append(f"{one.name}: {error.strerror or type(error).__name__}")
        for gone in {*self._places} - there:
            del self._places[gone]
        self._problems.are(FOLDER, words)

    def _files(self) -> Iterator[_File]:
        for folder in self._below(FOLDER):
            environment = folder.rpartition("/")[2]
            for path in self._below(folder):
                model = path.rpartition("/")[2].removesuffix(ENDING)
                yield from self._of_model(path, environment, model, DEPTH)

    def _of_model(self, path: str, environment: str, model: str, depth: int) -> Iterator[_File]:
        if path.endswith(ENDING):
            yield _File(path, environment, model)
        elif depth:
            for one in self._below(path):
                yield from self._of_model(one, environment, model, depth - 1)

    def _below(self, folder: str) -> list[str]:
        return [f"{folder}/{uri.rpartition('/')[2]}" for uri in self._store.paths(folder)]

    def _take(self, one: _File) -> Iterator[str]:
        """Take what a file has that was not read; yields what is wrong with it for as long as it is."""
        file = self._store.path(self._store.uri(one.name))
        status = file.stat()
        signature = status.st_ino, status.st_size, status.st_mtime_ns
        if self._read.get(one.name) != signature:
            part = self._parts(one, file)
            self._open[one.name] = part.open_line
            if not part.more:
                self._read[one.name] = signature
        line = self._open.get(one.name)
        if line and self._now() - status.st_mtime > CUT_OFF_SECONDS:
            yield f"{one.name}:{line}: the line was cut off; what is whole was read, and this is when its end comes"

    def _parts(self, one: _File, file: Path) -> Part:
        left, part = PARTS, Part(more=True)
        while left and part.more:
            part = read_labels(file, self._places.get(one.name, Place()))
            answers = self._router.report(one.environment, one.model, part.labels) if part.labels else {}
            if answers is None:
                return Part(more=True)
            self._tell(one.name, part, answers)
            if part.place != self._places.get(one.name):
                self._places[one.name] = part.place
                self._save()
            left -= 1
        return part

    def _tell(self, name: str, part: Part, answers: Mapping[str, str]) -> None:
        for line, why in sorted(part.problems.items())[:TOLD_LINES]:
            self._observer.note(f"labels   {name}:{line}: {why}; it is left out")
        if len(part.problems) > TOLD_LINES:
            self._observer.note(f"labels   {name}: {len(part.problems) - TOLD_LINES} further lines are left out")
        lines = {label.id: label.line for label in part.labels}
        for answer, count in sorted(Counter(answers.values()).items()):
            if answer in _WHY:  # a repeated one is none of it: files are read again, and the first label counts
                first = min(lines.get(request, 0) for request, told in answers.items() if told == answer)
                self._observer.note(f"labels   {name}:{first}: {count} {_WHY[answer]} ({answer}), this is the first")

    def _save(self) -> None:
        places = {name: place.to_mapping() for name, place in self._places.items()}
        write_atomically(self._state, json.dumps(places, separators=(",", ":")).encode())


def _load(file: Path) -> dict[str, Place]:
    """Return what was read; nothing where that cannot be known: reading again is harmless."""
    try:
        return {name: Place(**place) for name, place in json.loads(file.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
