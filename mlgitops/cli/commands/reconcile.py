"""`mlgitops reconcile`."""

import click

from mlgitops.cli import failure, options


@click.command("reconcile")
@click.option("--model", "-m", multiple=True, metavar="NAME", help="Only this model; may be repeated.")
@options.places
@options.output
def command(
    model: tuple[str, ...], home: str | None, environment_repository: str | None, output: str, verbose: bool
) -> int:
    """Move every release and rollout as far as it goes now.

    One idempotent pass: it reads git, looks at the world, decides, writes back by compare-and-swap. It may run any
    number of times at once and may be killed at any moment; the next one goes on.
    """
    del verbose
    from mlgitops.app.reconciling import reconcile
    from mlgitops.local.wiring import world

    settings, context = options.open_context(home, environment_repository)
    done = reconcile(world(settings.home, context), models=model)
    problems = [failure.as_values(one) for one in done.problems]
    words = [f"{done.moves} move{'' if done.moves == 1 else 's'}", *(f"problem: {one['message']}" for one in problems)]
    options.show({"moves": done.moves, "problems": problems}, "\n".join(words), output)
    return max((failure.code(one) for one in done.problems), default=0)
