"""`mlgitops hold`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "hold",
    epilog=examples(
        'mlgitops hold --reason "the label service is down"',
        'mlgitops hold --model digits --environment production --reason "audit until Friday"',
    ),
)
@click.option("--reason", required=True, metavar="WORDS", help="Why; kept for ever.")
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
    """Stop automation for a model in an environment, until `mlgitops resume`.

    A rollout under way stays where it is; its safety checks go on, and a rollback is always possible.
    """
    del verbose
    from mlgitops.app import deciding

    options.decide(
        lambda context, name: deciding.hold(context, name, environment, reason=reason),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
