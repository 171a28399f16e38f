"""`mlgitops completion`."""

import sys

import click
from click.shell_completion import get_completion_class

from mlgitops.core.errors import NotFound


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL, to be evaluated by it.

    For bash: add `eval "$(mlgitops completion bash)"` to ~/.bashrc
    """
    from mlgitops.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise NotFound("shell", shell, ("bash", "zsh", "fish"))
    sys.stdout.write(kind(cli, {}, "mlgitops", "_MLGITOPS_COMPLETE").source() + "\n")
