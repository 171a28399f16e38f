"""`mlgitops status`."""

import click

from mlgitops.app import reading
from mlgitops.cli import options, render


@click.command("status")
@options.one_model
@options.places
@options.output
def command(model: str | None, home: str | None, environment_repository: str | None, output: str, verbose: bool) -> None:
    """Show what serves, what is under way, and what waits for what.

    Reads the environment repository alone: it works from any machine that can fetch it, whatever the engine does.
    """
    del verbose
    _, context = options.open_context(home, environment_repository)
    values = reading.status(context, model)
    options.show(values, render.status(values), output)
