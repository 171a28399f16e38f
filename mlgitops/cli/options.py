"""Flags that several verbs share, and what they become."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from mlgitops.app.context import Context, look
from mlgitops.cli.settings import Settings, person, read_settings
from mlgitops.core.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])


def places(command: F) -> F:
    """Add the flags that say where things are."""
    command = click.option(
        "--environment-repository", "-R", metavar="LOCATION", help="Environment repository: a path, https or ssh."
    )(command)
    return click.option("--home", metavar="FOLDER", help="Folder of the embedded engine; default: the nearest .mlgitops.")(
        command
    )


def output(command: F) -> F:
    """Add `--output` and `--verbose`."""
    command = click.option("--verbose", is_flag=True, help="Show the traceback of an error.")(command)
    return click.option(
        "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="For people, or for programs."
    )(command)


def one_model(command: F) -> F:
    """Add `--model`."""
    return click.option("--model", "-m", metavar="NAME", help="The model; needed only where there are several.")(command)


def one_environment(command: F) -> F:
    """Add `--environment`."""
    return click.option("--environment", "-e", metavar="NAME", help="The environment; default: the last, production.")(
        command
    )


def dry_run(command: F) -> F:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")(command)


def open_context(home: str | None, location: str | None) -> tuple[Settings, Context]:
    """Return the settings and the environment repository they name."""
    from mlgitops.local.wiring import context

    settings = read_settings(home, location)
    return settings, context(settings.location, settings.cache, person())


def chosen(context: Context, model: str | None) -> str:
    """Return the model that was named, or the only one there is.

    Raises:
        InvalidInput: None was named and there are several, or none at all.
    """
    if model is not None:
        return model
    known = look(context).ledger.models()
    if len(known) != 1:
        told = f"name one with --model: {', '.join(known)}" if known else "nothing was submitted yet; push first"
        raise InvalidInput(told)
    return known[0]


def show(values: Mapping[str, Any], words: str, output: str) -> None:
    """Print the answer: data for programs, words for people."""
    sys.stdout.write((json.dumps(values, indent=1) if output == "json" else words.rstrip("\n")) + "\n")


def nudge(settings: Settings) -> None:
    """Ask the embedded engine to look at once, where there is one."""
    if settings.home is not None:
        from mlgitops.adapters.cluster.embedded import EmbeddedCluster
        from mlgitops.local.wiring import CLUSTER

        if (settings.home / CLUSTER).is_dir():
            EmbeddedCluster(settings.home / CLUSTER).sync()
