"""Flags that several verbs share, and what they become."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mlgitops.adapters.redacting import redacted, redacted_values
from mlgitops.cli import failure, github
from mlgitops.cli.settings import Settings, access, person, read_settings
from mlgitops.cli.words import several_lines
from mlgitops.core.errors import InvalidInput, MlgitopsError

if TYPE_CHECKING:
    from mlgitops.app.context import Context
    from mlgitops.app.deciding import Answer
    from mlgitops.app.rehearsing import Intent

F = TypeVar("F", bound=Callable[..., Any])
Act = Callable[["Context", str], "Answer"]
"""What a person decides, for one model."""


def places(command: F) -> F:
    """Add the flags that say where things are."""
    location = "Environment repository: a path, https or ssh; default: the engine's own."
    home = "Folder of the embedded engine; default: the nearest .mlgitops."
    command = click.option("--environment-repository", "-R", metavar="LOCATION", help=location)(command)
    return click.option("--home", metavar="FOLDER", help=home)(command)


def output(command: F) -> F:
    """Add `--output` and `--verbose`."""
    choice = click.Choice(["text", "json"])
    words = "For people, or for programs; default: text."
    command = click.option("--verbose", is_flag=True, help="Show the traceback of an error.")(command)
    return click.option("--output", "-o", type=choice, default="text", help=words)(command)


def one_model(command: F) -> F:
    """Add `--model`."""
    words = "The model; needed only where there are several."
    return click.option("--model", "-m", metavar="NAME", help=words)(command)


def one_environment(command: F) -> F:
    """Add `--environment`."""
    words = "The environment; default: the last, production."
    return click.option("--environment", "-e", metavar="NAME", help=words)(command)


def dry_run(command: F) -> F:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")(command)


def open_context(home: str | None, location: str | None, *, decides: bool = False) -> "tuple[Settings, Context]":
    """Return the settings and the environment repository they name.

    Args:
        home: `--home`.
        location: `--environment-repository`.
        decides: Whether the command writes what a person decided, so that git is asked who they are.
    """
    from mlgitops.local.wiring import TOOL, context

    settings = read_settings(home, location)
    return settings, context(settings.location, settings.cache, person() if decides else TOOL, access=access())


def chosen(context: "Context", model: str | None) -> str:
    """Return the model that was named, or the only one there is.

    Raises:
        InvalidInput: None was named and there are several, or none at all.
        NotFound: There is no such model.
    """
    from mlgitops.app.context import environment_of, look

    view = look(context)
    known = view.ledger.models()
    if model is not None:
        environment_of(view, None, model)
        return model
    if len(known) != 1:
        told = f"name one with --model: {', '.join(known)}" if known else "nothing was submitted yet; push first"
        raise InvalidInput(told)
    return known[0]


def decide(act: Act, where: tuple[str | None, str | None, str | None], output: str, *, dry_run: bool) -> None:
    """Carry out what a person decided, or say what would be written; then tell people, programs and a workflow.

    Args:
        act: The decision, given the outside world and the model's name.
        where: `--model`, `--home`, `--environment-repository`.
        output: `--output`.
        dry_run: Rehearse it; nothing is written.
    """
    from mlgitops.app.confining import confined

    model, home, location = where
    settings, context = open_context(home, location, decides=True)
    intents: list[Intent] = []
    if dry_run:
        from mlgitops.app.rehearsing import rehearsed
        from mlgitops.local.wiring import TOOL

        context, intents = rehearsed(context, TOOL)
    name = chosen(context, model)
    answer = act(confined(context, name), name)
    values = {"model": name, **answer.values, "changed": answer.changed, "dryRun": dry_run}
    if dry_run:
        values |= {"revision": None} if "revision" in values else {}
        values["commits"] = commits(intents)
        show(values, f"{planned(intents)}\nafterwards: {answer.words}", output)
        return
    nudge(settings)
    show(values, answer.words, output)
    report(values, answer.words)
    _keep_status(context, settings)


def commits(intents: "list[Intent]") -> list[dict[str, Any]]:
    """Return the commits of a rehearsal as plain values."""
    return [{"ref": one.ref, "subject": one.subject, "paths": list(one.paths)} for one in intents]


def planned(intents: "list[Intent]") -> str:
    """Return the commits of a rehearsal as words."""
    lines = [f"  {one.ref.removeprefix('refs/heads/')}: {one.subject}" for one in intents]
    if not lines:
        return "dry run: nothing to do"
    return "\n".join(["dry run, nothing was written; it would commit:", *lines])


def report(values: Mapping[str, object], words: str) -> None:
    """Give a workflow's step its outputs and its summary."""
    github.report(click.get_current_context().command_path, values, words)


def show(values: Mapping[str, Any], words: str, output: str) -> None:
    """Print the answer."""
    sys.stdout.write(rendered(values, words, output))


def rendered(values: Mapping[str, Any], words: str, output: str) -> str:
    """Return the answer, data for programs or words for people, without secrets or control characters."""
    if output == "json":
        return json.dumps(redacted_values(dict(values)), indent=1) + "\n"
    return github.harmless(redacted(several_lines(words.rstrip("\n")))) + "\n"


def write_file(path: Path, text: str, what: str) -> None:
    """Write what a flag asks for into a file, whole or not at all.

    Raises:
        InvalidInput: It cannot be written; `what` says what, like `the plot`.
    """
    from mlgitops.adapters.atomic import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise InvalidInput(f"{what} cannot be written: {error.strerror}", path=str(path)) from error


def unreadable(told: Mapping[str, Any]) -> int:
    """Return the exit code of an answer about every model: that of a file which cannot be read, where one has any."""
    return failure.CODES[InvalidInput] if any(one["problem"] for one in told["models"]) else 0


def _keep_status(context: "Context", settings: Settings) -> None:
    """Answer the next `status` ahead, where the repository is on this machine; the decision stands whatever happens."""
    from mlgitops.cli import statuses

    if os.path.isdir(settings.location):  # noqa: PTH112 - a location may be no path at all
        with suppress(MlgitopsError):
            statuses.ahead(context, settings.location)


def nudge(settings: Settings) -> None:
    """Ask the embedded engine to look at once, where there is one."""
    if settings.home is None:
        return
    from mlgitops.adapters.cluster.embedded import EmbeddedCluster
    from mlgitops.local.wiring import CLUSTER

    if (settings.home / CLUSTER).is_dir():
        EmbeddedCluster(settings.home / CLUSTER).sync()
