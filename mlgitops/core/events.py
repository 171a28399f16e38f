"""Events as plain data, so that a history in YAML rebuilds the value it made."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from mlgitops.core.errors import InvalidInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, at a time."""

    at: datetime
    """When; aware, UTC."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the event as plain values: its name, its time, and what it says."""
        values: dict[str, Any] = {"event": type(self).__name__, "at": stamp(self.at)}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if one.name != "at" and value != _default(one):
                values[one.name] = list(value) if isinstance(value, tuple) else value
        return values

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the event of this class that `to_mapping` wrote."""
        fields = {one.name for one in dataclasses.fields(cls)}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        kept: dict[str, Any] = {name: value for name, value in given.items() if name in fields}
        return cls(**{**kept, "at": moment(values["at"])})


E = TypeVar("E", bound=Event)


def _default(one: "dataclasses.Field[Any]") -> Any:
    return one.default if one.default is not dataclasses.MISSING else object()


def read_event(values: Mapping[str, Any], kinds: Mapping[str, type[E]], where: str) -> E:
    """Return the event written in `values`, one of `kinds`.

    Raises:
        InvalidInput: The event is unknown or incomplete; `where` names the history.
    """
    kind = kinds.get(str(values.get("event")))
    if kind is None:
        raise InvalidInput(f"{where}: unknown event {values.get('event')!r}")
    try:
        return kind.from_mapping(values)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput(f"{where}: event {values.get('event')} is incomplete: {error}") from error


def stamp(at: datetime) -> str:
    """Return a time as RFC 3339 with microseconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """Return the time that `stamp` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
