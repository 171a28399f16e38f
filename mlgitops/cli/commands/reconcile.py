"""`mlgitops reconcile`."""

import os
from typing import Any

import click

from mlgitops.cli import failure, github, options
from mlgitops.cli.settings import access, person, sources
from mlgitops.cli.words import examples


@click.command(
    "reconcile",
    epilog=examples(
        "mlgitops reconcile",
        "mlgitops reconcile --model digits --dry-run",
    ),
)
@click.option("--model", "-m", multiple=True, metavar="NAME", help="Only this model; may be repeated.")
@options.places
@options.output
@options.dry_run
def command(
    model: tuple[str, ...],
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> int:
    """Move every release and rollout as far as it goes now.

    One idempotent pass: it reads git, looks at the world, decides, writes back by compare-and-swap. It may run any
    number of times at once and may be killed at any moment; the next one goes on. The exit code is that of the worst
    problem; a problem of one model stops no other. Then those are told whom environments.yaml names, where the variable
    is set that holds their address; no message, sent or not, changes the exit code.
    """
    del verbose
    from mlgitops.app.reconciling import reconcile
    from mlgitops.cli.observer import Lines
    from mlgitops.local.wiring import TOOL, context, teller, world

    settings, _ = options.open_context(home, environment_repository)
    observed = context(settings.location, settings.cache, person(), Lines(), access=access())
    for name in model:
        options.chosen(observed, name)
    everything = world(settings.home, observed, sources())
    values: dict[str, Any] = {"dryRun": dry_run}
    words = []
    if dry_run:
        from mlgitops.app.rehearsing import rehearsed

        everything, intents = rehearsed(everything, TOOL)
        done = reconcile(everything, models=model)
        values["commits"] = options.commits(intents)
        words.append(options.planned(intents))
    else:
        tell = teller(settings.home, settings.location, settings.cache, observed, os.environ)
        done = reconcile(everything, models=model)
        words.append(f"{done.moves} move{'' if done.moves == 1 else 's'}")
        told = tell() if tell is not None else None
        if told is not None:  # whatever became of them, they say nothing about the pass
            values["notifications"] = {"sent": told.sent, "problems": told.problems}
            words += [f"problem: {one}" for one in told.problems]
    problems = [failure.as_values(one) for one in done.problems]
    words += [f"problem: {one['message']}" for one in problems]
    values |= {"moves": done.moves, "problems": problems}
    options.show(values, "\n".join(words), output)
    options.report({"moves": done.moves, "problems": len(problems)}, "\n".join(words))
    for one in done.problems:
        github.annotate(one)
    return max((failure.code(one) for one in done.problems), default=0)
