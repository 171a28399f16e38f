"""`mlgitops completion`."""

import sys

import click
from click.shell_completion import get_completion_class

from mlgitops.cli.words import examples
from mlgitops.core.errors import NotFound


@click.command(
    "completion",
    epilog=examples(
        'eval "$(mlgitops completion bash)"                       # in ~/.bashrc',
        'eval "$(mlgitops completion zsh)"                        # in ~/.zshrc',
        "mlgitops completion fish > ~/.config/fish/completions/mlgitops.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL, to be evaluated by it.

    It completes verbs, options and their values; it asks the installed mlgitops, so it never goes stale.
    """
    from mlgitops.cli.main import COMPLETE_VARIABLE
    from mlgitops.cli.tree import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise NotFound("shell", shell, ("bash", "zsh", "fish"))
    sys.stdout.write(kind(cli, {}, "mlgitops", COMPLETE_VARIABLE).source() + "\n")
