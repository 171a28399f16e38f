"""`mlgitops reject`."""

import click

from mlgitops.app import rollbacks
from mlgitops.cli import options


@click.command("reject")
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
    """Refuse RELEASE for good: neither automation nor a person promotes it again.

    Where it serves or is being tried, it is rolled back first.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = rollbacks.reject(context, options.chosen(context, model), release, reason=reason)
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
