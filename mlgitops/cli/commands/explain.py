"""`mlgitops explain`."""

from pathlib import Path
from typing import Any

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples
from mlgitops.core.errors import InvalidInput


@click.command(
    "explain",
    epilog=examples(
        "mlgitops explain 3f2a9c1d07be",
        "mlgitops explain 3f2a --environment staging --plot why.svg",
        "mlgitops explain 3f2a9c1d07be --output json",
    ),
)
@click.argument("release")
@click.option("--plot", metavar="PATH", help="Draw traffic and evidence of its last rollout into this SVG file.")
@options.one_model
@options.one_environment
@options.places
@options.output
def command(
    release: str,
    plot: str | None,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Say in plain words why a release is where it is.

    Retells what was seen and decided from push to outcome, with the numbers of requests behind each decision and what
    can be done now. RELEASE is its name, or the first digits of it. Reads the environment repository alone.
    """
    del verbose
    from mlgitops.app.explaining import explain

    settings, context = options.open_context(home, environment_repository)
    values = explain(context, options.chosen(context, model), environment, release)
    rollouts, made_at = values.pop("rollouts"), values.pop("madeAt")
    values["plot"] = _drawn(settings.directory / plot, rollouts, made_at) if plot else None
    options.show(values, render.explain(values), output)


def _drawn(path: Path, rollouts: list[dict[str, Any]], made_at: str) -> str:
    """Draw the last rollout that ever started; returns the file's path.

    Raises:
        InvalidInput: None has started, or the file cannot be written.
    """
    from mlgitops.adapters.redacting import redacted_values
    from mlgitops.adapters.report.html import standalone_course

    drawings = (standalone_course(redacted_values(one), made_at) for one in reversed(rollouts))
    drawing = next((one for one in drawings if one is not None), None)
    if drawing is None:
        raise InvalidInput("there is nothing to draw: no rollout of this release ever started")
    options.write_file(path, drawing, "the plot")
    return str(path)
