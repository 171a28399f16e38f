"""Byte-exact editing: one value changes, every other byte stays."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.edit import (
    Edit,
    InsertItem,
    Named,
    RemoveEntry,
    RemoveItem,
    SetEntry,
    SetScalar,
    edit,
    same,
)
from mlgitops.core.manifest.read import read_document, read_documents

JOB = """\
# The training job; people own everything but a few fields.
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: iris-0123abcd4567, labels: {team: blue}}  # flow
spec:
  runPolicy: &policy
    cleanPodPolicy: Running
  tfReplicaSpecs:
    Chief:
      template:
        spec:
          containers:
            # the operator looks for this name
            - name: tensorflow   # not another
              image: "registry.example/iris@sha256:aaaa"   # pinned
              args: ["--epochs=3", '--rate=0.1',]
              env:
              - name: A
                value: 'one'
              - name: B
                value: "2"

              # behind the variables
            - {name: sidecar, image: busybox}
  copy: *policy
  script: |
    echo one
    echo two
  empty:    # nothing yet

# the end"""
CONTAINER = ("spec", "tfReplicaSpecs", "Chief", "template", "spec", "containers", Named("tensorflow"))


def edited(text: str, *edits: Edit, document: int = 0) -> str:
    return edit(text.encode(), "file.yaml", edits, document=document).decode()


def refusal(text: str, *edits: Edit) -> Any:
    with pytest.raises(InvalidInput) as caught:
        edited(text, *edits)
    (problem,) = caught.value.problems
    assert problem.path == "file.yaml"
    assert problem.line
    assert problem.mend
    return problem


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (SetScalar((*CONTAINER, "image"), "x@sha256:bb"), '"registry.example/iris@sha256:aaaa"', '"x@sha256:bb"'),
        (SetScalar((*CONTAINER, "env", Named("A"), "value"), "it's"), "'one'", "'it''s'"),
        (SetScalar((*CONTAINER, "env", Named("B"), "value"), 3), '"2"', "3"),
        (SetScalar((*CONTAINER, "args", 1), "--rate=1"), "'--rate=0.1'", "'--rate=1'"),
        (SetScalar((*CONTAINER[:-1], Named("sidecar"), "image"), "a,b"), "busybox", '"a,b"'),
        (SetScalar(("metadata", "name"), "iris-1"), "iris-0123abcd4567", "iris-1"),
        (SetScalar(("metadata", "labels", "team"), "NO"), "blue", '"NO"'),
        (SetScalar(("spec", "empty"), "1234567e8"), "empty: ", 'empty: "1234567e8" '),
        (SetScalar(("spec", "empty"), True), "empty: ", "empty: true "),
        (SetScalar(("spec", "script"), "echo\n\nthree\n"), "echo one\n    echo two", "echo\n\n    three"),
        (SetScalar(("spec", "script"), "one"), "|\n    echo one\n    echo two", "one"),
        (SetEntry((*CONTAINER,), "image", "x"), '"registry.example/iris@sha256:aaaa"', '"x"'),
        (SetEntry(("spec",), "copy", "x"), "*policy", "x"),
        (SetEntry(("metadata", "labels"), "a/b", "00215e6"), "team: blue", 'team: blue, a/b: "00215e6"'),
        (SetEntry(("spec",), "new", 1), "echo two", "echo two"),
        (InsertItem((*CONTAINER, "args"), "--x"), "'--rate=0.1'", "'--rate=0.1', --x"),
        (
            InsertItem((*CONTAINER, "env"), {"name": "C", "value": "on"}),
            'value: "2"',
            'value: "2"\n              - name: C\n                value: "on"',
        ),
        (RemoveItem((*CONTAINER, "args"), "--epochs=3"), '"--epochs=3", \'', "'"),
        (
            RemoveItem((*CONTAINER, "env"), {"name": "A", "value": "one"}),
            "- name: A\n                value: 'one'\n",
            "",
        ),
        (RemoveEntry(("metadata",), "labels"), ", labels: {team: blue}", ""),
        (RemoveEntry(("spec",), "copy"), "  copy: *policy\n", ""),
    ],
)
def test_only_the_intended_text_changes(change: Edit, old: str, new: str, newline: str) -> None:
    """Each kind of edit replaces the text of its value, whatever the line ends, and nothing else."""
    if isinstance(change, SetEntry) and change.key == "new":
        expected = JOB.replace("empty:    # nothing yet", "empty:    # nothing yet\n  new: 1")
    elif new == "" and "name: A" in old:
        expected = JOB.replace("              " + old, "")
    else:
        assert JOB.count(old) == 1
        expected = JOB.replace(old, new)
    assert edited(JOB.replace("\n", newline), change) == expected.replace("\n", newline)


@pytest.mark.parametrize(
    "change",
    [
        SetScalar((*CONTAINER, "env", Named("B"), "value"), "2"),
        SetScalar(("spec", "copy", "cleanPodPolicy"), "Running"),
        SetEntry(("metadata",), "labels", {"team": "blue"}),
        InsertItem((*CONTAINER, "args"), "--epochs=3"),
        RemoveItem((*CONTAINER, "args"), "--none"),
        RemoveEntry(("spec",), "none"),
    ],
)
def test_what_is_right_already_stays_identical(change: Edit) -> None:
    """An edit that asks for what is there gives the same bytes, also through an alias."""
    assert edited(JOB, change) == JOB


def test_edits_are_made_in_order() -> None:
    """A later edit sees what earlier ones did."""
    changes: list[Edit] = [
        SetEntry(("spec",), "list", []),
        InsertItem(("spec", "list"), "a"),
        InsertItem(("spec", "list"), "b"),
    ]
    assert read_document(edited(JOB, *changes).encode(), "f").value["spec"]["list"] == ["a", "b"]
    assert edited(JOB, *changes, RemoveEntry(("spec",), "list")) == JOB


@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        ("r:\n- a # c\n", RemoveItem(("r",), "a"), "r: []\n"),
        ("r:\n  - # c\n    k: 1\n  - 2\n", RemoveItem(("r",), {"k": 1}), "r:\n  - 2\n"),
        ("r: # k\n  # above\n  - a\n# end", RemoveItem(("r",), "a"), "r: [] # k\n  # above\n# end"),
        ("m:\n  a: 1\nz: 1\n", RemoveEntry(("m",), "a"), "m: {}\nz: 1\n"),
        ("a: 1\nb: 2", RemoveEntry((), "a"), "b: 2"),
        ("a: 1\nb: 2", RemoveEntry((), "b"), "a: 1"),
        ("- k: 1\n  v: 2\n", RemoveEntry((0,), "k"), "- v: 2\n"),
        ("- - a\n  - b\n", RemoveItem((0,), "a"), "- - b\n"),
        ("[a, b, a]", RemoveItem((), "a"), "[b]"),
        ("[a,]", RemoveItem((), "a"), "[]"),
        ("[a, # c\n b]", RemoveItem((), "b"), "[a, # c\n ]"),
        ("r: []\n", InsertItem(("r",), "a"), "r: [a]\n"),
        ("r: [\n  a,\n  b # c\n]\n", InsertItem(("r",), "d"), "r: [\n  a,\n  b,\n  d # c\n]\n"),
        ("m: {}\n", SetEntry(("m",), "k", {"x": ["z"]}), "m: {k: {x: [z]}}\n"),
        ("m: # c\n", SetEntry((), "m", {"x": ["z", {"a": 1, "b": [[2]]}]}), None),
        ("m:\n  a: 1\nz: 1\n", SetEntry((), "m", {"b": 2}), "m:\n  b: 2\nz: 1\n"),
        ("m: {a: 1}\nz: 1\n", SetEntry((), "m", {"b": 2}), "m:\n  b: 2\nz: 1\n"),
        ("m: {a: 1}\nz: 1\n", SetEntry((), "m", 5), "m: 5\nz: 1\n"),
        ("- 1\n", SetScalar((0,), 1.0e-5), "- 1.0e-05\n"),
        ("text\n", SetScalar((), "new"), "new\n"),
        ("a: &x 1\n", SetScalar(("a",), 2), "a: &x 2\n"),
        ("a: &x\n  b: 1\n", RemoveEntry(("a",), "b"), "a: &x {}\n"),
        ("a: {b: }\n", SetScalar(("a", "b"), "c"), "a: {b: c }\n"),
        ("a: >-\n  x\n  y\n\nb: 1\n", SetScalar(("a",), "z"), "a: z\n\nb: 1\n"),
    ],
)
def test_shapes_at_the_edge(text: str, change: Edit, expected: str | None) -> None:
    """Only items, empty values, anchors and flow style are edited as a person would."""
    if expected is None:
        expected = "m: # c\n  x:\n    - z\n    - a: 1\n      b:\n        - - 2\n"
    assert edited(text, change) == expected


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (SetScalar(("spec", "runPolicy", "cleanPodPolicy"), "All"), 7, "also change line 25, which repeats &policy"),
        (SetEntry(("spec", "runPolicy"), "x", 1), 6, "also change line 25"),
        (SetScalar(("spec", "copy", "cleanPodPolicy"), "All"), 7, "only repeated here by the alias *policy"),
        (SetEntry(("spec", "copy"), "x", 1), 25, "only repeated here by the alias *policy"),
        (RemoveEntry(("spec",), "runPolicy"), 6, "breaking the file"),
        (SetScalar(("spec", "missing"), 1), 6, "there is no spec.missing"),
        (SetScalar((*CONTAINER[:-1], Named("none"), "image"), 1), 14, "there is no"),
        (SetScalar(("metadata",), 1), 4, "metadata is not a single value"),
        (InsertItem(("metadata",), "x"), 4, "metadata is not a list"),
        (InsertItem(("spec", "empty"), "x"), 29, "spec.empty is not a list"),
        (SetEntry((*CONTAINER, "args"), "x", 1), 16, "is not a mapping"),
        (RemoveEntry(CONTAINER, "name"), 14, "shares its first line"),
    ],
)
def test_edits_that_would_touch_more_are_refused(change: Edit, line: int, message: str) -> None:
    """A change that an alias carries elsewhere, or that has no place, is refused with its line."""
    problem = refusal(JOB, change)
    assert message in problem.message
    assert problem.line == line


def test_ambiguous_names_are_refused() -> None:
    """Two items of one name are never edited by that name."""
    assert "2 items" in refusal("- {name: a, v: 1}\n- {name: a, v: 2}\n", SetScalar((Named("a"), "v"), 3)).message


def test_a_missing_document_is_refused() -> None:
    """An edit of a document beyond the last one names how many there are."""
    with pytest.raises(InvalidInput, match="there is no document 1"):
        edited("a: 1\n", SetScalar(("a",), 2), document=1)


def test_what_readers_would_not_share_is_never_written() -> None:
    """Values that a strict reader refuses cannot get into a file."""
    for value in (float("nan"), 2**63, "\ud800"):
        with pytest.raises(InvalidInput):
            edited("a: 1\n", SetScalar(("a",), value))


def test_a_thousand_small_manifests_are_edited_in_seconds() -> None:
    """Editing is fast enough for a repository with thousands of manifests (loose bound for busy machines)."""
    data, change = JOB.encode(), SetScalar((*CONTAINER, "image"), "x@sha256:bb")
    start_seconds = time.process_time()
    for _ in range(200):
        edit(data, "f", [change])
    assert time.process_time() - start_seconds < 200 / 250


# Generated files: every value is known from how it was written, so the reader is not its own judge.

SCALARS: list[tuple[str, Any]] = [
    ("plain", "plain"),
    ("two words", "two words"),
    ("s3://bucket/key@sha256:ab", "s3://bucket/key@sha256:ab"),
    ("größe😀", "größe😀"),
    ("a#b", "a#b"),
    ("'single ''q'' # no'", "single 'q' # no"),
    ('"double \\" é, {x}"', 'double " é, {x}'),
    ('"NO"', "NO"),
    ("12", 12),
    ("-1.5", -1.5),
    ("true", True),
    ("null", None),
    ('""', ""),
]
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        "new",
        "NO",
        "00215e6",
        "a: b",
        "x # y",
        "",
        " lead",
        "ü😀",
        "a,b]",
        "-",
        "---",
        "it's",
        'q"',
        "a\nb",
        7,
        True,
        False,
    ]
)
COMMENT = st.sampled_from(["", "", "", "  # note: {x} - 'y'", " # ü"])
LINES_BETWEEN = st.sampled_from([[], [], [], ["# between"], [""], ["  # deep: x", ""], ["# - a"]])


@dataclass
class Written:
    """Lines written so far, and what they mean."""

    lines: list[str] = field(default_factory=list)
    sources: dict[tuple[Any, ...], str] = field(default_factory=dict)
    anchors: dict[str, Any] = field(default_factory=dict)


@st.composite
def flow_written(draw: st.DrawFn, depth: int) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["scalar", "list", "mapping"] if depth < 2 else ["scalar"]))
    if kind == "scalar":
        source, value = draw(st.sampled_from(SCALARS))
        return source, value
    items = [draw(flow_written(depth + 1)) for _ in range(draw(st.integers(0, 3)))]
    comma = draw(st.sampled_from([", ", ",", " , "]))
    tail = draw(st.sampled_from(["", " ", ","])) if items else ""
    if kind == "list":
        return "[" + comma.join(source for source, _ in items) + tail + "]", [value for _, value in items]
    body = comma.join(f"k{index}: {source}" for index, (source, _) in enumerate(items))
    return "{" + body + tail + "}", {f"k{index}": value for index, (_, value) in enumerate(items)}


def write_block(
    draw: st.DrawFn, out: Written, pointer: tuple[Any, ...], column: int, lead: str, *, is_list: bool | None = None
) -> Any:
    """Write a collection whose first line starts with `lead` (up to `column`); return its value."""
    if is_list is None:
        is_list = draw(st.booleans()) if pointer else False
    count = draw(st.integers(1, 3))
    result: Any = [] if is_list else {}
    for index in range(count):
        if index:
            lead = " " * column
            out.lines.extend(draw(LINES_BETWEEN))
        step = index if is_list else f"{draw(st.sampled_from(['key', 'größe', 'mlgitops.dev/k']))}{index}"
        mark = "-" if is_list else f"{step}:"
        value = write_value(draw, out, (*pointer, step), column, lead + mark)
        if is_list:
            result.append(value)
        else:
            result[step] = value
    return result


def write_value(draw: st.DrawFn, out: Written, pointer: tuple[Any, ...], column: int, head: str) -> Any:
    kind = draw(
        st.sampled_from(
            ["scalar"] * 4 + ["flow", "nothing", "literal", "alias"] + ["block"] * (2 if len(pointer) < 4 else 0)
        )
    )
    name = f"a{len(out.lines)}"
    anchor = draw(st.sampled_from(["", "", "", f" &{name}"]))
    comment = draw(COMMENT)
    if kind == "nothing":
        out.lines.append(head + comment)
        return None
    if kind == "alias" and out.anchors:
        repeated = draw(st.sampled_from(sorted(out.anchors)))
        out.sources[pointer] = f"*{repeated}"
        out.lines.append(f"{head} *{repeated}{comment}")
        return copy.deepcopy(out.anchors[repeated])
    if kind == "literal":
        out.lines.extend([f"{head}{anchor} |-{comment}", " " * (column + 3) + "one", "", " " * (column + 3) + "# two"])
        return "one\n\n# two"
    if kind == "block":
        is_item = head.endswith("-")
        if is_item and not anchor and draw(st.booleans()):
            return write_block(draw, out, pointer, len(head) + 1, head + " ")
        out.lines.append(head + anchor + comment)
        out.lines.extend(line for line in draw(LINES_BETWEEN) if not is_item)
        inner = column + draw(st.integers(1, 4))
        value = write_block(draw, out, pointer, inner, " " * inner)
        out.anchors |= {name: value} if anchor else {}
        return value
    source, value = draw(flow_written(0) if kind == "flow" else st.sampled_from(SCALARS))
    out.anchors |= {name: value} if anchor else {}
    if kind != "flow":
        out.sources[pointer] = source
    out.lines.append(f"{head}{anchor} {source}{comment}")
    return value


@dataclass
class File:
    """A generated file."""

    text: str
    values: list[Any]
    document: int
    sources: dict[tuple[Any, ...], str]
    newline: str


@st.composite
def files(draw: st.DrawFn) -> File:
    lines: list[str] = []
    values: list[Any] = []
    sources: dict[tuple[Any, ...], str] = {}
    count = draw(st.integers(1, 3))
    document = draw(st.integers(0, count - 1))
    for index in range(count):
        out = Written()
        if index or draw(st.booleans()):
            lines.append(draw(st.sampled_from(["---", "--- # doc"])))
        value = write_block(draw, out, (), 0, "")
        out.lines.append("items:")
        value["items"] = write_block(draw, out, ("items",), 2, "  ", is_list=True)
        values.append(value)
        lines.extend(out.lines)
        sources = out.sources if index == document else sources
    lines.extend(draw(st.sampled_from([[], ["# end"], ["", "  # end"], ["..."]])))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = newline.join(lines) + draw(st.sampled_from(["", newline]))
    return File(text, values, document, sources, newline)


def collections(value: Any, kind: type, pointer: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, kind):
        yield pointer
    if isinstance(value, (dict, list)):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from collections(item, kind, (*pointer, step))


def at(value: Any, pointer: tuple[Any, ...]) -> Any:
    for step in pointer:
        value = value[step]
    return value


ALIASED = ("also change line", "repeated here by the alias", "has no anchor before it")


def attempted(file: File, change: Edit, *allowed: str) -> str:
    """Return the edited file; an alias may stand in the way, or a reason that is `allowed`, and nothing else."""
    try:
        return edited(file.text, change, document=file.document)
    except InvalidInput as error:
        reasons = [*ALIASED, *allowed] if "*" in file.text else allowed
        assert any(reason in str(error) for reason in reasons)  # noqa: PT017
        reject()


def read_values(text: str) -> list[Any]:
    return [document.value for document in read_documents(text.encode(), "f")]


@settings(max_examples=60, deadline=None)
@given(files())
def test_generated_files_mean_what_was_written(file: File) -> None:
    """The reader finds the values that the file was made from."""
    assert same(read_values(file.text), file.values)


@settings(max_examples=60, deadline=None)
@given(files(), VALUES, st.data())
def test_setting_a_scalar_replaces_its_text_alone(file: File, value: Any, data: st.DataObject) -> None:
    """Of a whole file only the old value's characters are replaced, and only its meaning changes."""
    assume(file.sources)
    pointer = data.draw(st.sampled_from(sorted(file.sources, key=str)))
    assume(not isinstance(at(file.values[file.document], pointer), (dict, list)))
    result = attempted(file, SetScalar(pointer, value))
    assume(result != file.text)
    line, column = read_documents(file.text.encode(), "f")[file.document].position(pointer)
    lines = file.text.split("\n")
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    rest = file.text[len(before) :]
    properties = rest.index(" ") + 1 if rest.startswith("&") else 0
    before, rest = before + rest[:properties], rest[properties:]
    assert rest.startswith(file.sources[pointer])
    after = rest[len(file.sources[pointer]) :]
    assert result.startswith(before)
    assert result.endswith(after)
    wanted = file.values
    at(wanted[file.document], pointer[:-1])[pointer[-1]] = value
    assert same(read_values(result), wanted)


@settings(max_examples=60, deadline=None)
@given(files(), VALUES, st.data())
def test_inserting_and_removing_an_item_restores_the_file(file: File, value: Any, data: st.DataObject) -> None:
    """A new item is all that is added, and removing it gives the original bytes."""
    pointer = data.draw(st.sampled_from(list(collections(file.values[file.document], list))))
    item = data.draw(st.sampled_from([f"item {value}", {"name": "item", "value": value}, [["item"], value]]))
    result = attempted(file, InsertItem(pointer, item))
    assert edited(result, RemoveItem(pointer, item), document=file.document) == file.text
    at(file.values[file.document], pointer).append(item)
    assert same(read_values(result), file.values)


@settings(max_examples=60, deadline=None)
@given(files(), VALUES, st.data())
def test_adding_and_removing_an_entry_restores_the_file(file: File, value: Any, data: st.DataObject) -> None:
    """A new entry is all that is added, and removing it gives the original bytes."""
    pointer = data.draw(st.sampled_from(list(collections(file.values[file.document], dict))))
    key = data.draw(st.sampled_from(["new", "NO", "mlgitops.dev/x", "a b", "1"]))
    entry = data.draw(st.sampled_from([value, {"x": value, "y": [value, {"z": []}]}]))
    result = attempted(file, SetEntry(pointer, key, entry))
    assert edited(result, RemoveEntry(pointer, key), document=file.document) == file.text
    at(file.values[file.document], pointer)[key] = entry
    assert same(read_values(result), file.values)


@settings(max_examples=60, deadline=None)
@given(files(), st.data())
def test_removing_what_people_wrote_keeps_all_other_lines(file: File, data: st.DataObject) -> None:
    """Removing any entry changes its meaning alone or is refused, and comments on other lines survive."""
    found = list(collections(file.values[file.document], dict))
    pointer = data.draw(st.sampled_from([one for one in found if at(file.values[file.document], one)]))
    mapping = at(file.values[file.document], pointer)
    key = data.draw(st.sampled_from(list(mapping)))
    result = attempted(file, RemoveEntry(pointer, key), "shares its first line")
    old, new = file.text.splitlines(), result.splitlines()
    assert len([line for line in new if line not in old]) <= 1
    del mapping[key]
    assert same(read_values(result), file.values)
