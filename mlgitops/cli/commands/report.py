"""`mlgitops report`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "report",
    epilog=examples(
        "mlgitops report",
        "mlgitops report --model digits --environment staging --file report.html",
        "mlgitops report --dry-run",
    ),
)
@click.option("--file", "-f", "target", metavar="PATH", help="File to write; default: MODEL-ENVIRONMENT.html here.")
@options.one_model
@options.one_environment
@options.places
@options.output
@options.dry_run
def command(
    target: str | None,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
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
    page = render(redacted_values(values))
    told = {"file": str(path), "dryRun": dry_run, "replaces": path.exists(), "revisions": values["revisions"]}
    if dry_run:
        options.show(told, _foretold(path, values), output)
        return
    options.write_file(path, page, "the report")
    options.show(told, str(path), output)


def _foretold(path: Path, values: Mapping[str, Any]) -> str:
    """Say what would be written, and from what."""
    revisions = {name: one[:12] for name, one in values["revisions"].items() if one}
    verb = "replace" if path.exists() else "write"
    made = ", ".join(f"{name} {revision}" for name, revision in revisions.items())
    releases, rollouts = len(values["releases"]), len(values["rollouts"])
    return (
        f"dry run, nothing was written; it would {verb} {path}\n"
        f"  {releases} releases and {rollouts} rollouts of {values['model']} in {values['environment']}\n"
        f"  from {made}"
    )
