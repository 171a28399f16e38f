"""`mlgitops history`."""

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples


@click.command(
    "history",
    epilog=examples(
        "mlgitops history",
        "mlgitops history --model digits --environment production --output json",
    ),
)
@options.one_model
@options.one_environment
@options.places
@options.output
def command(
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Show every release and rollout, and what happened to each.

    Oldest first, with each event, its time and its reason.
    """
    del verbose
    from mlgitops.app import reading

    _, context = options.open_context(home, environment_repository)
    values = reading.history(context, options.chosen(context, model), environment)
    options.show(values, render.history(values), output)
