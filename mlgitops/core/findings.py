"""What `mlgitops doctor` finds: one answer per question, with what to do about it."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "warning", "error", "unknown"]
OUTCOMES: tuple[Outcome, ...] = ("error", "warning", "unknown", "ok")
"""Gravest first."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer."""

    check: str
    """Name of the question, like `ledger`; several findings may answer one."""
    outcome: Outcome
    """`unknown` where it cannot be seen from here."""
    message: str
    """What was found, in one sentence without a final full stop."""
    mend: str = ""
    """What to do, in words that a person can follow at once; empty where nothing is to be done."""

    def to_mapping(self) -> dict[str, str]:
        """Return plain values."""
        return {"check": self.check, "outcome": self.outcome, "message": self.message, "mend": self.mend}
