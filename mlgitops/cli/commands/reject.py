"""`mlgitops reject`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "reject",
    epilog=examples(
        'mlgitops reject 3f2a9c1d07be --reason "trained on data we may not use"',
        'mlgitops reject 3f2a --reason "wrong labels" --dry-run',
    ),
)
@click.argument("release")
@click.option("--reason", required=True, metavar="WORDS", help="Why; kept for ever.")
@options.one_model
@options.places
@options.output
@options.dry_run
def command(
    release: str,
    reason: str,
    model: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Refuse RELEASE for good: neither automation nor a person promotes it again.

    Where it serves or is being tried, it is rolled back first. The first digits of RELEASE are enough.
    """
    del verbose
    from mlgitops.app import rollbacks

    options.decide(
        lambda context, name: rollbacks.reject(context, name, release, reason=reason),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
