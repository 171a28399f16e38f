"""Telling people: what the ledger decided since they were told last, by messages that hold nobody up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from mlgitops.app.context import Context, View, look
from mlgitops.core.configuration import Notification
from mlgitops.core.errors import MlgitopsError, NotFound
from mlgitops.core.ledger import Ledger
from mlgitops.core.notices import Notice, letter, notices
from mlgitops.ports.notifier import Letter, Marks, Notifier

NEWS: Final = timedelta(days=1)
"""What was decided longer ago is told to nobody: an address that could not be reached, or a mark that was old."""


@dataclass(kw_only=True)
class Told:
    """What became of the messages."""

    sent: int = 0
    problems: list[str] = field(default_factory=list)
    """Why some were not sent; they are tried again the next time, as long as they are news."""


def notify(context: Context, notifier: Notifier, marks: Marks, *, since: str | None = None) -> Told:
    """Tell every address of `environments.yaml` that this process knows what the ledger says since it was told last.

    The ledger is the list of what happened, and a mark says how far an address was told: it moves after a message was
    sent. So a process that is killed in between says it again, and one that is killed before says it the next time.

    Args:
        context: The outside world.
        notifier: Sends.
        marks: Where it is remembered how far each address was told.
        since: Where an address begins that was never told anything; None for now.

    Returns:
        What was sent; nothing is raised: no decision depends on it.
    """
    told = Told()
    try:
        view = look(context)
        wanted = [one for one in view.configuration.notifications if notifier.knows(one.variable)]
        if wanted:
            _tell(context, view, wanted, notifier, marks, since=since, told=told)
    except (MlgitopsError, OSError) as error:
        told.problems.append(f"notifications: {error}")
    return told


def _tell(
    context: Context,
    view: View,
    wanted: list[Notification],
    notifier: Notifier,
    marks: Marks,
    *,
    since: str | None,
    told: Told,
) -> None:
    head = view.ledger.revision or ""
    known = marks.read()
    reached = {one.name: known.get(one.name) or since or head for one in wanted}
    letters: dict[str, Letter] = {}
    for one in wanted:
        if reached[one.name] == head:
            continue
        try:
            found = [notice for notice in _since(context, view, reached[one.name]) if _is_for(one, notice)]
        except NotFound:
            told.problems.append(f"notification {one.name}: the ledger was rewound; it begins anew from here")
            found = []
        if found:
            title, body = letter(found)
            letters[one.name] = Letter(variable=one.variable, title=title, body=body)
    failed = dict(zip(letters, notifier.send(list(letters.values())), strict=True))
    told.sent += sum(not why for why in failed.values())
    told.problems += [f"notification {name}: {why}" for name, why in failed.items() if why]
    now = {name: reached[name] if failed.get(name) else head for name in reached}
    if any(known.get(name) != revision for name, revision in now.items()):
        marks.write({**known, **now})


def _since(context: Context, view: View, revision: str) -> tuple[Notice, ...]:
    """Return what happened since a revision of the ledger."""
    former, head = context.repository.at(revision), view.ledger.revision or ""
    paths = context.repository.changed(revision, head)
    approvals: Mapping[str, int] = {one.name: one.approvals for one in view.configuration.environments}
    before = Ledger(former.read, former.paths, former.revision)
    return notices(before, view.ledger, paths, approvals=approvals, age=NEWS, at=context.clock.now())


def _is_for(one: Notification, notice: Notice) -> bool:
    """Say whether an address wants to be told; what is about no environment concerns all of them."""
    return (
        notice.kind in one.events
        and (not one.models or notice.model in one.models)
        and (not one.environments or notice.environment in {*one.environments, ""})
    )
