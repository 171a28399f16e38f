"""`mlgitops gc`."""

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples


@click.command(
    "gc",
    epilog=examples(
        "mlgitops gc --dry-run",
        "mlgitops gc --keep 3",
    ),
)
@click.option("--keep", type=click.IntRange(1), help="Newest releases kept per model; default: environments.yaml.")
@options.places
@options.output
@options.dry_run
def command(
    keep: int | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Delete the models of old releases that no rollback can need.

    Never the champion, a release being tried, or the last-good one of any environment.
    """
    del verbose
    from mlgitops.app.collecting import collect
    from mlgitops.local.wiring import world

    settings, context = options.open_context(home, environment_repository)
    garbage = collect(context, world(settings.home, context).store, keep=keep, dry_run=dry_run)
    deleted = [
        {"model": one.model, "release": one.release, "uri": one.uri, "sizeBytes": one.size_bytes} for one in garbage
    ]
    values = {"dryRun": dry_run, "deleted": deleted}
    rows = [(one.model, one.release, one.uri, one.size_bytes) for one in garbage]
    words = render.table(("model", "release", "artifact", "bytes"), rows) or "nothing to delete"
    options.show(values, words, output)
