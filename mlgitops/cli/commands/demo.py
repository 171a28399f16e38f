"""`mlgitops demo`."""

import sys
from pathlib import Path

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "demo",
    epilog=examples(
        "mlgitops demo",
        "mlgitops demo --directory /tmp/demo",
        "mlgitops demo --dry-run",
    ),
)
@click.option("--directory", default="demo-run", metavar="PATH", help="Where everything is made; default: demo-run.")
@options.dry_run
def command(directory: str, dry_run: bool) -> None:
    """Run the whole loop on this machine, on handwritten digits: about seven minutes on two cores.

    Six pushes and a few commands lead through a first release, a better model, a worse one, a skew that only users can
    see, a revert and new data; then rollback, resume, promotion by force, and a revert on main. Needs no network.
    An earlier run in the same folder is taken away first.
    """
    from mlgitops.demo.run import Demo, run

    folder = Path(directory).resolve()
    if dry_run:
        steps = Demo(folder, sys.stdout).foretell()
        words = ["dry run, nothing was made or started; it would", *(f"  {one}" for one in steps)]
        options.show({}, "\n".join(words), "text")
        return

    run(folder, sys.stdout)
