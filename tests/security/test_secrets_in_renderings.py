"""A planted secret never survives in anything that is rendered or written to the environment repository."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml

from mlgitops.app import deciding
from mlgitops.app.redacting import Redacting
from mlgitops.app.submitting import Workshop, submit
from mlgitops.cli import failure, github, options
from mlgitops.cli.observer import Lines
from mlgitops.core.errors import ChecksFailed, Conflict, Denied, InvalidInput, NotFound, Problem, Unavailable
from mlgitops.core.ledger import without_secrets
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.redaction import Redactor
from tests.support.world import CONFIGURATION, MODEL, Engine, Quality, push, quick_world, settle, view_of

KNOWN = "production-5ecret"
WORD = "production"
FORM = "gh" + "p_" + "A1b2C3d4" * 4
ADDRESS = "Pa55" + "word"
TEXT = f"fatal: {FORM} at https://ada:{ADDRESS}@example.org, DEPLOY={KNOWN}"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", KNOWN)
    monkeypatch.setenv("MLGITOPS_SSH_PASSPHRASE", WORD)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))


def chained() -> Unavailable:
    error = Unavailable("git", TEXT)
    error.__cause__ = ValueError(TEXT)
    return error


def usage() -> None:
    failure.show_usage(click.UsageError(TEXT), as_json=False)
    failure.show_usage(click.UsageError(TEXT), as_json=True)


def bug() -> None:
    failure.show_bug(f"Traceback\n  x\nKeyError: {TEXT}", as_json=False, verbose=True)
    failure.show_bug(f"Traceback\n  x\nKeyError: {TEXT}", as_json=True, verbose=False)


PROBLEM = Problem(message=TEXT, path=f"{FORM}.yaml", pointer=FORM, mend=TEXT, rule="x")
ERRORS = (
    InvalidInput([PROBLEM]),
    NotFound("model", FORM, [FORM, KNOWN]),
    Denied("push", TEXT, TEXT),
    ChecksFailed("releasing", "x", TEXT),
    Conflict(TEXT, FORM, KNOWN),
    chained(),
)
RENDERINGS: dict[str, Callable[[], object]] = {
    "words": lambda: options.show({}, TEXT, "text"),
    "data": lambda: options.show({"a": [TEXT], FORM: {"password": ADDRESS}}, "", "json"),
    "progress": lambda: Lines(times=True).note(TEXT),
    "outputs and summary": lambda: github.report("title", {"a": TEXT, "b": [FORM]}, TEXT),
    "annotations": lambda: github.annotate_problems([PROBLEM]),
    "usage": usage,
    "bug": bug,
    **{
        f"{type(error).__name__}": lambda error=error: [  # type: ignore[misc]
            failure.show(error, as_json=as_json, verbose=True) for as_json in (False, True)
        ]
        for error in ERRORS
    },
}


@pytest.mark.parametrize("name", RENDERINGS)
def test_no_rendering_shows_it(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> None:
    """Text, data, progress, annotations, outputs, summary, errors with causes and tracebacks: none shows a secret."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    RENDERINGS[name]()
    said = capsys.readouterr()
    told = said.out + said.err + "".join(one.read_text() for one in tmp_path.iterdir() if one.is_file())
    assert "***" in told
    for secret in (KNOWN, FORM, ADDRESS):
        assert secret not in told


def everything(repository) -> str:
    """Return all files and messages that both branches ever had."""
    found = []
    for ref in (MAIN, LEDGER):
        for commit in repository.history(repository.snapshot(ref).revision):
            snapshot = repository.at(commit.revision)
            found += [commit.message, *commit.trailers.values()]
            found += [(snapshot.read(path) or b"").decode() for path in snapshot.paths()]
    return "\n".join(found)


def test_nothing_secret_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of jobs, evaluations, logs and people, on every branch and in every message, are without secrets."""
    world, engine = quick_world()
    world = replace(world, repository=Redacting(world.repository, Redactor([KNOWN])))
    monkeypatch.setattr(Engine, "logs", lambda *_: {"chief-0": TEXT.encode()})
    push(world, "one", quality=Quality(), engine=engine)
    settle(world, engine, 15)
    failed = push(world, "two", quality=Quality(trains=False), engine=engine)
    settle(world, engine, 1)
    engine.evaluation_error = TEXT
    errored = push(world, "three", engine=engine)
    settle(world, engine, 1)
    deciding.hold(world, MODEL, None, reason=TEXT)
    told = everything(world.repository)
    for secret in (KNOWN, FORM, ADDRESS):
        assert secret not in told
    ledger = view_of(world).ledger
    assert b"fatal: *** at https://***@example.org" in (ledger.log(MODEL, failed.name) or b"")
    assert "fatal: ***" in ledger.release(MODEL, errored.name).reason
    found = ledger.state("production", MODEL).hold
    assert found is not None
    assert found.reason == "fatal: *** at https://***@example.org, DEPLOY=***"


def test_a_password_that_is_an_ordinary_word_breaks_no_ledger() -> None:
    """A known secret that is the name of an environment goes from words, and from nothing that is read again."""
    values = {"environment": WORD, "reason": f"{WORD} fails", "history": [{"event": WORD, "reason": WORD}]}
    kept = yaml.safe_load(without_secrets("a/state.yaml", yaml.safe_dump(values).encode(), Redactor([WORD])))
    assert kept["environment"] == WORD
    assert kept["reason"] == "*** fails"
    assert kept["history"] == [{"event": WORD, "reason": "***"}]
    record = json.dumps({"verdict": {"words": WORD}, "metric": WORD}).encode()
    assert json.loads(without_secrets("a/1.json", record, Redactor([WORD]))) == {
        "verdict": {"words": "***"},
        "metric": WORD,
    }


def test_a_file_without_secrets_is_not_touched() -> None:
    """What holds no secret is committed byte for byte as it was written."""
    data = b"b: 1\na:   [x,   y]\n"
    assert without_secrets("a/state.yaml", data, Redactor([KNOWN])) is data


def test_a_configuration_with_a_credential_is_refused_before_anything_is_stored() -> None:
    """A push whose mlgitops.yaml holds a token is refused with its line; the token itself is not repeated."""
    world, _ = quick_world()
    text = CONFIGURATION.replace("  script: train.py\n", f"  script: train.py\n  environment: {{HUB: {FORM}}}\n")

    class Pushed:
        def read(self, _: str) -> bytes:
            return text.encode()

    workshop = Workshop(source=Pushed(), builder=None, store=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"mlgitops\.yaml:\d+: holds what looks like a credential") as caught:
        submit(world, workshop)
    assert FORM not in str(caught.value)
    assert view_of(world).ledger.models() == ()
