"""People are told what the ledger decided: once where all goes well, again rather than never where it does not."""

from collections.abc import Sequence

import pytest

from mlgitops.app import deciding, notifying, rollbacks
from mlgitops.app.context import World
from mlgitops.app.notifying import notify
from mlgitops.core.errors import Unavailable
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.notices import LISTED, Notice, harmless, letter
from mlgitops.ports.notifier import Letter
from tests.support.memory import Killed, edited
from tests.support.world import ENVIRONMENTS, START, Engine, Quality, push, quick_world, settle, state_of

BAD = Quality(accuracy=0.97, wrong=0.40)
EVERYTHING = "notifications:\n  - {name: chat, variable: MLGITOPS_NOTIFY_CHAT}\n"


class Chat:
    """Takes messages in memory."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.problem = ""
        self.killed = False

    def knows(self, variable: str) -> bool:
        return variable.startswith("MLGITOPS_NOTIFY_")

    def send(self, letters: Sequence[Letter]) -> Sequence[str]:
        if not self.problem:
            self.letters += letters
        if self.killed:
            raise Killed
        return [self.problem] * len(letters)

    @property
    def said(self) -> list[str]:
        lines = [line.partition(", ")[2] for one in self.letters for line in one.body.splitlines()]
        self.letters.clear()
        return lines


class Marks:
    """Marks in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        return dict(self.kept)

    def write(self, marks: dict[str, str]) -> None:
        self.kept = marks


Scene = tuple[World, Engine, Chat, Marks]


def scene(notifications: str = EVERYTHING, environments: str = ENVIRONMENTS) -> Scene:
    world, engine = quick_world(environments + notifications)
    chat, marks = Chat(), Marks()
    assert notify(world, chat, marks).sent == 0
    return world, engine, chat, marks


def live(world: World, engine: Engine) -> str:
    name = push(world, "one", engine=engine).name
    settle(world, engine, 61)
    return name


def test_a_rollout_and_its_rollback_are_told_once() -> None:
    """What went live and what was rolled back is told in the order it happened, and not again."""
    world, engine, chat, marks = scene()
    first = live(world, engine)
    assert notify(world, chat, marks).sent == 1
    assert chat.said == [f"digits in production, promoted: release {first} (rollout 1) serves all requests"]
    second = push(world, "two", quality=BAD, engine=engine).name
    settle(world, engine, 61)
    notify(world, chat, marks)
    (told,) = chat.said
    assert told.startswith(f"digits in production, rolled back: release {second} (rollout 2) is taken off by mlgitops")
    assert f"release {first} serves afterwards, and automation is on hold" in told
    assert "labelled correctness" in told.lower()
    assert notify(world, chat, marks).sent == 0
    assert chat.said == []


def test_a_message_that_cannot_be_sent_is_a_problem_and_comes_later() -> None:
    """Nothing is lost where a service is away for a while, and the pass never fails by it."""
    world, engine, chat, marks = scene()
    live(world, engine)
    chat.problem = "the service is away"
    told = notify(world, chat, marks)
    assert (told.sent, told.problems) == (0, ["notification chat: the service is away"])
    chat.problem = ""
    assert notify(world, chat, marks).sent == 1
    assert len(chat.said) == 1


def test_what_is_old_is_no_news() -> None:
    """An address that could not be reached for more than a day is not flooded with what is long over."""
    world, engine, chat, marks = scene()
    live(world, engine)
    engine.clock.pass_seconds(notifying.NEWS.total_seconds() + 1)
    assert notify(world, chat, marks).sent == 0


def test_killed_after_sending_it_is_told_again() -> None:
    """A process that is killed between sending and remembering says it once more: never nothing."""
    world, engine, chat, marks = scene()
    live(world, engine)
    chat.killed = True
    with pytest.raises(Killed):
        notify(world, chat, marks)
    chat.killed = False
    assert notify(world, chat, marks).sent == 1
    first, second = chat.said
    assert first == second


def test_a_process_without_memory_tells_of_its_own_pass() -> None:
    """Where nothing is remembered, what is told begins where the pass began, and never with the whole history."""
    world, engine, chat, _ = scene()
    live(world, engine)
    since = world.repository.snapshot(LEDGER).revision
    rollbacks.rollback(world, "digits", None, reason="night")
    assert notify(world, chat, Marks(), since=since).sent == 1
    (told,) = chat.said
    assert told.endswith("is taken off by Ada; nothing serves afterwards, and automation is on hold: night")
    assert notify(world, chat, Marks()).sent == 0


def test_an_address_is_told_only_what_it_wants() -> None:
    """Events, environments and models are chosen for each address."""
    chosen = (
        "notifications:\n"
        "  - {name: calm, variable: MLGITOPS_NOTIFY_A, events: [rolled-back]}\n"
        "  - {name: other, variable: MLGITOPS_NOTIFY_B, models: [faces]}\n"
        "  - {name: same, variable: MLGITOPS_NOTIFY_C, environments: [production], models: [digits]}\n"
    )
    world, engine, chat, marks = scene(chosen)
    live(world, engine)
    notify(world, chat, marks)
    assert [one.variable for one in chat.letters] == ["MLGITOPS_NOTIFY_C"]
    chat.letters.clear()
    rollbacks.rollback(world, "digits", None, reason="night")
    notify(world, chat, marks)
    assert [one.variable for one in chat.letters] == ["MLGITOPS_NOTIFY_A", "MLGITOPS_NOTIFY_C"]


def test_trainings_holds_and_what_waits_are_told() -> None:
    """A failed training, a refusal, a hold and a rollout that waits for people are told, each by its kind."""
    world, engine, chat, marks = scene(
        environments=ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    approvals: 1\n")
    )
    bad = push(world, "none", quality=Quality(trains=False), engine=engine).name
    settle(world, engine, 1)
    notify(world, chat, marks)
    (told,) = chat.said
    assert told.startswith(f"digits, training failed: the training of release {bad} failed: ")
    good = push(world, "one", engine=engine).name
    settle(world, engine, 1)
    notify(world, chat, marks)
    assert chat.said == [f"digits in production, held: release {good} waits for a person to approve it (rollout 1)"]
    deciding.hold(world, "digits", None, reason="the fair")
    notify(world, chat, marks)
    assert chat.said == ["digits in production, held: on hold by Ada: the fair"]


def test_a_refused_rollout_is_told() -> None:
    """What a gate refuses is told with its reason."""
    world, engine, chat, marks = scene()
    live(world, engine)
    chat.letters.clear()
    push(world, "two", quality=Quality(accuracy=0.1), engine=engine)
    settle(world, engine, 1)
    notify(world, chat, marks)
    assert any(line.startswith("digits in production, refused: ") and "accuracy" in line for line in chat.said)


def test_a_rewound_ledger_begins_anew() -> None:
    """A mark that the ledger no longer has is told as a problem, once, and nothing is made up."""
    world, engine, chat, marks = scene()
    live(world, engine)
    marks.kept = {"chat": "0" * 40}
    told = notify(world, chat, marks)
    assert (told.sent, told.problems) == (0, ["notification chat: the ledger was rewound; it begins anew from here"])
    assert notify(world, chat, marks).problems == []


def test_a_repository_that_cannot_be_reached_is_a_problem_alone() -> None:
    """Nothing is raised, whatever is away."""
    world, _, chat, marks = scene()

    class Away:
        def snapshot(self, ref: str) -> None:
            raise Unavailable("git", "nobody answers")

    from dataclasses import replace

    told = notify(replace(world, repository=Away()), chat, marks)  # type: ignore[arg-type]
    assert told.problems
    assert told.sent == 0


def test_hostile_text_is_harmless() -> None:
    """Nothing that other people wrote can call a channel, make a link, format, or break the line."""
    told = harmless("<!channel> @everyone [click](http://x) `rm`\n\x1b[31m\u202e*bold* | " + "a" * 900)
    assert not set(told) & set("<>@[]`*|\n\x1b\u202e")
    assert len(told) == 500


def test_hostile_reasons_reach_no_chat() -> None:
    """A reason given for a rollback is plain text when it is told."""
    world, engine, chat, marks = scene()
    live(world, engine)
    rollbacks.rollback(world, "digits", None, reason="<!channel>\n2026-01-01 00:00 UTC, faces, promoted: forged")
    notify(world, chat, marks)
    assert all("<" not in one.body for one in chat.letters)
    assert [line.partition(": ")[0] for line in chat.said] == [
        "digits in production, promoted",
        "digits in production, rolled back",
    ]


def test_many_events_are_one_message() -> None:
    """A crowd of events is one bounded message that says how many there were."""
    one = Notice(kind="refused", at=START, model="digits", environment="production", words="no")
    title, body = letter([one] * (LISTED + 3))
    assert title == f"mlgitops: {LISTED + 3} events"
    assert body.splitlines()[-1] == "and 3 more; `mlgitops history` has them all"
    assert len(body.splitlines()) == LISTED + 1


def test_a_broken_configuration_tells_as_it_last_said() -> None:
    """What somebody spoils in environments.yaml does not silence what is told."""
    world, engine, chat, marks = scene()
    live(world, engine)
    edited(world.repository, MAIN, {"environments.yaml": b"kind: [\n"})
    rollbacks.rollback(world, "digits", None, reason="night")
    assert notify(world, chat, marks).sent == 1
    assert state_of(world).hold is not None
