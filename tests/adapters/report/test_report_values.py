import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlgitops.adapters.report.html import render
from mlgitops.app.reporting import Values, collect, finite, served, traffic
from mlgitops.cli.main import run
from mlgitops.core.errors import NotFound
from tests.adapters.report.report_ledger import MODEL, Story
from tests.support.world import Quality, push, settle, world_of


def test_traffic_is_what_was_observed(story: Story) -> None:
    """A rollout's share of the traffic changes when the change was seen, not when it was asked for."""
    state = story.state
    assert [weight for _, weight in traffic(state.rollouts[1])] == [0, 100, 0]
    assert [weight for _, weight in traffic(state.rollouts[3])] == [0, 10, 50, 0]
    assert [weight for _, weight in traffic(state.rollouts[2])] == [0, 10, 50, 95, 100, 0, 100]
    assert traffic(state.rollouts[4]) == []
    splits = [one.at for one in state.rollouts[3].history if type(one).__name__ == "SplitObserved"]
    assert [at for at, weight in traffic(state.rollouts[3]) if weight in {10, 50}] == splits


def test_served_spans_end_with_replacement_and_rollback(story: Story) -> None:
    """A release served from when it had all traffic until it was replaced or gone, and again after it was restored."""
    state = story.state
    assert [end is None for _, end in served(state.rollouts[1])] == [False]
    assert [end is None for _, end in served(state.rollouts[2])] == [False, True]
    assert [end is None for _, end in served(state.rollouts[8])] == [False]
    assert served(state.rollouts[3]) == []


def test_head_is_the_present(values: Values, story: Story) -> None:
    """The head says what serves, what is under way and what holds."""
    assert values["serving"]["release"] == story.state.champion
    assert values["serving"]["rollout"] == 2
    assert values["open"]["rollout"] == 9
    assert values["open"]["weightPercent"] == 50
    assert "users complain about sevens" in values["hold"]["reason"]
    assert values["strangers"] == ["0123456789ab"]


def test_rollback_time_counts_until_no_traffic(values: Values) -> None:
    """The time of a rollback is from its decision until no traffic was seen to reach the release."""
    found = next(one for one in values["rollouts"] if one["rollout"] == 3)["rollback"]
    assert found["clearedSeconds"] == pytest.approx(0.9)
    assert found["target"] == 2


def test_evidence_is_the_last_records(values: Values) -> None:
    """The evidence of a rollout is the course that its last decision rests on, with the limit it was judged by."""
    found = next(one for one in values["rollouts"] if one["rollout"] == 3)
    last = found["decisions"][-1]
    assert found["evidence"]["paths"] == last["paths"]
    highest = max(log for _, log in found["evidence"]["paths"]["labels"])
    assert highest >= found["evidence"]["thresholds"]["labels"] == pytest.approx(5.2983, abs=1e-4)


def test_gates_are_the_promotions(story: Story) -> None:
    """Editing the gates of an environment later does not change what the report says of an earlier rollout."""

    class Later(type(story.memory)):  # type: ignore[misc]
        def snapshot(self, ref: str) -> Any:
            found = super().snapshot(ref)
            read = found.read

            def edited(path: str) -> bytes | None:
                data: bytes | None = read(path)
                if data is None:
                    return None
                return data.replace(b"minimum: 0.5", b"minimum: 0.999") if path == "environments.yaml" else data

            return SimpleNamespace(revision=found.revision, read=edited, paths=found.paths)

        def at(self, revision: str) -> Any:
            del revision
            return super().snapshot("refs/heads/main")

    memory = Later()
    memory.files = story.memory.files
    context = dataclasses.replace(story.context(), repository=memory)
    gates = next(one for one in collect(context, MODEL, None)["rollouts"] if one["rollout"] == 2)["gates"]
    assert [one["gate"].get("minimum") for one in gates if "minimum" in one["gate"]] == [0.5, 0.85]
    assert all(one["verdict"] == "passed" for one in gates)


def test_unknown_model_is_named(story: Story) -> None:
    """A model that is not there is an error that names those that are."""
    with pytest.raises(NotFound) as caught:
        collect(story.context(), "letters", None)
    assert caught.value.known == (MODEL,)


@pytest.mark.parametrize("value", [None, True, "1", float("nan"), float("inf"), 10**400])
def test_only_finite_numbers_count(value: Any) -> None:
    """What is no finite number is not taken for one."""
    assert finite(value) is None
    assert finite(3) == 3.0


def test_command_writes_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command reads a real environment repository, writes the file it names, and says where it is."""
    world, engine = world_of(tmp_path)
    for code, quality in (("one", Quality()), ("two", Quality(accuracy=0.97, wrong=0.4))):
        push(world, code, quality=quality, engine=engine)
        settle(world, engine, 15, passes=20)
    monkeypatch.chdir(tmp_path)
    assert run(["report", "-R", str(tmp_path / "environment.git")]) == 0
    path = tmp_path / "digits-production.html"
    assert capsys.readouterr().out.strip() == str(path)
    text = path.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count('class="release"') == 2
    assert "✕ </span>rolled back" in text
    other = tmp_path / "reports" / "one.html"
    assert run(["report", "-R", str(tmp_path / "environment.git"), "--file", str(other), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(other)
    assert other.is_file()


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A place where nothing can be written is told without a traceback."""
    world, engine = world_of(tmp_path)
    push(world, "one", engine=engine)
    assert run(["report", "-R", str(tmp_path / "environment.git"), "--file", str(tmp_path)]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_same_ledger_gives_the_same_page(story: Story, page: str) -> None:
    """The page is a function of the ledger and the time."""
    assert render(collect(story.context(), MODEL, None)) == page
