"""`mlgitops resume`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "resume",
    epilog=examples(
        "mlgitops resume --dry-run",
        "mlgitops resume --model digits --environment production",
    ),
)
@options.one_model
@options.one_environment
@options.places
@options.output
@options.dry_run
def command(
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """End a hold, so that automation goes on.

    Fields that somebody changed by hand and that mlgitops owns are written anew; --dry-run names the files first.
    """
    del verbose
    from mlgitops.app import deciding

    options.decide(
        lambda context, name: deciding.resume(context, name, environment),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
