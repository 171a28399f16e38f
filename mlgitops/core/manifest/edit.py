"""Byte-exact editing: the value that changes is replaced, and every other byte of the file stays.

Comments, order, quotes, line ends, anchors and the other documents are kept, because nothing is dumped: the text
of one value is replaced by another, or a line is added or taken out. Each change is then read back, and accepted
only if the documents differ from those before by exactly what was asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.read import (
    Document,
    Named,
    Pointer,
    child,
    indexes_named,
    pointer_text,
    read_documents,
)
from mlgitops.core.manifest.scalars import Scalar
from mlgitops.core.manifest.splice import Place, Splice, SpliceError, Splicer, apply, find

__all__ = [
    "Edit",
    "InsertItem",
    "Named",
    "RemoveEntry",
    "RemoveItem",
    "SetEntry",
    "SetScalar",
    "Value",
    "edit",
    "same",
]

Value = Scalar | Mapping[str, Any] | Sequence[Any]
"""What can be written: a scalar, or mappings and lists of values."""

_BY_HAND: Final = "make this change by hand, or write the lines around it in plain block style"


@dataclass(frozen=True)
class SetScalar:
    """Give an existing scalar another value; quotes are kept where they can hold it."""

    pointer: Pointer
    """Where it is."""
    value: Scalar
    """What it becomes; a string stays a string for every reader."""


@dataclass(frozen=True)
class InsertItem:
    """Add an item at the end of a sequence; nothing changes when the sequence has an equal one."""

    pointer: Pointer
    """Where the sequence is."""
    value: Value
    """The item."""


@dataclass(frozen=True)
class RemoveItem:
    """Take an item out of a sequence, wherever and however often it is there; nothing changes when it is not."""

    pointer: Pointer
    """Where the sequence is."""
    value: Value
    """The item."""


@dataclass(frozen=True)
class SetEntry:
    """Give a mapping's entry a value; a new one is added at the mapping's end."""

    pointer: Pointer
    """Where the mapping is."""
    key: str
    """The entry's key."""
    value: Value
    """The entry's value; a collection replaces what was there, with the comments inside it."""


@dataclass(frozen=True)
class RemoveEntry:
    """Take an entry out of a mapping; nothing changes when it is not there."""

    pointer: Pointer
    """Where the mapping is."""
    key: str
    """The entry's key."""


Edit = SetScalar | InsertItem | RemoveItem | SetEntry | RemoveEntry
_Path = tuple[str | int, ...]


def edit(data: bytes, path: str, edits: Sequence[Edit], *, document: int = 0) -> bytes:
    """Return the file with all edits made, in order, and every other byte as it was.

    A value that is right already leaves the bytes identical. Inserting something new and removing it again gives
    the original bytes.

    Args:
        data: The file's bytes, acceptable to `read_documents`.
        path: The file, as the person named it, for problems.
        edits: What to change; a later edit sees what the earlier ones did.
        document: Which document of the file, from 0.

    Raises:
        InvalidInput: The file cannot be read; a pointer leads nowhere; or an edit cannot be made here without
            changing something else, as in what an alias repeats.
    """
    documents = read_documents(data, path)
    if not 0 <= document < len(documents):
        raise InvalidInput(f"there is no document {document}; the file holds {len(documents)}", path=path)
    text = data.decode()
    for change in edits:
        while True:
            step = _Step(documents[document], change)
            if step.is_done:
                break
            text, documents = _make(text, documents, document, step)
            if not isinstance(change, RemoveItem):
                break
    return text.encode()


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same types throughout: True is not 1, and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class _Step:
    """One change of one document: where, what the document means afterwards, and which characters to replace."""

    def __init__(self, document: Document, change: Edit) -> None:
        self.document, self.change = document, change
        self.path = _locate(document, change.pointer)
        self.before = _get(document.value, self.path)
        self._check_kind()
        self.after = self._changed()

    @property
    def is_done(self) -> bool:
        """Whether the document means this already."""
        return same(self.before, self.after)

    def wanted(self) -> Any:
        """Return the document's value after the change."""
        return _with(self.document.value, self.path, self.after)

    def splices(self, text: str) -> list[Splice]:
        """Return the replacements that make the change.

        Raises:
            SpliceError: The text has a shape in which that is not possible.
        """
        place = find(self.document.root, self.path)
        splicer, change = Splicer(text), self.change
        match change:
            case SetScalar():
                return splicer.replace(place, change.value)
            case InsertItem():
                return splicer.append(place, _plain(change.value))
            case RemoveItem():
                return splicer.remove(place, _last_index(self.before, _plain(change.value)))
            case RemoveEntry():
                return splicer.remove(place, list(self.before).index(change.key))
            case SetEntry():
                if change.key in self.before:
                    inner = find(self.document.root, (*self.path, change.key))
                    return splicer.replace(inner, _plain(change.value))
                return splicer.append(place, _plain(change.value), change.key)

    def refusal(self, message: str, mend: str = _BY_HAND) -> InvalidInput:
        """Return the error that names this place."""
        return InvalidInput([self.document.problem(message, self._subject(), mend=mend)])

    def check_shared(self) -> None:
        """Refuse a change that an alias would carry to another place.

        Raises:
            InvalidInput: The place is repeated by an alias, or is seen only through one.
        """
        place = find(self.document.root, self.path)
        if isinstance(self.change, SetEntry) and self.change.key in self.before:
            place = find(self.document.root, (*self.path, self.change.key))
        elif place.node.kind == "alias" and not isinstance(self.change, SetScalar):
            place = Place(node=place.node, through=place.node)
        if place.through is not None:
            message = f"it is written elsewhere, and only repeated here by the alias *{place.through.anchor}"
            raise self.refusal(message, "write the value out in place of the alias")
        if place.shared is not None and place.shared.aliased_at is not None:
            line = place.shared.aliased_at + 1
            message = f"changing it would also change line {line}, which repeats &{place.shared.anchor}"
            raise self.refusal(message, f"write the value out on line {line} in place of the alias")

    def _subject(self) -> Pointer:
        change = self.change
        return (*self.path, change.key) if isinstance(change, (SetEntry, RemoveEntry)) else self.path

    def _check_kind(self) -> None:
        kinds: dict[type, tuple[type, str]] = {InsertItem: (list, "list"), RemoveItem: (list, "list")}
        kinds |= {SetEntry: (dict, "mapping"), RemoveEntry: (dict, "mapping")}
        kind, name = kinds.get(type(self.change), (object, ""))
        if isinstance(self.change, SetScalar) and isinstance(self.before, (dict, list)):
            name = "single value"
        elif isinstance(self.before, kind):
            return
        shown = pointer_text(self.path) or "the document"
        problem = self.document.problem(f"{shown} is not a {name}", self.path, mend=f"make it a {name}")
        raise InvalidInput([problem])

    def _changed(self) -> Any:
        before, change = self.before, self.change
        match change:
            case SetScalar():
                return change.value
            case InsertItem():
                item = _plain(change.value)
                return before if any(same(item, one) for one in before) else [*before, item]
            case RemoveItem():
                index = _last_index(before, _plain(change.value))
                return before if index < 0 else before[:index] + before[index + 1 :]
            case SetEntry():
                return before | {change.key: _plain(change.value)}
            case RemoveEntry():
                return {key: value for key, value in before.items() if key != change.key}


def _make(text: str, documents: tuple[Document, ...], index: int, step: _Step) -> tuple[str, tuple[Document, ...]]:
    step.check_shared()
    try:
        result = apply(text, step.splices(text))
    except SpliceError as error:
        raise step.refusal(f"it cannot be edited: {error}") from error
    path = step.document.path
    try:
        found = read_documents(result.encode(), path)
    except InvalidInput as error:
        raise step.refusal(f"it cannot be edited without breaking the file ({error.problems[0].message})") from error
    wanted = [one.value for one in documents]
    wanted[index] = step.wanted()
    if not same([one.value for one in found], wanted):
        raise step.refusal("it cannot be edited without changing something else")
    return result, found


def _locate(document: Document, pointer: Pointer) -> _Path:
    """Return the pointer in keys and indexes.

    Raises:
        InvalidInput: It leads nowhere, or two items have the name it asks for.
    """
    node, path = document.root, list[str | int]()
    for step in pointer:
        node = node.resolved
        taken: str | int
        if isinstance(step, Named):
            indexes = indexes_named(node, step.name) if node.kind == "sequence" else []
            if len(indexes) > 1:
                message = f"{len(indexes)} items are named {step.name!r}"
                raise InvalidInput([document.problem(message, (*path, step), mend="give each another name")])
            taken = indexes[0] if indexes else -1
        else:
            taken = step
        found = child(node, taken)
        if found is None:
            shown = pointer_text((*path, step))
            raise InvalidInput([document.problem(f"there is no {shown}", path, mend=f"add {shown}")])
        node = found[0]
        path.append(taken)
    return tuple(path)


def _get(value: Any, path: _Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, path: _Path, new: Any) -> Any:
    """Return a copy of `value` with `new` at `path`."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    copy = value.copy()
    copy[step] = _with(value[step], rest, new)
    return copy


def _plain(value: Value) -> Any:
    """Return a value in dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _last_index(items: Sequence[Any], item: Any) -> int:
    matches: Callable[[int], bool] = lambda index: same(items[index], item)  # noqa: E731
    return next(filter(matches, range(len(items) - 1, -1, -1)), -1)
