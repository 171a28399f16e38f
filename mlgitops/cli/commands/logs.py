"""`mlgitops logs`."""

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples
from mlgitops.core.errors import NotFound
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import job_name


@click.command(
    "logs",
    epilog=examples(
        "mlgitops logs 3f2a9c1d07be",
        "mlgitops logs 3f2a --model digits | tail -20",
    ),
)
@click.argument("release")
@options.one_model
@options.places
@options.output
def command(
    release: str, model: str | None, home: str | None, environment_repository: str | None, output: str, verbose: bool
) -> None:
    """Show the log of the training of RELEASE, while it runs and afterwards.

    Control characters are left out, as a log is whatever a program wrote. The first digits of RELEASE are enough.
    """
    del verbose
    from mlgitops.app.context import find_release, look
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
    text = kept.decode(errors="replace")
    options.show({"model": name, "release": found.name, "log": text}, text, output)
