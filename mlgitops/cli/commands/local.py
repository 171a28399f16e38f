"""`mlgitops local`."""

import os
import signal
import sys
from pathlib import Path

import click

from mlgitops.cli import options
from mlgitops.cli.settings import access, person, sources
from mlgitops.cli.words import examples
from mlgitops.core.errors import Conflict


@click.group("local", epilog=examples("mlgitops local up"), context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the whole engine on this machine, for your own repository."""


@command.command(
    "up",
    epilog=examples(
        "mlgitops local up",
        "mlgitops local up --directory ../digits --port 8080",
        "mlgitops local up --dry-run",
    ),
)
@click.option("--directory", default=".", metavar="PATH", help="The model repository; default: here.")
@click.option("--home", metavar="FOLDER", help="Where the engine keeps everything; default: .mlgitops there.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port that answers predictions; 0 for a free one."
)
@click.option("--loader", hidden=True, help="MODULE:FUNCTION that loads models that are no SavedModels.")
@options.dry_run
def up(directory: str, home: str | None, port: int, loader: str | None, dry_run: bool) -> None:
    """Run the engine in the foreground until Ctrl-C.

    Makes two bare repositories (model.git, environment.git) and the remote `local`; takes what you push there with
    `git push local`, trains, evaluates, serves, and reconciles. Stop it and start it again at any time.
    """
    from mlgitops.cli import statuses
    from mlgitops.cli.observer import Lines
    from mlgitops.local import setup, wiring
    from mlgitops.local.engine import Engine

    place = Path(directory).resolve()
    folder = Path(home).resolve() if home else place / ".mlgitops"
    if dry_run:
        options.show({}, _foretold(folder, place, port), "text")
        return
    lines = Lines(times=True)
    setup.prepare(folder, place)
    location = str(folder / setup.ENVIRONMENT_REPOSITORY)
    context = wiring.context(location, folder / "cache", person(), lines, access=access())
    world = wiring.world(folder, context, sources())
    keep_status = statuses.keeper(world, location)
    tell = wiring.teller(folder, location, folder / "cache", world, os.environ)
    engine = Engine(
        folder,
        world,
        lines,
        router_port=port,
        loader=loader,
        after_pass=keep_status,
        tell=tuple if tell is None else lambda: tell().problems,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: engine.stop())
    sys.stdout.write(f"environment repository: {location}\npush with: git push {setup.REMOTE}\n")
    sys.stdout.flush()
    engine.run()
    lines.note("stopped")


def _foretold(home: Path, place: Path, port: int) -> str:
    """Say what would be made and started.

    Raises:
        InvalidInput: As `setup.prepare`.
        Conflict: An engine runs there already.
    """
    from mlgitops.adapters.cluster.embedded import EmbeddedCluster
    from mlgitops.local import setup, wiring

    made = [one.words for one in setup.missing(home, place)]
    if EmbeddedCluster(home / wiring.CLUSTER).running:
        raise Conflict(f"the engine of {home}", None, "another engine", "one process at a time runs a cluster")
    address = f"port {port}" if port else "a free port"
    started = f"start an engine: train, serve on {address}, reconcile, and take pushes, until Ctrl-C"
    return "\n".join(["dry run, nothing was made or started; it would", *(f"  {one}" for one in [*made, started])])
