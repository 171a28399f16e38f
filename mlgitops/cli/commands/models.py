"""`mlgitops models`."""

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples


@click.group(
    "models",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "mlgitops models list",
        "mlgitops models show 3f2a9c1d07be --model digits",
        "mlgitops models card 3f2a > CARD.md",
    ),
)
def command() -> None:
    """List the models, show one release, write its model card.

    The registry is the ledger: aliases are derived from what serves, and nothing else is deployed from.
    """


@command.command("list", epilog=examples("mlgitops models list", "mlgitops models list --output json"))
@options.places
@options.output
def list_(home: str | None, environment_repository: str | None, output: str, verbose: bool) -> int:
    """List every release of every model, with its aliases and metrics.

    Where files of one model cannot be read the others are listed, and the exit code is 3.
    """
    del verbose
    from mlgitops.app import reading

    _, context = options.open_context(home, environment_repository)
    values = reading.models(context)
    options.show(values, render.models(values), output)
    return options.unreadable(values)


@command.command("show", epilog=examples("mlgitops models show 3f2a9c1d07be"))
@click.argument("release")
@options.one_model
@options.one_environment
@options.places
@options.output
def show(
    release: str,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Show where RELEASE came from and what was decided about it."""
    del verbose
    from mlgitops.app import reading

    _, context = options.open_context(home, environment_repository)
    name = options.chosen(context, model)
    values = reading.trace(context, name, environment, {"release": release})
    options.show(values, render.trace(values), output)


@command.command("card", epilog=examples("mlgitops models card 3f2a9c1d07be > CARD.md"))
@click.argument("release")
@options.one_model
@options.one_environment
@options.places
@options.output
def card(
    release: str,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Print the model card of RELEASE: metrics, data, lineage and decisions, in Markdown."""
    del verbose
    from mlgitops.app import cards
    from mlgitops.app.context import environment_of, find_release, look

    _, context = options.open_context(home, environment_repository)
    name = options.chosen(context, model)
    view = look(context)
    unit = environment_of(view, environment, name)
    found = find_release(view, name, release)
    text = cards.card(view, unit.name, name, found.name)
    options.show({"model": name, "release": found.name, "card": text}, text, output)
