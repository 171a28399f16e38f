"""`mlgitops resume`."""

import click

from mlgitops.app import deciding
from mlgitops.cli import options


@click.command("resume")
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
    """End a hold, so that automation goes on.

    Fields that somebody changed by hand and that mlgitops owns are written anew.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = deciding.resume(context, options.chosen(context, model), environment)
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
