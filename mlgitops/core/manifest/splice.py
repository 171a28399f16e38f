"""Where in a text one value starts and ends, and what to put there: the smallest replacements for one change.

Nothing here judges whether a replacement is right; `edit` reads the result again and compares meanings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.manifest.read import Node, child
from mlgitops.core.manifest.scalars import Scalar, render

_PROPERTY: Final = re.compile(r"[&!][^\s,\[\]{}]*")
_ITEM_SEPARATOR: Final = re.compile(r"\s*,\s*")
_TRAILING_BLANK_LINES: Final = re.compile(r"(?:\r?\n[ \t]*)+\Z")
# Blanks and comments, then the dash.
_DASH: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*\n)*-")
_BLANKS: Final = " \t\r\n"
_INDENT: Final = 2


class SpliceError(Exception):
    """The text has a shape in which the change cannot be made without touching more than it; says which."""


@dataclass(frozen=True, kw_only=True)
class Splice:
    """One replacement in a text."""

    start: int
    """Index of the first character replaced."""
    end: int
    """Index after the last character replaced; equal to `start` for an insertion."""
    text: str
    """What stands there afterwards."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A value, and what stands around it."""

    node: Node
    """The value."""
    key: Node | None = None
    """Its key; None in a sequence and at the root."""
    within: Node | None = None
    """The collection it is in; None at the root."""
    flow: bool = False
    """Whether it stands inside `[…]` or `{…}`."""
    shared: Node | None = None
    """The outermost value on the way here, itself included, that an alias repeats elsewhere."""
    through: Node | None = None
    """The alias on the way here, itself excluded, that this place is only seen through."""


def find(root: Node, pointer: tuple[str | int, ...]) -> Place:
    """Return the place of an existing value.

    Args:
        root: The document's root.
        pointer: Keys and indexes; all of them exist.
    """
    place = Place(node=root, shared=root if root.aliased_at is not None else None)
    for step in pointer:
        within = place.node.resolved
        found = child(within, step)
        assert found is not None
        node, key = found
        place = Place(
            node=node,
            key=key,
            within=within,
            flow=place.flow or within.style == "flow",
            shared=place.shared or (node if node.aliased_at is not None else None),
            through=place.through or (place.node if place.node.kind == "alias" else None),
        )
    return place


def apply(text: str, splices: list[Splice]) -> str:
    """Return `text` with all replacements made; they do not overlap."""
    for splice in sorted(splices, key=lambda one: one.start, reverse=True):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


class Splicer:
    """Computes replacements in one text.

    Args:
        text: The whole file.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        first = text.find("\n")
        self._newline = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"

    def replace(self, place: Place, value: Any) -> list[Splice]:
        """Put `value` where another one stands; quotes are kept where a scalar follows a scalar."""
        if place.node.style != "flow" and place.node.kind in {"sequence", "mapping"}:
            return self._replace_block(place, value)
        text, node = self._text, place.node
        start, end = self._content_start(node), self._last(node)
        if node.style in {"|", ">"}:
            lines = self._literal(text[start:end], value)
            if lines is not None:
                return [Splice(start=start, end=end, text=lines)]
            if "#" in text[start : self._line_end(start)]:
                raise SpliceError("the comment behind | or > would be lost")
        if not place.flow and _is_block(value):
            header = self._header(place)
            if header is None:
                return [Splice(start=start, end=end, text=self._block(value, -_INDENT).removeprefix(self._newline))]
            if "\n" in text[header:start]:
                raise SpliceError("the value does not stand on its key's line")
            line_end = self._line_end(end)
            block = self._block(value, self._indent(place))
            return [Splice(start=header, end=end, text=""), Splice(start=line_end, end=line_end, text=block)]
        written = _inline(value, node.style, flow=place.flow)
        lead = " " if start == end and text[start - 1 : start] not in {"", " "} else ""
        return [Splice(start=start, end=end, text=lead + written)]

    def append(self, place: Place, value: Any, key: str | None = None) -> list[Splice]:
        """Add an item at the end of a sequence, or an entry at the end of a mapping, in the style it has."""
        node = place.node
        if place.flow or node.style == "flow":
            lead = "" if key is None else f"{render(key, flow=True)}: "
            return [self._append_flow(node, lead + _inline(value, None, flow=True))]
        first = self._entry_start(node, 0)
        column = self._column(first)
        written = self._item(value, column) if key is None else f"{render(key)}:{self._after(value, column)}"
        at = self._line_end(self._last(node))
        return [Splice(start=at, end=at, text=self._newline + " " * column + written)]

    def remove(self, place: Place, index: int) -> list[Splice]:
        """Take out one item or entry, with its lines; the only one leaves `[]` or `{}`."""
        node = place.node
        width = 1 if node.kind == "sequence" else 2
        count = len(node.items) // width
        if place.flow or node.style == "flow":
            return [self._remove_flow(node, index, width)]
        if count == 1:
            return self.replace(place, [] if node.kind == "sequence" else {})
        start = self._entry_start(node, index)
        last = self._last(node.items[index * width + width - 1])
        line = self._line_start(start)
        if self._text[line:start].strip(" "):
            following = self._entry_start(node, index + 1) if index + 1 < count else last
            if index + 1 >= count or self._text[last:following].strip():
                raise SpliceError("it shares its first line with something else")
            return [Splice(start=start, end=following, text="")]
        end = self._line_end(last)
        if line == 0:
            return [Splice(start=0, end=self._next_line(end), text="")]
        return [Splice(start=self._previous_line_end(line), end=end, text="")]

    def _replace_block(self, place: Place, value: Any) -> list[Splice]:
        node = place.node
        start, last, header = self._entry_start(node, 0), self._last(node), self._header(place)
        header_end = self._line_end(header) if header is not None else None
        if header is None or header_end is None or header_end >= start:
            indent = self._column(start) - _INDENT
            written = self._after(value, indent).removeprefix(self._newline + " " * self._column(start)).lstrip(" ")
            return [Splice(start=start, end=last, text=written)]
        # Comments between the key and its value stay where they are.
        begin, end = self._previous_line_end(self._line_start(start)), self._line_end(last)
        if _is_block(value):
            return [Splice(start=begin, end=end, text=self._block(value, self._indent(place)))]
        written = " " + _inline(value, None, flow=False)
        if header == begin:
            return [Splice(start=header, end=end, text=written)]
        return [Splice(start=header, end=header, text=written), Splice(start=begin, end=end, text="")]

    def _literal(self, text: str, value: Any) -> str | None:
        """Write a value in the lines below the header of a literal scalar; None when it does not fit there."""
        header, *lines = text.splitlines()
        indicators = header.split("#")[0].strip()
        if not isinstance(value, str) or not lines or indicators not in {"|", "|-"}:
            return None
        body = value.removesuffix("\n")
        if (body == value) != (indicators == "|-") or body != body.strip() or not body:
            return None
        if not all(line.isprintable() for line in body.split("\n")):
            return None
        content = next(line for line in lines if line.strip())
        indent = content[: len(content) - len(content.lstrip(" "))]
        return self._newline.join([header, *(indent + line if line else "" for line in body.split("\n"))])

    def _append_flow(self, node: Node, written: str) -> Splice:
        if not node.items:
            at = self._content_start(node) + 1
            return Splice(start=at, end=at, text=written)
        at = self._last(node.items[-1])
        separator = ", "
        width = 1 if node.kind == "sequence" else 2
        if len(node.items) > width:
            between = self._text[self._last(node.items[-width - 1]) : node.items[-width].start]
            separator = between if _ITEM_SEPARATOR.fullmatch(between) else separator
        return Splice(start=at, end=at, text=separator + written)

    def _remove_flow(self, node: Node, index: int, width: int) -> Splice:
        first = index * width
        start, end = node.items[first].start, self._last(node.items[first + width - 1])
        if first > 0:
            before = self._last(node.items[first - 1])
            if _ITEM_SEPARATOR.fullmatch(self._text, before, start):
                return Splice(start=before, end=end, text="")
        comma = _ITEM_SEPARATOR.match(self._text, end)
        return Splice(start=start, end=comma.end() if comma else end, text="")

    def _after(self, value: Any, indent: int) -> str:
        """Write a value behind the `:` of a key at column `indent`."""
        if not _is_block(value):
            return " " + _inline(value, None, flow=False)
        return self._block(value, indent)

    def _item(self, value: Any, column: int) -> str:
        """Write an item with its dash at `column`; a collection starts behind the dash."""
        first_line = self._newline + " " * (column + _INDENT)
        return "- " + self._after(value, column).removeprefix(first_line).removeprefix(" ")

    def _block(self, value: Any, indent: int) -> str:
        """Write a filled collection on lines of its own, two columns right of `indent`, starting with a line end."""
        column = indent + _INDENT
        lead = self._newline + " " * column
        if isinstance(value, Mapping):
            return "".join(f"{lead}{render(key)}:{self._after(item, column)}" for key, item in value.items())
        return "".join(lead + self._item(item, column) for item in value)

    def _header(self, place: Place) -> int | None:
        """Return the index behind the `:` or `-` of a value, and behind its anchor; None at a bare root."""
        node = place.node
        if node.decorated:
            return self._properties_end(node)
        if place.within is None:
            return None
        if place.key is None:
            return self._dash(place.within, place.within.items.index(node)) + 1
        if node.start == node.end:
            return self._last(node)
        colon = self._text.find(":", self._last(place.key), node.start)
        if colon < 0:
            raise SpliceError("its key has no colon")
        return colon + 1

    def _indent(self, place: Place) -> int:
        if place.within is None:
            return -_INDENT
        if place.key is not None:
            return self._column(place.key.start)
        return self._column(self._dash(place.within, place.within.items.index(place.node)))

    def _entry_start(self, node: Node, index: int) -> int:
        if node.kind == "sequence":
            return self._dash(node, index)
        return node.items[2 * index].start

    def _dash(self, sequence: Node, index: int) -> int:
        """Return where the dash of an item of a block sequence stands."""
        if index > 0:
            at = self._last(sequence.items[index - 1])
        else:
            at = self._properties_end(sequence) if sequence.decorated else sequence.start
        found = _DASH.match(self._text, at)
        if found is None:
            raise SpliceError("its dash cannot be found")
        return found.end() - 1

    def _properties_end(self, node: Node) -> int:
        """Return the index behind the anchor and tag of a value."""
        index = node.start
        while True:
            found = _PROPERTY.match(self._text, index)
            if found is None:
                return index
            end = found.end()
            index = end
            while index < node.end and self._text[index] in _BLANKS:
                index += 1
            if index >= node.end or self._text[index] not in "&!":
                return end

    def _content_start(self, node: Node) -> int:
        if node.start == node.end:
            return self._last(node)
        if not node.decorated:
            return node.start
        index = self._properties_end(node)
        while index < node.end and self._text[index] in _BLANKS:
            index += 1
        return index

    def _last(self, node: Node) -> int:
        """Return the index behind the last character of a value, without comments and blank lines."""
        while node.kind in {"sequence", "mapping"} and node.style != "flow":
            node = node.items[-1]
        if node.style in {"|", ">"}:
            return self._block_scalar_end(node)
        if node.start != node.end:
            return node.end
        # Nothing is written here; in a flow mapping the parser places it at the next token.
        index = node.start
        while index > 0 and self._text[index - 1] in _BLANKS:
            index -= 1
        return index if self._text[index - 1 : index] in {":", "-"} else node.start

    def _block_scalar_end(self, node: Node) -> int:
        text = self._text[node.start : node.end]
        header = text[: self._line_end(node.start) - node.start]
        if "+" in header.split("#")[0]:
            return node.end - (len(text) - len(text.removesuffix("\n").removesuffix("\r")))
        return node.start + len(_TRAILING_BLANK_LINES.sub("", text))

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _column(self, index: int) -> int:
        return index - self._line_start(index)

    def _line_end(self, index: int) -> int:
        """Return the index of the line end (CR or LF) at or after `index`, or the text's end."""
        end = self._text.find("\n", index)
        if end < 0:
            return len(self._text)
        return end - 1 if end > index and self._text[end - 1] == "\r" else end

    def _previous_line_end(self, line_start: int) -> int:
        return line_start - (2 if self._text[line_start - 2 : line_start] == "\r\n" else 1)

    def _next_line(self, line_end: int) -> int:
        end = self._text.find("\n", line_end)
        return len(self._text) if end < 0 else end + 1


def _is_block(value: Any) -> bool:
    """Return whether a value is written on lines of its own in block style: a collection with something in it."""
    return isinstance(value, (dict, list)) and bool(value)


def _inline(value: Any, style: str | None, *, flow: bool) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{render(key, flow=True)}: {_inline(item, None, flow=True)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item, None, flow=True) for item in value) + "]"
    scalar: Scalar = value
    return render(scalar, style=style, flow=flow)
