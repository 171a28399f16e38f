"""`mlgitops gc`."""

from typing import TYPE_CHECKING

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples

if TYPE_CHECKING:
    from mlgitops.app.collecting import Garbage


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
    """Delete what old releases left: models, data, images, checkpoints, logs, evaluations, counts.

    Never what the champion, a release being tried, one that still moves, or the last-good one of any environment could
    need. What several releases share stays while one of them is kept. --dry-run names each thing, its size and why.
    """
    del verbose
    from mlgitops.app.collecting import collect
    from mlgitops.local.wiring import keepers, world

    settings, context = options.open_context(home, environment_repository)
    everything = world(settings.home, context)
    garbage = collect(context, everything.store, keepers(settings.home), keep=keep, dry_run=dry_run)
    deleted = [
        {
            "kind": one.kind,
            "model": one.model,
            "release": one.release,
            "uri": one.uri,
            "sizeBytes": one.size_bytes,
            "reason": one.reason,
        }
        for one in garbage
    ]
    options.show({"dryRun": dry_run, "deleted": deleted}, _words(garbage, dry_run=dry_run), output)


def _words(garbage: "list[Garbage]", *, dry_run: bool) -> str:
    if not garbage:
        return "nothing to delete"
    rows = [(one.kind, one.model, one.release or "-", one.size_bytes, one.reason) for one in garbage]
    listed = render.table(("kind", "model", "release", "bytes", "reason"), rows)
    verb = "would be freed" if dry_run else "freed"
    return f"{listed}\n{sum(one.size_bytes for one in garbage)} bytes {verb}"
