"""The `Counts` port on files that the scraper of the embedded engine writes.

One file per environment, model and rollout, `<home>/samples/<environment>/<model>/<rollout>.jsonl`. A line is
`{"bounds": [seconds, …]}`, in force for the lines after it, or a sample with cumulative latency counts in that order.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final

from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Sample, SliceCounts
from mlgitops.ports.serving import Arm

SAMPLES: Final = "samples"
SERVICE: Final = "embedded metrics"
FILES: Final = 16
"""Files whose samples are kept in the process."""


def samples_file(home: Path, environment: str, model: str, rollout: int) -> Path:
    """Return where the samples of a rollout are."""
    return home / SAMPLES / environment / model / f"{rollout}.jsonl"


@dataclass(kw_only=True)
class _Known:
    """What was read of a file that only grows."""

    inode: int
    size: int = 0
    """Bytes of whole lines that were read."""
    modified_ns: int = -1
    line: bytes = b""
    """The last line that was read."""
    bounds: list[float] = field(default_factory=list)
    """In force for the next line."""
    samples: list[Sample] = field(default_factory=list)
    told: tuple[Sample, ...] = ()
    """The samples, as they were told last."""


class EmbeddedMetrics:
    """Reads what was scraped, from any process of this machine; of a file that grew, only what is new."""

    def __init__(self, home: Path) -> None:
        """Look at the metrics home of an engine that runs, ran or will."""
        self._home = home
        self._known: OrderedDict[Path, _Known] = OrderedDict()
        self._one_at_a_time = Lock()

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first; empty when there is none.

        Raises:
            Unavailable: No engine has run here, or the file cannot be read.
        """
        if not self._home.is_dir():
            raise Unavailable(SERVICE, "the engine has not run here")
        file = samples_file(self._home, environment, model, rollout)
        try:
            with self._one_at_a_time:
                return self._read(file)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(SERVICE, error.strerror or str(error)) from error

    def problem(self, environment: str, model: str) -> str:  # noqa: ARG002 - one shape for every source
        """Say nothing: the router that splits the traffic counts it, whatever is served."""
        return ""

    def _read(self, file: Path) -> tuple[Sample, ...]:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            known = self._known.get(file)
            if known is None or known.inode != status.st_ino or not _continues(stream, known):
                known = self._known[file] = _Known(inode=status.st_ino)
            self._known.move_to_end(file)
            while len(self._known) > FILES:
                self._known.popitem(last=False)
            if (status.st_size, status.st_mtime_ns) != (known.size, known.modified_ns):
                stream.seek(known.size)
                _take(known, stream.read())
                known.modified_ns = status.st_mtime_ns
        return known.told


def _continues(stream: BinaryIO, known: _Known) -> bool:
    """Say whether a file still is the one that was read: a trimmed one was moved into its place."""
    stream.seek(known.size - len(known.line))
    return stream.read(len(known.line)) == known.line


def _take(known: _Known, data: bytes) -> None:
    """Take the whole lines that came; a last one without an end waits.

    It is being written at this moment, or was left by a killed process: the next scrape repeats what it said.
    """
    whole = data[: data.rfind(b"\n") + 1]
    count = len(known.samples)
    lines = whole.splitlines(keepends=True)
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if "bounds" in value:
            known.bounds = value["bounds"]
        else:
            known.samples.append(_sample(value, known.bounds))
    known.size += len(whole)
    known.line = lines[-1] if lines else known.line
    if len(known.samples) != count:
        known.told = tuple(known.samples)


def _sample(value: dict[str, Any], bounds: Sequence[float]) -> Sample:
    place = {"at": datetime.fromisoformat(value["at"]), "cohort": value["cohort"], "arm": Arm(value["arm"])}
    told = sorted(value.get("slices", {}).items())
    slices = tuple([SliceCounts(name=name, **_counts(counts, bounds)) for name, counts in told])
    return Sample(**place, **_counts(value, bounds), slices=slices)


def _counts(value: Mapping[str, Any], bounds: Sequence[float]) -> dict[str, Any]:
    numbers = {name: value[name] for name in ("total", "failed", "labelled", "incorrect")}
    return {**numbers, "latency": tuple(zip(bounds, value["latency"], strict=False))}
