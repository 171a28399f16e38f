"""`mlgitops status`."""

import click

from mlgitops.cli import options, remembered, render
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
def command(
    model: str | None, home: str | None, environment_repository: str | None, output: str, verbose: bool
) -> None:
    """Show what serves, what is under way, and what waits for what.

    Reads the environment repository alone: it works from any machine that can fetch it, whatever the engine does.
    """
    del verbose
    from mlgitops.app import reading

    settings, context = options.open_context(home, environment_repository)
    before = tuple(context.repository.snapshot(ref).revision for ref in remembered.REFERENCES)
    values = reading.status(context, model)
    told = options.show(values, render.status(values), output)
    words = click.get_current_context().find_root().obj
    waits = any(one["waiting"] for model in values["models"] for one in model["environments"])
    if words and not waits:  # what waits may wait for a time
        remembered.remember(words, settings.location, before, told)
