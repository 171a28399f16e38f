"""The write protocol: decisions to the ledger first, then their projection onto `main`; a lost race decides again.

What several models and environments decide in one look goes together: their commits are one push of the ledger, their
projections one push of `main`. A decision that cannot be made stops nobody else's.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mlgitops.app.context import Context, View, look
from mlgitops.core.errors import Conflict, Denied, MlgitopsError
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.ports.repository import Change

ATTEMPTS = 40
BATCH_SECONDS: Final = 1.0
"""How long decisions of others may keep one that was made already from being written."""
Decide = Callable[[View], str | None]
"""Puts what it decides into the view's ledger and returns the message to commit it with; None for nothing decided.

Called again with a new view after a lost race, so it must find out from the view what is done already.
"""
Project = Callable[[View], Sequence[Change]]
"""From a view, with the decision in its ledger, to what `main` still lacks."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What decides by itself: one model in one environment, or the trainings of one model."""

    decide: Decide
    project: Project


@dataclass(kw_only=True)
class Written:
    """What became of some units."""

    moved: list[Unit] = field(default_factory=list)
    """Those of which anything was written."""
    left: list[Unit] = field(default_factory=list)
    """Those that were not looked at: what others had decided could not wait for them."""
    problems: list[MlgitopsError] = field(default_factory=list)
    """Why some could not decide, or not be projected."""


def write(context: Context, decide: Decide, project: Project) -> bool:
    """Decide and project until both landed; returns whether anything was written.

    Raises:
        Conflict: Somebody else was faster every time.
        MlgitopsError: What the decision or its projection raised.
    """
    done = write_together(context, [Unit(decide, project)])
    if done.problems:
        raise done.problems[0]
    return bool(done.moved)


def write_together(context: Context, units: Sequence[Unit]) -> Written:
    """Let units decide on one look, and write everything in one push of the ledger and one of `main`.

    Units change files of their own alone. What is decided waits at most `BATCH_SECONDS` for the decisions of others:
    then it is written, and `left` names who comes next. Where a server refuses what several wrote, each is tried by
    itself, so that one that may not be written stops nobody else.

    Raises:
        Conflict: Somebody else was faster every time.
        Unavailable: The repository cannot be reached.
    """
    moved: set[int] = set()
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(context, units, moved)
        except Conflict:
            if attempt + 1 == ATTEMPTS:
                raise
            context.sleep(random.uniform(0.01, 0.05) * min(attempt + 1, 10))  # noqa: S311 - jitter, not a secret
        except Denied as error:
            if len(units) == 1:
                return Written(problems=[error])
            return _one_by_one(context, units, moved)
    raise AssertionError


def _one_by_one(context: Context, units: Sequence[Unit], moved: set[int]) -> Written:
    done = Written()
    for number, unit in enumerate(units):
        own = write_together(context, [unit])
        done.moved += own.moved or ([unit] if number in moved else [])
        done.problems += own.problems
    return done


def _attempt(context: Context, units: Sequence[Unit], moved: set[int]) -> Written:
    """Decide, write to the ledger, project; `moved` keeps over attempts whose decisions landed."""
    view, done = look(context), Written()
    sound, decisions = _decide(view, units, done)
    if decisions:
        context.repository.update(LEDGER, view.ledger.revision, [change for _, change in decisions])
        moved.update(number for number, _ in decisions)
    shown = _project(view, [(number, units[number]) for number in sound], done)
    if shown:
        context.repository.update(MAIN, view.main.revision, [change for _, change in shown])
        moved.update(number for number, _ in shown)
    done.moved = [units[number] for number in sorted(moved)]
    written = {*done.moved}
    done.left = [unit for unit in done.left if unit not in written]
    return done


def _decide(view: View, units: Sequence[Unit], done: Written) -> tuple[list[int], list[tuple[int, Change]]]:
    """Let each unit decide; returns whose decision is sound, and what it writes to the ledger."""
    sound: list[int] = []
    decisions: list[tuple[int, Change]] = []
    begun = monotonic()
    for number, unit in enumerate(units):
        if decisions and monotonic() - begun > BATCH_SECONDS:
            done.left = list(units[number:])
            break
        with view.ledger.part() as part:
            try:
                message = unit.decide(view)
            except Conflict:
                raise
            except MlgitopsError as error:
                part.undo()
                done.problems.append(error)
                continue
        sound.append(number)
        if message is not None and part.files:
            decisions.append((number, Change(message=message, files=part.files)))
    return sound, decisions


def _project(view: View, units: Sequence[tuple[int, Unit]], done: Written) -> list[tuple[int, Change]]:
    """Return what `main` lacks of each unit; a projection that cannot be made keeps nobody else's back."""
    found: list[tuple[int, Change]] = []
    for number, unit in units:
        try:
            changes = unit.project(view)
        except Conflict:
            raise
        except MlgitopsError as error:
            done.problems.append(error)
            continue
        found += [
            (number, one) for one in changes if any(view.main.read(path) != data for path, data in one.files.items())
        ]
    return found
