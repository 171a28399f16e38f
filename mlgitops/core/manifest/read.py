"""Strict YAML reading: what two readers could take differently is refused, with its place and the mend.

A manifest is read by this tool, by GitOps engines and by the Kubernetes API server; they use different YAML
libraries. Only documents that mean the same to all of them are accepted. Every value knows where it stands, so
that a problem can name its line and an edit can touch nothing else.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, cast

import yaml

from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.manifest.scalars import resolve

MAXIMUM_SIZE_BYTES: Final = 1 << 20
MAXIMUM_DEPTH: Final = 64
NODE_BUDGET: Final = 20_000
"""Values in one file, each alias counted with everything it repeats."""
MAXIMUM_PROBLEMS: Final = 200
"""A file with more is not going to be mended from a list."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS: Final = {"scalar": "tag:yaml.org,2002:str", "sequence": "tag:yaml.org,2002:seq"}
_MAPPING_TAG: Final = "tag:yaml.org,2002:map"
_BYTE_ORDER_MARKS: Final = (
    (b"\xef\xbb\xbf", "UTF-8"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
)
# Control characters, a carriage return that ends no line, and characters that only some readers take for line ends.
_UNWELCOME: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)")
_INDENTED_WITH_TAB: Final = re.compile(r"[ ]*\t")
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Named:
    """A step of a pointer: the mapping in a sequence whose `name` is this, like a container or a variable."""

    name: str
    """The value of `name`."""


Pointer = Sequence[str | int | Named]
"""The way from a document's root to a value: keys, indexes from 0, and names."""


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One value as it stands in the text; positions are counted in characters from 0."""

    kind: Literal["scalar", "sequence", "mapping", "alias"]
    """What it is; an alias repeats its `target`."""
    start: int
    """Index of its first character, its anchor or tag included."""
    end: int
    """Index after its last character; a block collection's is where the next token starts."""
    line: int
    """Line of `start`, from 0."""
    column: int
    """Column of `start` in characters, from 0."""
    value: Any = None
    """A scalar's value."""
    style: str | None = None
    """A scalar's `'`, `"`, `|` or `>`; a collection's `flow`; None for plain and for block collections."""
    decorated: bool = False
    """Whether an anchor or tag stands before it."""
    anchor: str | None = None
    """Its anchor's name; an alias's own name."""
    aliased_at: int | None = None
    """Line (from 0) of the first alias that repeats it; None when nothing does."""
    target: "Node | None" = None
    """What an alias repeats."""
    items: list["Node"] = field(default_factory=list)
    """A sequence's items; a mapping's keys and values in turn."""
    nodes: int = 1
    """How many values it stands for, aliases expanded."""
    height: int = 1
    """Levels of nesting, itself included, aliases expanded."""

    @property
    def resolved(self) -> "Node":
        """The node itself, or what it repeats."""
        return self.target if self.target is not None else self

    def entries(self) -> Iterator[tuple["Node", "Node"]]:
        """Iterate over a mapping's keys and values."""
        return zip(self.items[::2], self.items[1::2], strict=True)

    def entry(self, key: object) -> "tuple[Node, Node] | None":
        """Return the key and value nodes of `key` in a mapping, None when it is missing."""
        return next((pair for pair in self.entries() if pair[0].value == key), None)


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document of a file: its value, and where every part of it stands."""

    value: Any
    """Dictionaries, lists, strings, integers, finite floats, booleans and None; aliases are expanded to copies."""
    path: str
    """The file, as the person named it."""
    root: Node = field(repr=False)
    """The value as it stands in the text."""

    def position(self, pointer: Pointer) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `pointer`, or of its nearest existing ancestor."""
        node = self._walk(pointer)[0]
        return node.line + 1, node.column + 1

    def key_position(self, pointer: Pointer) -> tuple[int, int]:
        """Return line and column, from 1, of the key that leads to `pointer`; of the value where there is no key."""
        node, key = self._walk(pointer)
        place = key if key is not None else node
        return place.line + 1, place.column + 1

    def problem(self, message: str, pointer: Pointer = (), *, mend: str | None = None) -> Problem:
        """Return a problem with the value at `pointer`, its place filled in."""
        line, column = self.position(pointer)
        return Problem(
            message=message, path=self.path, line=line, column=column, pointer=pointer_text(pointer) or None, mend=mend
        )

    def _walk(self, pointer: Pointer) -> tuple[Node, Node | None]:
        node, key = self.root, None
        for step in pointer:
            found = child(node.resolved, step)
            if found is None:
                break
            node, key = found
        return node, key


def child(node: Node, step: str | int | Named) -> tuple[Node, Node | None] | None:
    """Return the value one step below `node` and its key (None in a sequence), or None when there is none."""
    if node.kind == "mapping" and isinstance(step, str):
        entry = node.entry(step)
        return (entry[1], entry[0]) if entry else None
    if node.kind != "sequence":
        return None
    if isinstance(step, Named):
        return next(((node.items[index], None) for index in indexes_named(node, step.name)), None)
    if isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step], None
    return None


def indexes_named(sequence: Node, name: str) -> list[int]:
    """Return the indexes of the mappings in a sequence whose `name` is `name`."""
    return [index for index, item in enumerate(sequence.items) if _name_of(item.resolved) == name]


def _name_of(node: Node) -> object:
    entry = node.entry("name") if node.kind == "mapping" else None
    return entry[1].resolved.value if entry else None


def pointer_text(pointer: Pointer) -> str:
    """Return a pointer as people write it, like `spec.roles.chief[0].name`."""
    parts: list[str] = []
    for step in pointer:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif isinstance(step, Named):
            parts.append(f"[name={step.name}]")
        elif _BARE_KEY.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            shown = step if len(step) <= 80 else step[:79] + "…"
            parts.append('["' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"]')
    return "".join(parts)


def read_document(data: bytes, path: str, *, node_budget: int = NODE_BUDGET) -> Document:
    """Return the one document of a file.

    Args:
        data: The file's bytes.
        path: The file, as the person named it, for problems.
        node_budget: How many values the file may hold, aliases expanded.

    Raises:
        InvalidInput: The file is not acceptable YAML, or holds no document or several; every problem is listed.
    """
    documents = read_documents(data, path, node_budget=node_budget)
    if len(documents) == 1:
        return documents[0]
    line, column = documents[1].position(())
    raise InvalidInput(
        [
            Problem(
                message=f"the file holds {len(documents)} documents where one is expected",
                path=path,
                line=line,
                column=column,
                mend="keep one document in the file, and remove the --- lines between documents",
            )
        ]
    )


def read_documents(data: bytes, path: str, *, node_budget: int = NODE_BUDGET) -> tuple[Document, ...]:
    """Return the documents of a file, in order; there is at least one, and none is empty.

    Args:
        data: The file's bytes: UTF-8 without byte order mark, at most 1 MiB, lines ended by LF or CRLF.
        path: The file, as the person named it, for problems.
        node_budget: How many values the file may hold, aliases expanded.

    Raises:
        InvalidInput: The file is not acceptable YAML; every problem that could be found is listed.
    """
    text = decode(data, path)
    roots = _Composer(text, path, node_budget).compose()
    return tuple(Document(value=_construct(root), path=path, root=root) for root in roots)


def decode(data: bytes, path: str) -> str:
    """Return the text of a file, every character and line end as it is.

    Raises:
        InvalidInput: It is too large, not plain UTF-8, or has characters that do not belong in YAML.
    """
    if len(data) > MAXIMUM_SIZE_BYTES:
        _refuse(
            path, f"the file has {len(data)} bytes, more than {MAXIMUM_SIZE_BYTES}", "split it, or keep data elsewhere"
        )
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            _refuse(
                path, f"the file starts with a byte order mark ({encoding})", "save it as UTF-8 without BOM", (1, 1)
            )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        message = f"the file is not UTF-8: byte 0x{data[error.start]:02x}"
        _refuse(path, message, "save it as UTF-8 without BOM", _place(before, len(before)))
    problems = [
        Problem(
            message=f"the character U+{ord(found[0]):04X} does not belong in YAML",
            path=path,
            line=line,
            column=column,
            mend='remove it; inside double quotes it can be written as an escape like "\\u0000"',
        )
        for found, _ in zip(_UNWELCOME.finditer(text), range(20), strict=False)
        for line, column in (_place(text, found.start()),)
    ]
    if problems:
        raise InvalidInput(problems)
    return text


def _place(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _refuse(path: str, message: str, mend: str, place: tuple[int, int] | None = None) -> NoReturn:
    line, column = place or (None, None)
    raise InvalidInput([Problem(message=message, path=path, line=line, column=column, mend=mend)])


def _construct(node: Node) -> Any:
    node = node.resolved
    if node.kind == "scalar":
        return node.value
    if node.kind == "sequence":
        return [_construct(item) for item in node.items]
    return {key.value: _construct(value) for key, value in node.entries()}


class _Composer:
    """Builds nodes from events, without recursion, and collects every problem on the way."""

    def __init__(self, text: str, path: str, node_budget: int) -> None:
        self._text, self._path, self._budget = text, path, node_budget
        self._remaining = node_budget
        self._problems: list[Problem] = []
        self._roots: list[Node] = []
        self._open: list[Node] = []
        self._keys: list[dict[str, Node]] = []
        self._anchors: dict[str, Node] = {}

    def compose(self) -> list[Node]:
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }
        try:
            parser = _LOADER(self._text)
            for event in iter(parser.get_event, None):
                handler = handlers.get(type(event))
                if handler is not None:
                    handler(event)
        except yaml.MarkedYAMLError as error:
            self._not_yaml(error)
        except yaml.YAMLError as error:
            _refuse(self._path, f"not valid YAML: {str(error).splitlines()[0]:.200}", "correct the file")
        if not self._roots and not self._problems:
            _refuse(self._path, "the file holds no document", "write the document, or remove the file", (1, 1))
        for root in self._roots:
            if root.kind == "scalar" and root.value is None:
                self._problem("the document is empty", root.line, root.column, mend="write it, or remove its --- line")
        if self._problems:
            raise InvalidInput(self._problems)
        return self._roots

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        self._anchors = {}
        if event.version or event.tags:
            line, column = _line_and_column(event.start_mark)
            message = "directives mean different things to different readers"
            self._problem(message, line, column, mend="remove the lines that start with %")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        node = self._node("scalar", event)
        node.style = event.style or None
        node.value = event.value
        if event.value == "<<" and event.implicit[0]:
            self._problem_here(node, "merge keys (<<) are not accepted", "write the entries out")
        elif event.implicit[0] and event.tag is None:
            value, complaint = resolve(event.value)
            if complaint is None:
                node.value = value
            else:
                self._problem_here(node, complaint.message, complaint.mend)
        self._add(node)

    def _start(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        node = self._node("mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence", event)
        node.style = "flow" if event.flow_style else None
        if len(self._open) >= MAXIMUM_DEPTH:
            self._too_deep(node)
        self._open.append(node)
        self._keys.append({})

    def _end(self, event: yaml.MappingEndEvent | yaml.SequenceEndEvent) -> None:
        node = self._open.pop()
        self._keys.pop()
        node.end = cast("yaml.Mark", event.end_mark).index
        self._add(node)

    def _alias(self, event: yaml.AliasEvent) -> None:
        node = self._node("alias", event)
        node.anchor = event.anchor
        target = self._anchors.get(event.anchor or "")
        if target is None or target in self._open:
            what = "is part of what it repeats" if target is not None else "has no anchor before it"
            self._problem_here(node, f"the alias *{event.anchor} {what}", "write the value out")
            self._add(node)
            return
        node.target, node.nodes, node.height = target, target.nodes, target.height
        if target.aliased_at is None:
            target.aliased_at = node.line
        self._spend(node, target.nodes - 1)
        if len(self._open) + node.height > MAXIMUM_DEPTH:
            self._too_deep(node)
        self._add(node)

    def _node(self, kind: Literal["scalar", "sequence", "mapping", "alias"], event: Any) -> Node:
        start: yaml.Mark = event.start_mark
        node = Node(kind=kind, start=start.index, end=event.end_mark.index, line=start.line, column=start.column)
        self._spend(node, 1)
        if kind == "alias":
            return node
        if event.anchor is not None:
            node.anchor, node.decorated = event.anchor, True
            if event.anchor in self._anchors:
                first = self._anchors[event.anchor].line + 1
                message = f"the anchor &{event.anchor} is already defined on line {first}"
                self._problem_here(node, message, "give it another name")
            self._anchors[event.anchor] = node
        if event.tag is not None:
            node.decorated = True
            if event.tag != _TAGS.get(kind, _MAPPING_TAG):
                self._problem_here(node, f"the tag {event.tag:.80} is not accepted", "remove the tag, and quote text")
        return node

    def _add(self, node: Node) -> None:
        """Hang a finished node into the collection that is open, or make it a document's root."""
        if not self._open:
            self._roots.append(node)
            return
        parent = self._open[-1]
        if parent.kind == "mapping" and len(parent.items) % 2 == 0:
            self._key(node)
        parent.items.append(node)
        parent.nodes += node.nodes
        parent.height = max(parent.height, node.height + 1)

    def _key(self, key: Node) -> None:
        if key.kind != "scalar":
            self._problem_here(key, f"a key cannot be {_article(key.kind)}", "write the key as text")
        elif not isinstance(key.value, str):
            shown = self._text[key.start : key.end]
            self._problem_here(key, f"the key {shown:.60} is not text", f'write it in quotes: "{shown:.60}"')
        elif key.value in self._keys[-1]:
            first = self._keys[-1][key.value].line + 1
            self._problem_here(
                key, f"the key {key.value!r:.80} is already given on line {first}", "remove one of the two", key.value
            )
        else:
            self._keys[-1][key.value] = key

    def _spend(self, node: Node, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            message = f"the file holds more than {self._budget} values, aliases expanded"
            self._problem_here(node, message, "write less into one file, and repeat less by aliases")
            raise InvalidInput(self._problems)

    def _too_deep(self, node: Node) -> NoReturn:
        self._problem_here(node, f"values are nested more than {MAXIMUM_DEPTH} levels deep", "nest less deeply")
        raise InvalidInput(self._problems)

    def _here(self) -> list[str | int]:
        """Return the pointer to the value that comes next."""
        pointer: list[str | int] = []
        for parent in self._open:
            if parent.kind == "sequence":
                pointer.append(len(parent.items))
            elif len(parent.items) % 2:
                key = parent.items[-1].value
                pointer.append(key if isinstance(key, str) else "null" if key is None else str(key))
        return pointer

    def _problem_here(self, node: Node, message: str, mend: str, key: str | None = None) -> None:
        pointer = [*self._here(), *([key] if key is not None else [])]
        self._problem(message, node.line, node.column, mend=mend, pointer=pointer_text(pointer) or None)

    def _problem(self, message: str, line: int, column: int, *, mend: str, pointer: str | None = None) -> None:
        self._problems.append(
            Problem(message=message, path=self._path, line=line + 1, column=column + 1, pointer=pointer, mend=mend)
        )
        if len(self._problems) >= MAXIMUM_PROBLEMS:
            raise InvalidInput(self._problems)

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> NoReturn:
        mark = error.problem_mark or error.context_mark
        line, column = _line_and_column(mark)
        what = error.problem or "it cannot be parsed"
        context = f" {error.context}" if error.context else ""
        lines = self._text.split("\n")
        if line < len(lines) and _INDENTED_WITH_TAB.match(lines[line]):
            what, context, mend = "a tab indents the line", "", "indent with spaces"
        elif "maximum nesting depth" in what:
            what, context, mend = f"values are nested more than {MAXIMUM_DEPTH} levels deep", "", "nest less deeply"
        elif "mapping values are not allowed" in what:
            mend = 'indent the line as its neighbours, and quote a value that contains ": "'
        else:
            mend = "check the indentation, brackets and quotes here and on the lines before"
        self._problem(f"not valid YAML: {what}{context}", line, column, mend=mend)
        raise InvalidInput(self._problems)


def _line_and_column(mark: Any) -> tuple[int, int]:
    return (mark.line, mark.column) if mark is not None else (0, 0)


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "alias" else f"a {kind}"
