"""What goes wrong is told in words, with the published exit code, to people, programs and workflows alike."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgitops.adapters.redacting import redacted
from mlgitops.cli import failure, github, options
from mlgitops.cli.main import run
from mlgitops.cli.words import one_line, several_lines
from mlgitops.core.errors import (
    ChecksFailed,
    Conflict,
    Denied,
    DigestMismatch,
    IllegalTransition,
    InvalidInput,
    MlgitopsError,
    NotFound,
    Problem,
    Unavailable,
)
from tests.cli.conftest import Desk

TOKEN = "ghp_0123456789abcdefghij"
ERRORS = [
    (NotFound("model", "digit", ["digits"]), 1),
    (Denied("promoting", "x", "hold"), 1),
    (ChecksFailed("releasing", "x", "its tests failed (1)"), 10),
    (DigestMismatch("image", "sha256:a", "sha256:b"), 1),
    (IllegalTransition("release x", "LIVE", "Aborted"), 1),
    (InvalidInput("no"), 3),
    (Conflict("refs/heads/main", "a", "b"), 4),
    (Unavailable("the server", "no route"), 5),
]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch):
    """Return what makes `status` raise something."""

    def breaks(error: BaseException) -> None:
        def raise_it(*_, **__):
            raise error

        monkeypatch.setattr(options, "open_context", raise_it)

    return breaks


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda one: type(one).__name__)
def test_each_kind_has_its_exit_code(error, code, broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Every error ends with its published code, in words on standard error or as data on standard output."""
    broken(error)
    assert run(["status"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert "Traceback" not in said.err
    assert run(["status", "-o", "json"]) == code
    values = json.loads(capsys.readouterr().out)["error"]
    assert (values["kind"], values["exitCode"]) == (type(error).__name__, code)


def test_every_error_has_a_code() -> None:
    """No kind of error of the published tree is left to chance; others stay inside what raises them."""
    published = {kind for kind in MlgitopsError.__subclasses__() if kind.__module__ == MlgitopsError.__module__}
    assert published
    assert published <= set(failure.CODES)
    assert {code for _, code in ERRORS} == set(failure.CODES.values())


def test_causes_are_told(broken, capsys: pytest.CaptureFixture[str]) -> None:
    """What led to an error is told after it, the hint last."""
    error = Conflict("refs/heads/main", "a", "b")
    error.__cause__ = OSError("remote refused the push: non-fast-forward")
    broken(error)
    run(["status"])
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("Error: refs/heads/main moved")
    assert second == "Caused by: remote refused the push: non-fast-forward"
    assert third.startswith("Hint: run the command again")


def test_every_problem_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with three mistakes is told all three, each with file, line and mend."""
    monkeypatch.chdir(tmp_path)
    head = "apiVersion: mlgitops.dev/v1\nkind: Model\nmetadata:\n  name: Digits\n"
    Path("mlgitops.yaml").write_text(head + "input: [train.py]\ntraining: {scirpt: t.py}\n")
    assert run(["lint"]) == 3
    said = capsys.readouterr().err
    assert said.count("Error: mlgitops.yaml:") >= 3
    assert "mlgitops.yaml:4" in said
    assert "did you mean inputs" in said
    assert run(["lint", "-o", "json"]) == 3
    problems = json.loads(capsys.readouterr().out)["error"]["problems"]
    assert {"path", "line", "message"} <= set(problems[0])


def test_a_bug_is_said_to_be_one(
    broken, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody foresaw ends with 255 and a file with the traceback, secrets left out, none of it on the screen."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broken(ZeroDivisionError(f"division by {TOKEN}"))
    assert run(["status"]) == 255
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "this is a bug in mlgitops: ZeroDivisionError" in said.err
    (file,) = tmp_path.glob("mlgitops-bug-*.txt")
    assert str(file) in said.err
    assert "Traceback" in file.read_text()
    assert TOKEN not in file.read_text() + said.err
    assert file.stat().st_mode & 0o077 == 0


def test_verbose_shows_the_traceback(broken, capsys: pytest.CaptureFixture[str]) -> None:
    """With --verbose the traceback is shown, for errors and for bugs."""
    broken(ZeroDivisionError("no"))
    assert run(["status", "--verbose"]) == 255
    assert "Traceback" in capsys.readouterr().err
    broken(Denied("a", "b"))
    assert run(["status", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_no_error(broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends with 130 and one word."""
    broken(KeyboardInterrupt())
    assert run(["status"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`mlgitops | head -1` ends without a word."""
    program = "from mlgitops.cli.main import main; main(['demo', '--help'])"
    done = subprocess.run(
        f"{sys.executable} -c {json.dumps(program)} | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"cloning https://user:{TOKEN}@git.example.org/x.git failed", "git.example.org/x.git failed"),
        ("https://user:p@ss@host.example/x", "host.example/x"),
        (f"token {TOKEN} is bad", "is bad"),
        ("Authorization: Bearer abcdef0123456789", "Authorization"),
        ("https://host/x?access_token=hunter2hunter2&page=2", "page=2"),
        ("glpat-abcdefgh12345678 refused", "refused"),
    ],
)
def test_secrets_are_left_out(text: str, kept: str) -> None:
    """What looks like a secret is left out wherever text is printed; the rest stays."""
    told = redacted(text)
    assert kept in told
    for secret in (TOKEN, "p@ss", "ss@host", "abcdef0123456789", "hunter2", "glpat-a"):
        assert secret not in told


def test_secrets_are_left_out_of_data(broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Also as data, an error tells no token."""
    broken(Unavailable(f"https://x:{TOKEN}@h/y"))
    run(["status", "-o", "json"])
    run(["status"])
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err


def test_annotations_stand_at_file_and_line(
    broken, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under GitHub Actions each problem is an annotation of its place, and no text can forge another command."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    evil = "bad 100%\n::set-output name=x::y\r\n##[error]x"
    broken(InvalidInput([Problem(message=evil, path="a,b:c.yaml", line=3, column=5, mend="x\n::error::y")]))
    assert run(["status"]) == 3
    lines = capsys.readouterr().err.splitlines()
    commands = [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert len(commands) == 1
    assert commands[0].startswith("::error file=a%2Cb%3Ac.yaml,line=3,col=5::bad 100%25%0A::set-output")


def test_no_annotations_elsewhere(broken, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no workflow runs, no workflow commands are written."""
    broken(InvalidInput([Problem(message="bad", path="a.yaml", line=3)]))
    run(["status"])
    assert "::" not in capsys.readouterr().err


def test_outputs_and_summary_of_a_step(
    desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A step's outputs and summary are written, each value behind a mark that it cannot contain."""
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    place = desk("calm")
    place("rollback", "--dry-run")
    assert not (tmp_path / "GITHUB_OUTPUT").exists()
    assert place("rollback", "--reason", "users\ncomplain").code == 0
    outputs = (tmp_path / "GITHUB_OUTPUT").read_text()
    marks = re.findall(r"^(\w+)<<(mlgitops-[0-9a-f]{32})\n([^\n]*)\n\2$", outputs, re.MULTILINE)
    told = {name: value for name, _, value in marks}
    assert told["release"] == place.stages.names[1]
    assert told["changed"] == "true"
    assert len({mark for _, mark, _ in marks}) == len(marks)
    assert "### mlgitops rollback" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()


def test_a_summary_cannot_leave_its_fence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Words of other people stay inside a fence that is longer than any of theirs."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    github.report("x", {}, "a\n````\n<script>")
    assert "\n`````\na\n````\n<script>\n`````\n" in (tmp_path / "summary").read_text()


def test_control_characters_never_reach_a_terminal() -> None:
    """Escape sequences, line breaks, changes of direction and separators become spaces; letters of all scripts stay."""
    assert one_line("a\x1b[31m\u202eb\nc\u2028d\x9b") == "a [31m b c d "
    assert one_line("Größe 数字 é") == "Größe 数字 é"
    assert several_lines("a\tb\r50%\r\nc\x00") == "a       b\n50%\nc "


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["history"],
        ["trace", "RELEASE"],
        ["models", "list"],
        ["models", "show", "RELEASE"],
        ["models", "card", "RELEASE"],
        ["logs", "RELEASE"],
        ["promote", "RELEASE"],
        ["rollback", "--dry-run"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("workflow", [False, True], ids=["terminal", "workflow"])
def test_hostile_text_of_a_release_is_harmless(
    words, workflow: bool, desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit's subject or a log cannot drive the terminal, forge a workflow's command, or show a token."""
    place = desk("hostile")
    release = place.json("models", "list").values["models"][0]["releases"][0]["release"]
    if workflow:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = place(*[release if word == "RELEASE" else word for word in words])
    assert told.code == 0, told.err
    text = told.out + told.err
    assert not [one for one in text if not one.isprintable() and one != "\n"]
    assert "ghp_" not in text
    if workflow:
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]


def test_a_lost_race_says_so(desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody else moves main first, promote ends with 4 and says what to do."""
    place = desk("calm")

    def lost(*_, **__):
        raise Conflict("refs/heads/main", "a" * 40, "b" * 40)

    monkeypatch.setattr("mlgitops.adapters.repository.git.GitRepository.update", lost)
    monkeypatch.setattr("time.sleep", lambda _: None)
    told = place("promote", place.stages.names[0])
    assert told.code == 4
    assert "Hint: run the command again" in told.err


def test_a_repository_that_cannot_be_reached_says_so(
    desk: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer ends with 5, or names what is missing; never with a traceback."""
    place = desk("calm")
    told = place("status", "-R", "http://127.0.0.1:9/environment.git")
    assert told.code == 5
    assert "Traceback" not in told.err
    assert place("status", "-R", str(place.folder / "nothing.git")).code in (1, 3)
    monkeypatch.delenv("MLGITOPS_ENVIRONMENT_REPOSITORY")
    assert "no environment repository is known here" in place("status").err


@pytest.mark.parametrize("data", [b"kind: [", b"environments: 3\n", b"\xff\xfe"])
def test_a_broken_configuration_is_told_and_keeps_nobody_from_rolling_back(
    data: bytes, desk: Callable[[str], Desk]
) -> None:
    """An environments.yaml that cannot be read ends `status` and promotions with 3 and its place; a rollback works."""
    from mlgitops.adapters.repository.git import open_repository
    from mlgitops.core.manifest.fields import MAIN
    from mlgitops.ports.repository import Change, Person

    place = desk("calm")
    opened = open_repository(str(place.repository), identity=Person(name="t", email="t@x"), cache=place.folder)
    change = Change(message="break it", files={"environments.yaml": data})
    opened.update(MAIN, opened.snapshot(MAIN).revision, [change])
    for words in (["status"], ["promote", place.stages.names[0]]):
        told = place(*words)
        assert told.code == 3, told.out
        assert "Error: environments.yaml" in told.err
    for words in (["history"], ["rollback"]):
        told = place(*words)
        assert told.code == 0, told.err
    assert os.environ["MLGITOPS_ENVIRONMENT_REPOSITORY"] == str(place.repository)
