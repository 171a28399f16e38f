"""What people are told: which decisions between two states of a ledger are news, in plain text that cannot do harm."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mlgitops.core import release as releases
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import NoticeKind
from mlgitops.core.errors import InvalidInput
from mlgitops.core.events import moment
from mlgitops.core.ledger import EnvironmentState, Ledger
from mlgitops.core.release import Release
from mlgitops.core.rollout import Rollout, RolloutPhase

LONGEST: Final = 500
"""Characters of a notice's words."""
LISTED: Final = 20
"""Notices in one message; more are counted."""
_HARMLESS: Final = str.maketrans({"<": "‹", ">": "›", "@": "＠", "[": "(", "]": ")", "`": "'", "*": "∗", "|": "¦"})
"""Characters that a chat could take for a mention, a link or a format, and what looks like them."""
_PERSON: Final = re.compile(r"\s*<[^<>]*>$")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One thing that people may want to know at once."""

    kind: NoticeKind
    at: datetime
    model: str
    environment: str
    """Empty for what is about no environment."""
    words: str
    """Plain text in one line."""

    @property
    def line(self) -> str:
        """The whole notice in one line: when, where, what."""
        where = f"{self.model} in {self.environment}" if self.environment else self.model
        return f"{self.at:%Y-%m-%d %H:%M} UTC, {where}, {self.kind.replace('-', ' ')}: {self.words}"


def harmless(text: str) -> str:
    """Return text of other people in one line, bounded, without anything that a screen or a chat would obey."""
    kept = "".join(one if one.isprintable() else " " for one in text).translate(_HARMLESS)
    return kept if len(kept) <= LONGEST else kept[: LONGEST - 1] + "…"


def letter(notices: Iterable[Notice]) -> tuple[str, str]:
    """Return the title and the body of one message about these notices, at least one."""
    told = list(notices)
    first = told[0]
    where = f"{first.model} in {first.environment}" if first.environment else first.model
    title = f"mlgitops: {where}: {first.kind.replace('-', ' ')}"
    if len(told) > 1:
        title = f"mlgitops: {len(told)} events"
    more = [f"and {len(told) - LISTED} more; `mlgitops history` has them all"] if len(told) > LISTED else []
    return title, "\n".join([*(one.line for one in told[-LISTED:]), *more])


def notices(
    before: Ledger, after: Ledger, paths: Iterable[str], *, approvals: Mapping[str, int], age: timedelta, at: datetime
) -> tuple[Notice, ...]:
    """Return what happened between two states of a ledger that people are told, oldest first.

    Args:
        before: The ledger as it was when people were told last.
        after: The ledger as it is.
        paths: The files in which the two differ.
        approvals: By environment, people who must approve a rollout there.
        age: What is older is no news.
        at: The present.
    """
    found: list[Notice] = []
    numbers: dict[tuple[str, str], set[int]] = {}
    for path in paths:
        match path.split("/"):
            case ["models", model, "releases", name] if name.endswith(".yaml"):
                found += _readable(_of_release(before, after, model, name.removesuffix(".yaml")))
            case ["environments", environment, model, "rollouts", name] if name[:-5].isdecimal():
                numbers.setdefault((environment, model), set()).add(int(name[:-5]))
            case ["environments", environment, model, "state.yaml"]:
                numbers.setdefault((environment, model), set())
            case _:
                pass
    for where, changed in numbers.items():
        found += _readable(_of_environment(before, after, where, changed, approvals.get(where[0], 0)))
    return tuple(sorted((one for one in found if at - one.at <= age), key=lambda one: one.at))


def _readable(told: Iterator[Notice]) -> list[Notice]:
    """Return what is told; nothing of files that cannot be read: every pass tells those as problems."""
    try:
        return list(told)
    except InvalidInput:
        return []


def _of_release(before: Ledger, after: Ledger, model: str, name: str) -> Iterator[Notice]:
    now, then = after.find_release(model, name), before.find_release(model, name)
    if now is None:
        return
    for event in now.history[len(then.history) if then else 0 :]:
        told = _release_event(now, event)
        if told is not None:
            kind, words = told
            yield Notice(kind=kind, at=event.at, model=model, environment="", words=harmless(words))


def _release_event(release: Release, event: object) -> tuple[NoticeKind, str] | None:
    match event:
        case releases.Failed() if release.trained is None:
            return "training-failed", f"the training of release {release.name} failed: {event.reason}"
        case releases.Failed():
            return "refused", f"release {release.name} is no candidate: {event.reason}"
        case releases.Errored():
            return "errored", f"release {release.name} has no answer: {event.reason}"
        case _:
            return None


def _of_environment(
    before: Ledger, after: Ledger, where: tuple[str, str], changed: Iterable[int], needed: int
) -> Iterator[Notice]:
    then, now = before.state(*where), after.state(*where)
    told: list[tuple[NoticeKind, datetime, str]] = []
    for number in sorted(changed):
        rollout, former = now.rollouts[number], then.rollouts.get(number)
        for event in rollout.history[len(former.history) if former else 0 :]:
            found = _rollout_event(now, rollout, event)
            told += [] if found is None else [(found[0], event.at, found[1])]
        if former is None and needed and rollout.phase is RolloutPhase.PROPOSED:
            people = "a person" if needed == 1 else f"{needed} people"
            words = f"release {rollout.release} waits for {people} to approve it (rollout {number})"
            told.append(("held", rollout.proposal.proposed_at, words))
    if not any(kind == "rolled-back" for kind, _, _ in told):  # which holds automation, and says so
        told += _waits(then, now)
    for kind, at, words in told:
        yield Notice(kind=kind, at=at, model=now.model, environment=now.environment, words=harmless(words))


def _rollout_event(state: EnvironmentState, rollout: Rollout, event: object) -> tuple[NoticeKind, str] | None:
    of = f"release {rollout.release} (rollout {rollout.number})"
    match event:
        case machine.ServingAll():
            return "promoted", f"{of} serves all requests"
        case machine.RollbackDecided():
            target = state.rollouts.get(event.target) if event.target is not None else None
            serves = f"release {target.release} serves" if target else "nothing serves"
            return "rolled-back", (
                f"{of} is taken off by {_PERSON.sub('', event.by)}; {serves} afterwards, and automation is on hold: "
                f"{event.reason}"
            )
        case machine.Alarmed():
            return "alert", f"{of}: {event.words}"
        case machine.Refused():
            return "refused", f"{of} is refused: {event.reason}"
        case machine.Errored():
            return "errored", f"{of} has no answer: {event.reason}"
        case _:
            return None


def _waits(then: EnvironmentState, now: EnvironmentState) -> Iterator[tuple[NoticeKind, datetime, str]]:
    hold, foreign = now.hold, now.foreign
    if hold is not None and hold != then.hold:
        yield "held", moment(hold.at), f"on hold by {_PERSON.sub('', hold.by)}: {hold.reason}"
    if foreign is not None and foreign != then.foreign:
        what = "; ".join(foreign.differences)
        yield "held", moment(foreign.at), f"changed by hand by {_PERSON.sub('', foreign.by)}: {what}"
