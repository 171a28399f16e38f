"""Labels that come in files reach the router, each once, whatever dies in between; what is no label is told."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mlgitops.adapters.serving.label_files import Label
from mlgitops.adapters.serving.served import SeriesKey, ServedLog
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.core.errors import NotFound, Unavailable
from mlgitops.local.labels import CUT_OFF_SECONDS, Labels
from mlgitops.local.telling import Problems

KEY = SeriesKey("production", "rings", "2-1", "canary", "a" * 12, "sha256:" + "0" * 64)
NAME = "labels/production/rings.jsonl"


class Desk:
    """A store, the log that a router counts with, and an engine's reader of labels."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        self.store = FolderStore(folder / "store", "claim")
        self.log = ServedLog(folder / "served")
        for number in range(6_000):
            self.log.served(f"r{number}", KEY, "ok", 0.01, [1])
        self.answers: list[object] = []
        self.calls = 0
        self.time = (folder / "served").stat().st_mtime
        self.begin()

    def begin(self) -> None:
        """Start an engine anew: what it knew is on disk, or gone."""
        problems = Problems(self, self.folder / "bug.txt", now=lambda: self.time)
        self.labels = Labels(self.folder, self.store, self, self, problems, now=lambda: self.time)

    def note(self, message: str) -> None:
        self.said.append(message)

    def report(self, environment: str, model: str, labels: Sequence[Label]) -> Mapping[str, str] | None:
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else "take"
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        told = {one.id: self.log.label(environment, model, one.id, one.values, None) for one in labels}
        return {request: answer for request, answer in told.items() if answer != "accepted"}

    def write(self, name: str, *lines: object, end: str = "\n", append: bool = True) -> Path:
        file = self.folder / "store" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + end
        with file.open("a" if append else "w") as stream:
            stream.write(text)
        return file

    @property
    def counted(self) -> tuple[int, int]:
        return self.log.series[KEY].labelled, self.log.series[KEY].incorrect


def label(number: int, value: object = 1) -> dict[str, object]:
    return {"id": f"r{number}", "label": value}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_and_objects_are_read_as_they_come(desk: Desk) -> None:
    """A file that grows, objects that appear, and objects in folders all bring their labels, and nothing else does."""
    desk.write(NAME, label(0), label(1, 0))
    desk.write("labels/production/rings/2026-12-01.jsonl", label(2))
    desk.labels.look()
    assert desk.counted == (3, 1)
    desk.write(NAME, label(3))
    desk.write("labels/production/rings/2026-12-02/part-0.jsonl", label(4))
    desk.write("labels/production/rings/notes.txt", label(5))
    desk.write("elsewhere/production/rings.jsonl", label(6))
    desk.labels.look()
    assert desk.counted == (5, 1)
    calls = desk.calls
    desk.labels.look()
    assert desk.calls == calls, "what is read was read again"
    assert desk.said == []


@pytest.mark.parametrize("forgets", [False, True])
def test_nothing_is_lost_or_counted_twice_over_restarts(desk: Desk, forgets: bool) -> None:
    """A reader that ends after any call, with or without what it remembered, counts each label once: the first."""
    lines = [label(number, 1) for number in range(4_500)]
    desk.write(NAME, *lines, label(0, 0), label(7, 0))
    for broken in range(6):
        desk.answers = ["take"] * broken + [Unavailable("router", "killed")]
        desk.labels.look()
        if forgets:
            (desk.folder / "labels.json").unlink(missing_ok=True)
        desk.begin()
    desk.answers = []
    desk.labels.look()
    assert desk.counted == (4_500, 0)
    log = ServedLog(desk.folder / "served")
    assert log.series[KEY].labelled == 4_500, "what the router wrote down is something else than what it counted"


def test_a_restart_goes_on_where_it_ended(desk: Desk) -> None:
    """What is with the router is not read again by the next engine."""
    desk.write(NAME, *[label(number) for number in range(3_000)])
    desk.labels.look()
    assert desk.calls == 3
    desk.begin()
    desk.write(NAME, label(3_000))
    desk.labels.look()
    assert desk.calls == 4
    assert desk.counted == (3_001, 0)


def test_lines_that_are_no_labels_are_told_with_file_and_line(desk: Desk) -> None:
    """What cannot be read is left out and told with its place; what is around it counts."""
    desk.write(NAME, label(0), "{", label(1), *["nothing"] * 6, {"id": "r2"}, label(3))
    desk.labels.look()
    assert desk.counted == (3, 0)
    assert f"labels   {NAME}:2: the line is no JSON; it is left out" in desk.said
    assert f"labels   {NAME}: 3 further lines are left out" in desk.said
    assert len(desk.said) == 6


def test_labels_that_find_no_request_are_told(desk: Desk) -> None:
    """A label of an unknown request, or one that does not fit, is told with its line, and is no label."""
    desk.write(NAME, label(0), {"id": "who", "label": 1}, label(1, [1, 2]), {"id": "what", "label": 1}, label(0))
    desk.labels.look()
    assert desk.counted == (1, 0)
    assert desk.said == [
        f"labels   {NAME}:3: 1 that do not fit what was predicted (invalid), this is the first",
        f"labels   {NAME}:2: 2 of requests that nobody remembers (unknown), this is the first",
    ]


def test_a_line_that_was_cut_off_is_told_and_read_when_its_end_comes(desk: Desk) -> None:
    """The end of a file that is being written is no problem; one that stays without an end is, until it has one."""
    desk.write(NAME, label(0), '{"id": "r1", "la', end="")
    desk.labels.look()
    assert (desk.counted, desk.said) == ((1, 0), [])
    desk.time += CUT_OFF_SECONDS + 60
    desk.labels.look()
    desk.labels.look()
    told = f"problem  {NAME}:2: the line was cut off; what is whole was read, and this is when its end comes"
    assert desk.said == [told]
    desk.write(NAME, 'bel": 0}')
    desk.labels.look()
    assert desk.counted == (2, 1)
    assert desk.said == [told]


def test_too_many_at_once_wait(desk: Desk) -> None:
    """A router that takes no more now loses none: the same labels come at the next look."""
    desk.write(NAME, *[label(number) for number in range(2_500)])
    desk.answers = ["take", None]
    desk.labels.look()
    assert desk.counted == (1_000, 0)
    desk.labels.look()
    assert desk.counted == (2_500, 0)
    assert desk.said == []


def test_one_file_in_trouble_holds_up_no_other(desk: Desk) -> None:
    """Labels of a model that is not served wait and are told; a link is never followed out of the store."""
    desk.write("labels/production/absent.jsonl", {"id": "of another model", "label": 1})
    desk.write(NAME, label(1))
    (desk.folder / "outside.jsonl").write_text(json.dumps(label(2)) + "\n")
    (desk.folder / "store/labels/production/rings").mkdir()
    (desk.folder / "store/labels/production/rings/link.jsonl").symlink_to(desk.folder / "outside.jsonl")
    (desk.folder / "store/labels/production/rings/loop").symlink_to(desk.folder / "store/labels")
    desk.answers = [NotFound("model served in production", "absent")]
    desk.labels.look()
    assert desk.counted == (1, 0)
    assert any("absent.jsonl" in one for one in desk.said)
    assert any("leads out of the store" in one for one in desk.said)
