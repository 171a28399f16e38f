"""The write protocol: the decision to the ledger first, then its projection onto `main`; a lost race decides again."""

import random
from collections.abc import Callable, Sequence

from mlgitops.app.context import Context, View, look
from mlgitops.core.errors import Conflict
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.ports.repository import Change

ATTEMPTS = 40
Decide = Callable[[View], str | None]
"""Puts what it decides into the view's ledger and returns the message to commit it with; None for nothing decided.

Called again with a new view after a lost race, so it must find out from the view what is done already.
"""
Project = Callable[[View], Sequence[Change]]
"""From a view, with the decision in its ledger, to what `main` still lacks."""


def write(context: Context, decide: Decide, project: Project) -> bool:
    """Decide and project until both landed; returns whether anything was written.

    Raises:
        Conflict: Somebody else was faster every time.
    """
    wrote = False
    for attempt in range(ATTEMPTS):
        view = look(context)
        try:
            message = decide(view)
            if message is not None and view.ledger.changes:
                context.repository.update(LEDGER, view.ledger.revision, [_decision(message, view)])
                wrote = True
            changes = project(view)
            if changes:
                after = context.repository.update(MAIN, view.main.revision, changes)
                wrote = wrote or after != view.main.revision
        except Conflict:
            if attempt + 1 == ATTEMPTS:
                raise
            context.sleep(random.uniform(0.01, 0.05) * min(attempt + 1, 10))  # noqa: S311 - jitter, not a secret
        else:
            return wrote
    raise AssertionError


def _decision(message: str, view: View) -> Change:
    return Change(message=message, files=view.ledger.changes)
