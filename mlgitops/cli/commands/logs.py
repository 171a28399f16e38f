"""`mlgitops logs`."""

import sys

import click

from mlgitops.app.context import look
from mlgitops.app.deciding import find_release
from mlgitops.cli import options
from mlgitops.core.errors import NotFound
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import job_name


@click.command("logs")
@click.argument("release")
@options.one_model
@options.places
def command(release: str, model: str | None, home: str | None, environment_repository: str | None) -> None:
    """Show the log of the training of RELEASE, while it runs and afterwards."""
    from mlgitops.local.wiring import world

    settings, context = options.open_context(home, environment_repository)
    name = options.chosen(context, model)
    view = look(context)
    found = find_release(view, name, release)
    kept = view.ledger.log(name, found.name)
    if kept is None:
        pods = world(settings.home, context).cluster.logs(TRAINING, job_name(name, found.name))
        if not pods:
            raise NotFound("log of release", found.name)
        kept = b"".join(b"== " + pod.encode() + b"\n" + text for pod, text in sorted(pods.items()))
    sys.stdout.write(kept.decode(errors="replace"))
