"""`mlgitops approve`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "approve",
    epilog=examples(
        "mlgitops status",
        "mlgitops approve --model digits --environment production",
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
    """Approve the proposed rollout: this release by this plan, and nothing else.

    Who proposed a rollout cannot approve it. How many approvals an environment needs says its environments.yaml.
    """
    del verbose
    from mlgitops.app import deciding

    options.decide(
        lambda context, name: deciding.approve(context, name, environment),
        (model, home, environment_repository),
        output,
        dry_run=dry_run,
    )
