"""`mlgitops abort`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "abort",
    epilog=examples(
        'mlgitops abort 3f2a9c1d07be --reason "wrong learning rate"',
        'mlgitops abort 3f2a --model digits --reason "pushed by mistake"',
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
    """Stop RELEASE while it is still on its way to a candidate; its training ends.

    What serves already is taken off by `mlgitops rollback`. The first digits of RELEASE are enough.
    """
    del verbose
    from mlgitops.app import deciding

    options.decide(
        lambda context, name: deciding.abort(context, name, release, reason=reason),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
