"""The `Metrics` port on files that the scraper of the embedded engine writes.

One file per environment, model and rollout, `<home>/samples/<environment>/<model>/<rollout>.jsonl`. A line is
`{"bounds": [seconds, …]}`, in force for the lines after it, or a sample with cumulative latency counts in that order.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Sample
from mlgitops.ports.serving import Arm

SAMPLES: Final = "samples"
SERVICE: Final = "embedded metrics"


def samples_file(home: Path, environment: str, model: str, rollout: int) -> Path:
    """Return where the samples of a rollout are."""
    return home / SAMPLES / environment / model / f"{rollout}.jsonl"


class EmbeddedMetrics:
    """Reads what was scraped, from any process of this machine."""

    def __init__(self, home: Path) -> None:
        """Look at the metrics home of an engine that runs, ran or will."""
        self._home = home

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return every sample of a rollout, oldest first; empty when there is none.

        Raises:
            Unavailable: No engine has run here, or the file cannot be read.
        """
        if not self._home.is_dir():
            raise Unavailable(SERVICE, "the engine has not run here")
        try:
            lines = samples_file(self._home, environment, model, rollout).read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(SERVICE, error.strerror or str(error)) from error
        return tuple(_samples(lines))


def _samples(lines: Sequence[bytes]) -> Iterator[Sample]:
    bounds: list[float] = []
    for line in lines:
        if not line.endswith(b"\n"):
            # Being written at this moment, or left by a killed process: the next scrape repeats what it said.
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if "bounds" in value:
            bounds = value["bounds"]
        else:
            yield _sample(value, bounds)


def _sample(value: dict[str, Any], bounds: Sequence[float]) -> Sample:
    return Sample(
        at=datetime.fromisoformat(value["at"]),
        cohort=value["cohort"],
        arm=Arm(value["arm"]),
        total=value["total"],
        failed=value["failed"],
        latency=tuple(zip(bounds, value["latency"], strict=False)),
        labelled=value["labelled"],
        incorrect=value["incorrect"],
    )
