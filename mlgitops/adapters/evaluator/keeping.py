"""Evaluations that are over, as something that is kept for a while; implements `ports.keeper.Keeper`."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from mlgitops.adapters.evaluator.supervisor import OUTCOME_FILE, REQUEST_FILE
from mlgitops.adapters.leaving import remove, size_bytes, sweep
from mlgitops.core.configuration import fingerprint
from mlgitops.ports.keeper import Kept

LEAVING: Final = ".leaving"


class EvaluationKeeper:
    """Requests, logs and outcomes of evaluations; the reports are in the ledger."""

    kind = "evaluation"

    def __init__(self, home: Path) -> None:
        """Look after an `EmbeddedEvaluator`'s folder."""
        self._home = home

    def kept(self) -> Sequence[Kept]:
        """Return the evaluations that have ended, by key."""
        return tuple(self._ended())

    def _ended(self) -> Iterator[Kept]:
        for outcome in sorted(self._home.glob(f"*/{OUTCOME_FILE}")):
            folder = outcome.parent
            try:
                key = str(json.loads((folder / REQUEST_FILE).read_bytes())["key"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            yield Kept(name=key, place=str(folder), parts={key: size_bytes(folder)})

    def delete(self, name: str, *, unless_used_since: datetime) -> int:
        """Forget an evaluation; whoever asks for it again has it run again."""
        folder = self._home / fingerprint(name)[:32]
        if not (folder / OUTCOME_FILE).exists():
            return 0
        return remove(folder, self._home / LEAVING, unless_used_since=unless_used_since)

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete what an interrupted deletion left."""
        del unless_used_since  # nobody can use what is there
        sweep(self._home / LEAVING)
