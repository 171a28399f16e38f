"""`mlgitops local`."""

import signal
import sys
from pathlib import Path

import click

from mlgitops.cli.settings import access, person
from mlgitops.cli.words import examples


@click.group("local", epilog=examples("mlgitops local up"), context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the whole engine on this machine, for your own repository."""


@command.command(
    "up",
    epilog=examples(
        "mlgitops local up",
        "mlgitops local up --directory ../digits --port 8080",
    ),
)
@click.option("--directory", default=".", metavar="PATH", help="The model repository; default: here.")
@click.option("--home", metavar="FOLDER", help="Where the engine keeps everything; default: .mlgitops there.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port that answers predictions; 0 for a free one."
)
@click.option("--loader", hidden=True, help="MODULE:FUNCTION that loads models that are no SavedModels.")
def up(directory: str, home: str | None, port: int, loader: str | None) -> None:
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
    lines = Lines(times=True)
    setup.prepare(folder, place)
    location = str(folder / setup.ENVIRONMENT_REPOSITORY)
    world = wiring.world(folder, wiring.context(location, folder / "cache", person(), lines, access=access()))
    keep_status = statuses.keeper(world, location)
    engine = Engine(folder, world, lines, router_port=port, loader=loader, after_pass=keep_status)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: engine.stop())
    sys.stdout.write(f"environment repository: {location}\npush with: git push {setup.REMOTE}\n")
    sys.stdout.flush()
    engine.run()
    lines.note("stopped")
