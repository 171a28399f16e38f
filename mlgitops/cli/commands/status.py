"""`mlgitops status`."""

import sys

import click

from mlgitops.cli import options, statuses
from mlgitops.cli.words import examples


@click.command(
    "status",
    epilog=examples(
        "mlgitops status",
        "mlgitops status --model digits --output json",
        "mlgitops status -R https://git.example.org/environment.git",
    ),
)
@options.one_model
@options.places
@options.output
def command(model: str | None, home: str | None, environment_repository: str | None, output: str, verbose: bool) -> int:
    """Show what serves, what is under way, and what waits for what.

    Reads the environment repository alone: it works from any machine that can fetch it, whatever the engine does.
    Where files of one model cannot be read the others are told, and the exit code is 3.
    """
    del verbose
    settings, context = options.open_context(home, environment_repository)
    words = click.get_current_context().find_root().obj or []
    text, code = statuses.answer(context, settings.location, model, output, words)
    sys.stdout.write(text)
    return code
