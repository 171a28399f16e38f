"""`mlgitops rollback`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "rollback",
    epilog=examples(
        "mlgitops rollback",
        'mlgitops rollback --model digits --environment production --reason "users complain"',
        "mlgitops rollback --dry-run",
    ),
)
@click.option("--reason", default="", metavar="WORDS", help="Why; kept with the rollback.")
@options.one_model
@options.one_environment
@options.places
@options.output
@options.dry_run
def command(
    reason: str,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Return all traffic to what served before, by a commit, at once and without gates.

    An open rollout goes back to the champion; otherwise production goes back to the newest earlier release that passed
    probation and was never rolled back. Automation is on hold afterwards, until `mlgitops resume`.
    """
    del verbose
    from mlgitops.app import rollbacks

    options.decide(
        lambda context, name: rollbacks.rollback(context, name, environment, reason=reason),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
