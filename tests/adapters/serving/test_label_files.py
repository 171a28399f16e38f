"""Labels in files: every whole line once, however the file grows; what is no label is told by its number."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.adapters.serving.label_files import BYTES, LONGEST_LINE, Label, Part, Place, read_labels
from mlgitops.core.errors import InvalidInput

GOOD = (b'{"id": "a", "label": 1}', b'{"id": "b", "label": ["x", "y"]}', b'{"label": 0.5, "id": "c", "at": "today"}')
BAD = (
    b"{",
    b"[]",
    b"1",
    b'{"id": 1, "label": 2}',
    b'{"id": "a"}',
    b'{"id": "a", "label": {}}',
    b"\xff",
    b"[" * 9_999,
    b'{"id": "a", "label": NaN}',
    b'{"id": "a", "label": 1' + b"0" * 400 + b"}",
)


def read_all(file: Path, place: Place, lines: int = 1_000) -> tuple[list[Label], dict[int, str], Place]:
    labels: list[Label] = []
    problems: dict[int, str] = {}
    part = Part(more=True)
    while part.more:
        part = read_labels(file, place, lines=lines)
        labels += part.labels
        problems |= part.problems
        place = part.place
    return labels, problems, place


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    """A file that grows is read on from where its whole lines ended."""
    file = tmp_path / "labels.jsonl"
    file.write_bytes(GOOD[0] + b"\n" + GOOD[1][:9])
    first = read_labels(file, Place())
    assert [(one.line, one.id, one.values) for one in first.labels] == [(1, "a", [1])]
    assert (first.open_line, first.more) == (2, False)
    file.write_bytes(GOOD[0] + b"\n" + GOOD[1] + b"\n\n" + GOOD[2])
    second = read_labels(file, first.place)
    assert [(one.line, one.id, one.values) for one in second.labels] == [(2, "b", ["x", "y"]), (4, "c", [0.5])]
    assert (second.open_line, second.place.line) == (0, 3), "a last line that is whole counts, and is looked at again"


@given(
    st.lists(st.sampled_from([*GOOD, *BAD, b"", b"   "]), max_size=12),
    st.lists(st.integers(0, 400), max_size=6),
    st.integers(1, 4),
)
def test_any_way_of_growing_gives_the_same_labels(lines: list[bytes], cuts: list[int], at_once: int) -> None:
    """However a file came, and however it was read, each line is told once: as a label, as a problem, or as empty."""
    import tempfile

    data = b"".join(line + b"\n" for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f"
        file.touch()
        place, found, problems = Place(), dict[int, str](), dict[int, str]()
        for end in (*sorted(cut for cut in cuts if cut < len(data)), len(data)):
            file.write_bytes(data[:end])
            labels, told, place = read_all(file, place, at_once)
            found |= {one.line: one.id for one in labels}
            problems |= told
    expected = {number: json.loads(line)["id"] for number, line in enumerate(lines, 1) if line in GOOD}
    assert found == expected
    assert {*problems} == {number for number, line in enumerate(lines, 1) if line in BAD}
    assert place.offset == len(data)


def test_a_line_that_is_no_label_is_told_and_left_out(tmp_path: Path) -> None:
    """Whatever stands in a line, those around it are read, and its words repeat nothing of it."""
    file = tmp_path / "labels.jsonl"
    lines = [*BAD, b'{"id": "secret-4711", "label": null}', b'{"id": "' + b"x" * LONGEST_LINE + b'", "label": 1}']
    file.write_bytes(b"\n".join([GOOD[0], *lines, GOOD[1], b""]))
    labels, problems, _ = read_all(file, Place())
    assert [one.id for one in labels] == ["a", "b"]
    assert [*problems] == [*range(2, 2 + len(lines))]
    assert "4711" not in "".join(problems.values())
    assert "longer than" in problems[1 + len(lines)]


@pytest.mark.parametrize("after", [GOOD[2] + b"\n", GOOD[2] + b"\n" + GOOD[2] + b"\n" + GOOD[1] + b"\n", b""])
def test_a_file_that_is_another_one_is_read_from_its_beginning(tmp_path: Path, after: bytes) -> None:
    """A file that was replaced, shortened or written anew is never read from its middle."""
    for exchanged in (False, True):
        file = tmp_path / f"labels-{exchanged}.jsonl"
        file.write_bytes(GOOD[0] + b"\n" + GOOD[1] + b"\n")
        _, _, place = read_all(file, Place())
        if exchanged:
            (tmp_path / "new").write_bytes(after)
            (tmp_path / "new").rename(file)
        else:
            file.write_bytes(after)
        labels, problems, place = read_all(file, place)
        assert [one.line for one in labels] == [*range(1, after.count(b"\n") + 1)]
        assert (problems, place.offset) == ({}, len(after))


def test_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    """A link could lead to any file of the machine, and a pipe would never end."""
    import os

    (tmp_path / "file").write_bytes(GOOD[0])
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(InvalidInput):
            read_labels(tmp_path / name, Place())


def test_a_reading_is_no_larger_than_a_call_may_be(tmp_path: Path) -> None:
    """Labels of many rows are read in several parts, so that no file is too large for the router."""
    file = tmp_path / "labels.jsonl"
    line = json.dumps({"id": "a", "label": ["\u00e9" * 200] * 50}, ensure_ascii=False) + "\n"
    file.write_text(line * 200, encoding="utf-8")
    first = read_labels(file, Place())
    assert first.more
    assert first.place.offset < BYTES + LONGEST_LINE
    labels, problems, _ = read_all(file, Place())
    assert (len(labels), problems) == (200, {})
