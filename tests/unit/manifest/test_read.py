"""Strict reading: one meaning for every reader, or a problem with its place and mend."""

import resource
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.manifest import read, scalars
from mlgitops.core.manifest.read import Named, pointer_text, read_document, read_documents


def problems(data: bytes | str, **options: int) -> tuple[Problem, ...]:
    with pytest.raises(InvalidInput) as caught:
        read_document(data.encode() if isinstance(data, str) else data, "file.yaml", **options)
    for problem in caught.value.problems:
        assert problem.path == "file.yaml"
        assert problem.mend
        assert problem.severity == "error"
    return caught.value.problems


def places(data: str) -> list[tuple[int | None, int | None, str | None]]:
    return [(problem.line, problem.column, problem.pointer) for problem in problems(data)]


def test_reads_values_of_all_types() -> None:
    """A document with every accepted type has exactly the values written."""
    text = """
a: text
b: [1, -2, +3, 0x1F, 1.5, .5, 2.0e+3, true, False, null, ~, "1", '2', "NO"]
c:
  - x: |
      two
      lines
    z: >-
      folded
      text
  - {}
d:
e: !!str 5
"größe 😀": "😀"
"""
    value = read_document(text.encode(), "f").value
    assert value == {
        "a": "text",
        "b": [1, -2, 3, 31, 1.5, 0.5, 2000.0, True, False, None, None, "1", "2", "NO"],
        "c": [{"x": "two\nlines\n", "z": "folded text"}, {}],
        "d": None,
        "e": "5",
        "größe 😀": "😀",
    }
    assert [type(one) for one in value["b"]] == [int] * 4 + [float] * 3 + [bool] * 2 + [type(None)] * 2 + [str] * 3


def test_positions_count_characters_also_beyond_ascii() -> None:
    """Every value and key knows its line and column, counted in characters from 1."""
    text = '"größe😀": &a "ä"  # ü\nb: [x, *a]\nc:\n  - name: node\n    v: 1\n'
    document = read_document(text.encode(), "f")
    assert document.position(("größe😀",)) == (1, 11)
    assert document.key_position(("größe😀",)) == (1, 1)
    assert document.position(("b", 1)) == (2, 8)
    assert document.position(("c", Named("node"), "v")) == (5, 8)
    assert document.key_position(("c", 0, "v")) == (5, 5)
    assert document.value["b"] == ["x", "ä"]


def test_positions_of_missing_values_are_those_of_the_nearest_ancestor() -> None:
    """A pointer that leads nowhere is placed at the last value it reached."""
    document = read_document(b"a:\n  b: 1\n", "f")
    assert document.position(("a", "missing", 3, "x")) == (2, 3)
    assert document.position(("nothing",)) == (1, 1)
    assert document.problem("bad", ("a", "b"), mend="mend").pointer == "a.b"


def test_pointers_read_as_people_write_them() -> None:
    """Keys are joined by dots, indexes and unusual keys stand in brackets."""
    assert pointer_text(("spec", "roles", "chief", 0, "name")) == "spec.roles.chief[0].name"
    assert pointer_text(("a", "mlgitops.dev/x", Named("t"))) == 'a["mlgitops.dev/x"][name=t]'
    assert pointer_text(()) == ""


def test_every_duplicate_key_is_reported() -> None:
    """All repeated keys are found at once, each with its place and the first one's line."""
    text = "a: 1\nb: {c: 1, \"c\": 2}\na: 2\n'a': 3\n"
    assert places(text) == [(2, 11, "b.c"), (3, 1, "a"), (4, 1, "a")]
    assert "line 1" in problems(text)[1].message


BOOLEANS = ["y", "Y", "n", "No", "NO", "yes", "on", "Off"]
INTEGERS = ["0o10", "010", "-07", "0b11", "0O7", "0XFF", "-0x1F", "22:22", "1_000", "0_7", "9223372036854775808"]
FLOATS = ["1:30.5", "1e3", "1.5e3", "1234567e8", "00215e6", "-.5", ".nan", ".NaN", ".inf", "-.Inf", "1.0e+999"]
TIMES = ["2026-01-01", "2026-1-1", "2026-01-01T00:00:00Z"]


@pytest.mark.parametrize("text", [*BOOLEANS, *INTEGERS, *FLOATS, *TIMES, "="])
def test_scalars_that_readers_disagree_on_are_refused(text: str) -> None:
    """A plain text that some reader types differently is a problem as a value and in quotes is text."""
    for source, place in ((f"a: {text}", (1, 4, "a")), (f"- [{text}]", (1, 4, "[0][0]"))):
        (problem,) = problems(source)
        assert (problem.line, problem.column, problem.pointer) == place
        assert text[:40] in problem.message
        assert "quotes" in (problem.mend or "")
    assert read_document(f'a: "{text}"'.encode(), "f").value == {"a": text}
    assert scalars.render(text) == f'"{text}"'


@pytest.mark.parametrize("text", ["5", "1.5", "true", "null", "~", "0x10"])
def test_keys_are_text(text: str) -> None:
    """A key that is a number, a boolean or null is refused."""
    assert places(f"a: 1\n{text}: 2\n") == [(2, 1, None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<<: {a: 1}", "merge keys"),
        ("b: &b {a: 1}\nc:\n  <<: *b\n  d: 1\n", "merge keys"),
        ("? [a]\n: b", "key cannot be a sequence"),
        ("a: &a x\n*a : b\n", "key cannot be an alias"),
        ("a: !!python/object/apply:os.system [x]", "python/object"),
        ("a: !custom x", "!custom"),
        ("a: ! x", "tag !"),
        ("a: !!int '5'", "int"),
        ("a: !!binary aGk=", "binary"),
        ("%YAML 1.2\n---\na: 1\n", "directives"),
        ("a: &a 1\nb: &a 2\n", "already defined"),
        ("a: &a [*a]", "part of what it repeats"),
        ("a: *b", "no anchor"),
        ("a: 1\n---\nb: 1\n", "2 documents"),
        ("a: 1\n---\n", "empty"),
        ("---\n# comment\n", "empty"),
        ("", "no document"),
        ("# comment\n", "no document"),
        ("a:\n\tb: 1\n", "tab"),
        ("a: b: c", "mapping values"),
        ("a: [1, 2", "not valid YAML"),
        ('a: "x', "not valid YAML"),
        ("a: \x07\n", "U+0007"),
        ("a: x\u2028y\n", "U+2028"),
        ("a: x\ufeff\n", "U+FEFF"),
        ("a: 1\rb: 2\n", "U+000D"),
    ],
)
def test_what_readers_do_not_share_is_refused(text: str, expected: str) -> None:
    """Constructs outside the common ground of all readers are named, with a line."""
    found = problems(text)
    assert expected in found[0].message
    assert found[0].line is not None


def test_aliases_are_copies() -> None:
    """An alias yields an equal value of its own, so that changing one leaves the other."""
    value = read_document(b"a: &a {x: [1]}\nb: *a\n", "f").value
    assert value["a"] == value["b"]
    value["a"]["x"].append(2)
    assert value["b"] == {"x": [1]}


def test_crlf_is_accepted() -> None:
    """Line ends of Windows change neither values nor places."""
    document = read_document(b"a:\r\n  - x\r\nb: |\r\n  t\r\n", "f")
    assert document.value == {"a": ["x"], "b": "t\n"}
    assert document.position(("a", 0)) == (2, 5)


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b"\xef\xbb\xbfa: 1", "byte order mark", (1, 1)),
        ("a: 1".encode("utf-16"), "byte order mark", (1, 1)),
        ("a: 1".encode("utf-16-le"), "U+0000", (1, 2)),
        (b"a: \xc3\xa4\nb: \xc3\xa4\xe9\n", "not UTF-8: byte 0xe9", (2, 5)),
        (b"a: " + b"x" * (1 << 20), "more than 1048576", (None, None)),
    ],
)
def test_other_encodings_and_sizes_are_refused(data: bytes, message: str, place: tuple[int | None, int | None]) -> None:
    """Only UTF-8 without byte order mark and up to 1 MiB is read."""
    (problem, *_) = problems(data)
    assert message in problem.message
    assert (problem.line, problem.column) == place


def hostile() -> dict[str, bytes]:
    levels = [b"a0: &a0 [" + b",".join([b"x"] * 9) + b"]"]
    levels += [b"a%d: &a%d [" % (n, n) + b",".join([b"*a%d" % (n - 1)] * 9) + b"]" for n in range(1, 30)]
    chain = [b"- &a0 [x]"] + [b"- &a%d [*a%d]" % (n, n - 1) for n in range(1, 150)]
    return {
        "aliases bomb": b"\n".join(levels),
        "aliases chain": b"\n".join(chain),
        "brackets": b"[" * 3000,
        "braces": b'{"a":' * 3000,
        "dashes": b"- " * 3000,
        "questions": b"? " * 500_000,
        "anchors": b"&a " * 300_000,
        "duplicates": b"a: 1\n" * 200_000,
        "items": b"[" + b"a," * 400_000,
        "documents": b"--- a\n" * 150_000,
        "digits": b"9" * 900_000,
        "tags": b"!" * 900_000,
        "percents": b"%" * 900_000,
        "comments": b"#\n" * 500_000,
        "backslashes": b'"' + b"\\" * 900_000,
        "controls": b"\x01" * 900_000,
    }


@pytest.mark.parametrize("name", list(hostile()))
def test_hostile_files_are_refused_quickly(name: str) -> None:
    """A file made to exhaust its reader gets an answer within a second and within memory."""
    data = hostile()[name]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_seconds = time.process_time()
    assert problems(data)
    assert time.process_time() - start_seconds < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 200 * 1024


def test_nesting_is_bounded_at_the_same_depth_however_it_is_written() -> None:
    """64 levels are accepted and 65 refused, in flow style, in block style and through aliases."""
    assert isinstance(read_document(b"[" * 64 + b"]" * 64, "f").value, list)
    assert "64 levels" in problems(b"[" * 65 + b"]" * 65)[0].message
    assert "64 levels" in problems(b"- " * 65 + b"x")[0].message
    assert (
        "64 levels" in problems(b"- &a " + b"[" * 40 + b"]" * 40 + b"\n- " + b"[" * 30 + b"*a" + b"]" * 30)[0].message
    )


def test_the_budget_counts_what_aliases_repeat() -> None:
    """The budget is spent by expanded values, and exactly spent is accepted."""
    text = b"a: &a [1, 2]\nb: *a\n"
    assert read_document(text, "f", node_budget=9).value["b"] == [1, 2]
    assert "more than 8 values" in problems(text, node_budget=8)[0].message


def test_several_documents_are_read_in_order() -> None:
    """Documents of one file are separate: keys and anchors may repeat."""
    found = read_documents(b"---\na: &x 1\n---\na: &x 2\nb: *x\n...\n", "f")
    assert [document.value for document in found] == [{"a": 1}, {"a": 2, "b": 2}]
    assert found[1].position(("a",)) == (4, 4)


def test_reads_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pure Python parser gives the same values, places and problems as the C one."""
    import yaml

    good = '# c\na: &x "ä"\nb: [*x, {c: , d: e}]\nf:\n  - |\n    t\n  -\n'
    with_c = read_document(good.encode(), "f")
    bad_places = places("a: NO\nb: 1\nb: 2\n")
    monkeypatch.setattr(read, "_LOADER", yaml.SafeLoader)
    without = read_document(good.encode(), "f")
    assert without.value == with_c.value
    assert without.position(("b", 1, "d")) == with_c.position(("b", 1, "d"))
    assert places("a: NO\nb: 1\nb: 2\n") == bad_places


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_rendered_text_is_read_back_in_every_style(text: str) -> None:
    """Any text, written in any style and context, is the same text when read."""
    for style in (None, "'", '"'):
        block = f"k: {scalars.render(text, style=style)}\n"
        assert read_document(block.encode(), "f").value == {"k": text}
        flow = (
            f"[{scalars.render(text, style=style, flow=True)}, {{k: {scalars.render(text, style=style, flow=True)}}}]"
        )
        assert read_document(flow.encode(), "f").value == [text, {"k": text}]


@given(st.text(alphabet="0123456789+-._:eExobTZnNyYfsaitrulFO~=<", min_size=1, max_size=12))
def test_plain_text_is_never_retyped(text: str) -> None:
    """What is written without quotes is text to PyYAML's YAML 1.1 too."""
    import yaml

    if scalars.is_safe_plain(text, flow=False):
        assert yaml.safe_load(f"k: {text}") == {"k": text}
    value, complaint = scalars.resolve(text)
    if complaint is None and not isinstance(value, str):
        assert yaml.safe_load(f"k: {text}") == {"k": value}


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63) + 1, 2**63 - 1))
def test_rendered_numbers_are_read_back(number: float) -> None:
    """A number is read back as the same number of the same type."""
    value = read_document(f"k: {scalars.render(number)}".encode(), "f").value["k"]
    assert value == number
    assert type(value) is type(number)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_cannot_be_written_is_refused(value: float | str) -> None:
    """Numbers that are not finite and broken characters are never written."""
    with pytest.raises(InvalidInput):
        scalars.render(value)
