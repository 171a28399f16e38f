"""`mlgitops approve`."""

import click

from mlgitops.app import deciding
from mlgitops.cli import options


@click.command("approve")
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
    """Approve the proposed rollout: this release by this plan, and nothing else.

    Who proposed a rollout cannot approve it.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = deciding.approve(context, options.chosen(context, model), environment)
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
