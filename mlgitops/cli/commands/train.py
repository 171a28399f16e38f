"""`mlgitops train`."""

import tempfile
from pathlib import Path

import click

from mlgitops.cli import options
from mlgitops.cli.settings import access, person, registry_login
from mlgitops.cli.words import examples
from mlgitops.core.errors import NotFound


@click.command(
    "train",
    epilog=examples(
        "mlgitops train",
        "mlgitops train --repository ../digits --revision v1.4 --dry-run",
        "mlgitops train --attempt 2",
    ),
)
@click.option("--repository", default=".", metavar="PATH", help="The model repository; default: here.")
@click.option("--revision", metavar="COMMIT", help="The pushed commit; default: HEAD.")
@click.option("--attempt", type=click.IntRange(1), default=1, help="More than 1 trains the same release again.")
@options.places
@options.output
@options.dry_run
def command(
    repository: str,
    revision: str | None,
    attempt: int,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Make a release of a pushed commit: run its tests, store its data, build its image, submit it.

    The same code, data and specification are the same release: it is recognised, and nothing is trained again.
    Reconcile takes it from there.
    """
    del verbose
    from mlgitops.adapters.builder.chosen import ChosenBuilder
    from mlgitops.adapters.store.folder import FolderStore
    from mlgitops.app.submitting import Workshop, submit, told
    from mlgitops.cli.observer import Lines
    from mlgitops.local import wiring
    from mlgitops.local.source import checkout_of

    settings, _ = options.open_context(home, environment_repository)
    if settings.home is None:
        raise NotFound("engine", "local")
    lines = Lines()
    context = wiring.context(settings.location, settings.cache, person(), lines, access=access())
    with tempfile.TemporaryDirectory(prefix="mlgitops-source-") as target:
        workshop = Workshop(
            source=checkout_of(Path(repository), revision, Path(target) / "source"),
            builder=ChosenBuilder(
                settings.home / wiring.REGISTRY, settings.home / wiring.BUILDS, lines, registry_login()
            ),
            store=FolderStore(settings.home / wiring.STORE, wiring.CLAIM),
        )
        result = submit(context, workshop, attempt=attempt, dry_run=dry_run)
    if not dry_run:
        options.nudge(settings)
    release = result.release
    cause = ", ".join(release.submission.cause)
    verb = "would be submitted" if dry_run else "submitted"
    words = f"release {release.name} {verb} (cause: {cause})" if result.new else told(result)
    values = {
        "model": release.submission.model,
        "release": release.name,
        "identity": str(release.identity),
        "new": result.new,
        "cause": list(release.submission.cause),
        "revised": list(result.revised),
        "unheeded": list(result.unheeded),
        "phase": str(release.phase),
        "revision": release.submission.revision,
        "dryRun": dry_run,
    }
    options.show(values, words, output)
    if not dry_run:
        options.report(values, words)
