"""`mlgitops abort`."""

import click

from mlgitops.app import deciding
from mlgitops.cli import options


@click.command("abort")
@click.argument("release")
@click.option("--reason", required=True, help="Why; kept for ever.")
@options.one_model
@options.places
@options.output
def command(
    release: str,
    reason: str,
    model: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Stop RELEASE while it is still on its way to a candidate; its training ends.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = deciding.abort(context, options.chosen(context, model), release, reason=reason)
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
