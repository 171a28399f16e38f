"""`mlgitops promote`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "promote",
    epilog=examples(
        "mlgitops promote 3f2a9c1d07be",
        "mlgitops promote 3f2a --environment production --dry-run",
        'mlgitops promote 3f2a --force --reason "the skew was in the client"',
    ),
)
@click.argument("release")
@click.option("--reason", default="", metavar="WORDS", help="Why; kept with the promotion.")
@click.option("--force", is_flag=True, help="Bring back what was rolled back here; needs --reason.")
@options.one_model
@options.one_environment
@options.places
@options.output
@options.dry_run
def command(
    release: str,
    reason: str,
    force: bool,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Ask for a rollout of RELEASE, by one commit that changes rollout.yaml alone.

    Any earlier release can be asked for; nothing is trained again. `git revert` of that commit is a rollback. The first
    digits of RELEASE are enough; `mlgitops models list` names them all.
    """
    del verbose
    from mlgitops.app import deciding

    options.decide(
        lambda context, name: deciding.promote(context, name, release, environment, reason=reason, force=force),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
