"""`mlgitops promote`."""

import click

from mlgitops.app import deciding
from mlgitops.cli import options


@click.command("promote")
@click.argument("release")
@click.option("--reason", default="", help="Why; kept with the promotion.")
@click.option("--force", is_flag=True, help="Bring back what was rolled back here, or skip the order of environments.")
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

    Any earlier release can be asked for; nothing is trained again. `git revert` of that commit is a rollback.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    answer = deciding.promote(
        context,
        options.chosen(context, model),
        release,
        environment,
        reason=reason,
        force=force,
        dry_run=dry_run,
    )
    options.nudge(settings)
    options.show(answer.values, answer.words, output)
