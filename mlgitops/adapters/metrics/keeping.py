"""Samples of rollouts, as something that is kept for a while; implements `ports.keeper.Keeper`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from mlgitops.adapters.leaving import remove, size_bytes, sweep
from mlgitops.adapters.metrics.embedded import SAMPLES
from mlgitops.ports.keeper import Kept

LEAVING: Final = "leaving"


class SampleKeeper:
    """The counts that were scraped while a rollout was open or on probation; verdicts are in the ledger."""

    kind = "samples"

    def __init__(self, home: Path) -> None:
        """Look after the files of `EmbeddedMetrics`."""
        self._home = home

    def kept(self) -> Sequence[Kept]:
        """Return the files of rollouts, as `<environment>/<model>/<number>`."""
        files = sorted((self._home / SAMPLES).glob("*/*/*.jsonl"))
        names = [f"{one.parent.parent.name}/{one.parent.name}/{one.stem}" for one in files if one.stem != "0"]
        places = [one for one in files if one.stem != "0"]
        return tuple(
            Kept(name=name, place=str(place), parts={name: size_bytes(place)})
            for name, place in zip(names, places, strict=True)
        )

    def delete(self, name: str, *, unless_used_since: datetime) -> int:
        """Delete a rollout's samples; a file that still grows stays."""
        known = {one.name: Path(one.place) for one in self.kept()}
        if name not in known:
            return 0
        return remove(known[name], self._home / LEAVING, unless_used_since=unless_used_since)

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what an interrupted deletion left."""
        del unless_used_since  # nobody can use what is there
        sweep(self._home / LEAVING)
