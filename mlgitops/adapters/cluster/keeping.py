"""Jobs of the embedded cluster that are over, with their logs; implements `ports.keeper.Keeper`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from mlgitops.adapters.cluster.state import folders, newest, read_json
from mlgitops.adapters.leaving import remove, size_bytes, sweep
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import parse_name
from mlgitops.ports.keeper import Kept

LEAVING: Final = "leaving"
_NAME_LENGTH: Final = 63


class JobKeeper:
    """What the cluster keeps of jobs that were deleted from it: the last observation, and the logs."""

    kind = "log"

    def __init__(self, home: Path) -> None:
        """Look after the cluster whose engine keeps its files in `home`."""
        self._home = home
        self._jobs = home / "jobs" / TRAINING

    def kept(self) -> Sequence[Kept]:
        """Return the jobs that the cluster has deleted, and of which nothing runs."""
        found = (one for one in folders(self._jobs) if _is_over(one))
        return tuple(Kept(name=one.name, place=str(one), parts={one.name: size_bytes(one)}) for one in found)

    def delete(self, name: str, *, unless_used_since: datetime) -> int:
        """Forget a job; one that exists again stays."""
        folder = self._jobs / parse_name(name, "job", _NAME_LENGTH)
        if not _is_over(folder):
            return 0
        return remove(folder, self._home / LEAVING, unless_used_since=unless_used_since)

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what an interrupted deletion left."""
        del unless_used_since  # nobody can use what is there
        sweep(self._home / LEAVING)


def _is_over(job: Path) -> bool:
    last = newest(job)
    if last is None or (last / "pods").exists():
        return False
    values = read_json(last / "object.json")
    return values is not None and bool(values["deleted_at"])
