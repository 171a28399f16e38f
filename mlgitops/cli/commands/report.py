"""`mlgitops report`."""

from pathlib import Path

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples
from mlgitops.core.errors import InvalidInput


@click.command(
    "report",
    epilog=examples(
        "mlgitops report",
        "mlgitops report --model digits --environment staging --file report.html",
    ),
)
@click.option("--file", "-f", "target", metavar="PATH", help="File to write; default: MODEL-ENVIRONMENT.html here.")
@options.one_model
@options.one_environment
@options.places
@options.output
def command(
    target: str | None,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Write the HTML report of a model.

    One file that opens in any browser without a network: every release from push to outcome, with training curves,
    comparisons, traffic and the evidence that decisions rest on. Reads the environment repository alone.
    """
    del verbose
    from mlgitops.adapters.redacting import redacted_values
    from mlgitops.adapters.report.html import render
    from mlgitops.app.reporting import collect

    settings, context = options.open_context(home, environment_repository)
    values = collect(context, options.chosen(context, model), environment)
    path = settings.directory / (target or f"{values['model']}-{values['environment']}.html")
    _write(path, render(redacted_values(values)))
    options.show({"file": str(path)}, str(path), output)


def _write(path: Path, page: str) -> None:
    from mlgitops.adapters.atomic import write_atomically

    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise InvalidInput(f"the report cannot be written: {error.strerror}", path=str(path)) from error
