"""Counts of what users met: as they grew, and as intervals that a test can take in."""

import enum
from dataclasses import dataclass
from datetime import datetime


class Arm(enum.StrEnum):
    """The two sides of a rollout."""

    CANARY = "canary"
    BASELINE = "baseline"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Cumulative counts of one arm in one step cohort at one moment; never decreasing within (cohort, arm)."""

    at: datetime
    """When it was read; aware, UTC."""
    cohort: str
    """`<rollout number>-<step>`: the step during which the *requests* were made, however late their labels come."""
    arm: Arm
    total: int
    """Requests answered or failed."""
    failed: int
    """Of these, failed by the server (5xx, timeout, connection); a malformed request is not its fault."""
    latency: tuple[tuple[float, int], ...] = ()
    """(upper bound in seconds, requests at most that slow), cumulative, ascending, without the infinite bound."""
    labelled: int = 0
    """Requests whose true label has come."""
    incorrect: int = 0
    """Of these, predicted wrongly."""
