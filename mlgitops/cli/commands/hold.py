"""`mlgitops hold`."""

import click

from mlgitops.app import deciding
from mlgitops.cli import options


@click.command("hold")
@click.option("--reason", required=True, help="Why; kept for ever.")
@options.one_model
@options.one_environment
@options.places
@options.output
def command(
    reason: str,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Stop automation for a model in an environment, until `mlgitops resume`.

    A rollout under way stays where it is; its safety checks go on, and a rollback is always possible.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = deciding.hold(context, options.chosen(context, model), environment, reason=reason)
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
