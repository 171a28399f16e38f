"""Every verb as it is typed: standard output, standard error and exit code together, in words and as data."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mlgitops.core.schemas import schema
from tests.cli.conftest import Desk

EXPECTED = Path(__file__).parent / "expected"
ONE, TWO, THREE, FOUR, FIVE = range(5)
CASES = {
    # name: (stage, words, exit code, definition in the schema); numbers are releases
    "status": ("busy", ["status"], 0, "status"),
    "status-calm": ("calm", ["status", "--model", "digits"], 0, "status"),
    "status-unknown-model": ("calm", ["status", "--model", "digit"], 1, "error"),
    "history": ("busy", ["history"], 0, "history"),
    "history-unknown-environment": ("busy", ["history", "-e", "prod"], 1, "error"),
    "trace": ("busy", ["trace", TWO], 0, "trace"),
    "trace-without-engine": ("busy", ["trace", "7c0f3b1e"], 3, "error"),
    "models-list": ("busy", ["models", "list"], 0, "modelsList"),
    "models-show": ("busy", ["models", "show", FIVE], 0, "trace"),
    "models-card": ("busy", ["models", "card", TWO], 0, "modelsCard"),
    "logs": ("busy", ["logs", ONE], 0, "logs"),
    "logs-follow-to-the-end": ("busy", ["logs", ONE, "--follow"], 0, "logs"),
    "logs-none": ("busy", ["logs", FIVE], 1, "error"),
    "promote": ("calm", ["promote", ONE, "--force", "--reason", "we want it back"], 0, "promote"),
    "promote-live": ("calm", ["promote", TWO], 0, "promote"),
    "promote-under-way": ("busy", ["promote", ONE], 1, "error"),
    "promote-force-without-reason": ("calm", ["promote", ONE, "--force"], 3, "error"),
    "promote-unknown": ("calm", ["promote", "abcdef012345"], 1, "error"),
    "rollback": ("calm", ["rollback", "--reason", "users complain"], 0, "rollback"),
    "hold": ("calm", ["hold", "--reason", "audit"], 0, "hold"),
    "resume-nothing": ("calm", ["resume"], 0, "resume"),
    "approve": ("busy", ["approve"], 0, "approve"),
    "approve-nothing": ("calm", ["approve"], 1, "error"),
    "reject": ("busy", ["reject", TWO, "--reason", "wrong labels"], 0, "reject"),
    "abort": ("busy", ["abort", FIVE, "--reason", "a mistake"], 0, "abort"),
    "abort-too-late": ("busy", ["abort", TWO, "--reason", "a mistake"], 1, "error"),
    "report": ("busy", ["report"], 0, "report"),
    "reconcile-without-engine": ("calm", ["reconcile"], 1, "error"),
    "gc-without-engine": ("calm", ["gc"], 1, "error"),
    "train-without-engine": ("calm", ["train"], 1, "error"),
    "usage": ("calm", ["hold"], 2, "error"),
    "unknown-verb": ("calm", ["rolback"], 2, "error"),
    "unknown-option": ("calm", ["status", "--modle", "digits"], 2, "error"),
}
WRITES = [
    ("calm", ["promote", ONE], "main: promote(digits)"),
    ("calm", ["rollback"], "ledger: rollout(digits)"),
    ("calm", ["hold", "--reason", "audit"], "ledger: hold(digits)"),
    ("busy", ["approve"], "ledger: approve(digits)"),
    ("busy", ["reject", TWO, "--reason", "wrong labels"], "ledger: release(digits)"),
    ("busy", ["abort", FIVE, "--reason", "a mistake"], "ledger: release(digits)"),
]


def typed(place, words):
    return [place.stages.names[word] if isinstance(word, int) else word for word in words]


def fits(values, definition: str) -> list[str]:
    """Return what does not fit the published schema."""
    one = {**schema("output"), "anyOf": [{"$ref": f"#/$defs/{definition}"}]}
    checker = Draft202012Validator(one, format_checker=Draft202012Validator.FORMAT_CHECKER)
    flat = {"$ref": f"#/$defs/{definition}", "$defs": one["$defs"]}
    return [f"{list(error.path)}: {error.message}" for error in checker.evolve(schema=flat).iter_errors(values)]


@pytest.mark.parametrize("name", CASES)
def test_what_people_read(name, desk: Callable[[str], Desk]) -> None:
    """Output, errors and exit code of a command are the ones that were reviewed."""
    stage, words, code, _ = CASES[name]
    place = desk(stage)
    told = place(*typed(place, words))
    text = place.normal(f"{told.out}--- stderr\n{told.err}--- exit code {told.code}\n")
    assert told.code == code, text
    file = EXPECTED / f"{name}.txt"
    if os.environ.get("UPDATE_EXPECTED"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_what_programs_read(name, desk: Callable[[str], Desk]) -> None:
    """With --output json, standard output is one document by the published schema, whether it worked or not."""
    stage, words, code, definition = CASES[name]
    place = desk(stage)
    told = place.json(*typed(place, words))
    assert told.code == code, told.err
    assert fits(told.values, definition) == []
    if definition == "error":
        assert told.values["error"]["exitCode"] == code
        assert told.err == ""


@pytest.mark.parametrize(("stage", "words", "commit"), WRITES, ids=lambda one: one[0] if isinstance(one, list) else "")
def test_a_dry_run_writes_nothing(stage, words, commit, desk: Callable[[str], Desk]) -> None:
    """What writes says with --dry-run which commits it would make, and both branches stay where they are."""
    place = desk(stage)
    before, files = place.refs(), sorted(place.repository.rglob("*"))
    told = place(*typed(place, words), "--dry-run")
    assert told.code == 0
    assert commit in told.out
    as_data = place.json(*typed(place, words), "--dry-run")
    assert fits(as_data.values, words[0]) == []
    assert as_data.values["dryRun"] is True
    assert as_data.values["commits"]
    assert place.refs() == before
    assert sorted(place.repository.rglob("*")) == files


@pytest.mark.parametrize(("stage", "words", "commit"), WRITES, ids=lambda one: one[0] if isinstance(one, list) else "")
def test_a_dry_run_foretells_what_is_written(stage, words, commit, desk: Callable[[str], Desk]) -> None:
    """The commits of a dry run are the ones that the command then makes, subject by subject."""
    del commit
    place = desk(stage)
    foretold = place.json(*typed(place, words), "--dry-run").values["commits"]
    before = place.refs()
    assert place(*typed(place, words)).code == 0
    written = [one for ref in before for one in _subjects(place, ref, before[ref])]
    assert sorted((one["ref"], one["subject"]) for one in foretold) == sorted(written)


def _subjects(place, ref: str, until: str | None) -> list[tuple[str, str]]:
    from mlgitops.adapters.repository.git import open_repository
    from mlgitops.ports.repository import Person

    opened = open_repository(str(place.repository), identity=Person(name="t", email="t@x"), cache=place.folder)
    tip = opened.snapshot(ref).revision
    assert tip is not None
    return [(ref, one.message.partition("\n")[0]) for one in opened.history(tip, until=until)]


def test_resume_ends_what_hold_began(desk: Callable[[str], Desk]) -> None:
    """A hold lasts until resume, and both tell whether they changed anything."""
    place = desk("calm")
    assert place.json("hold", "--reason", "audit").values["changed"] is True
    assert place.json("hold", "--reason", "audit").values["changed"] is False
    assert place("promote", place.stages.names[ONE]).code == 1
    before = place.refs()
    assert place.json("resume", "--dry-run").values["commits"][0]["subject"].startswith("resume(digits)")
    assert place.refs() == before
    assert place.json("resume").values["changed"] is True


def test_every_description_is_there() -> None:
    """Every field of the output schema says what it means, and the schema itself is valid."""
    Draft202012Validator.check_schema(schema("output"))

    def walk(node, path):
        if "$ref" not in node and path[-1:] != ["anyOf"]:
            assert node.get("description"), path
        for name, part in node.get("properties", {}).items():
            walk(part, [*path, name])
        if isinstance(node.get("items"), dict):
            walk(node["items"], [*path, "[]"])

    for name, part in schema("output")["$defs"].items():
        walk(part, [name])
        assert "additionalProperties" in part, name


@pytest.mark.parametrize("name", ["status", "status-calm", "history", "models-list", "trace", "models-show"])
def test_people_with_80_columns(name: str) -> None:
    """Tables and paragraphs fit a terminal of 80 columns, but for single words that are longer."""
    for line in (EXPECTED / f"{name}.txt").read_text().splitlines():
        assert len(line) <= 80 or len(line.split()) <= 2, line
