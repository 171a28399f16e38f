"""The tree of commands: a group whose verbs are imported only when they run."""

import importlib
from typing import cast

import click

from mlgitops import __version__
from mlgitops.cli.verbs import VERBS, page


class Verbs(click.Group):
    """Verbs that are imported only when they run, so that one verb does not pay for another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of a day's work."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb's module."""
        del ctx
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"mlgitops.cli.commands.{cmd_name}")
        return cast("click.Command", module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb for a misspelt one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, 1)
            mend = f"; did you mean `{near[0]}`?" if near else f"; verbs: {', '.join(VERBS)}"
            raise click.UsageError(f"there is no verb {args[0]!r}{mend}", ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """Return the page that `mlgitops --help` prints without loading this module."""
        del ctx
        return page().rstrip("\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[click.shell_completion.CompletionItem]":
        """Complete verbs without importing them."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=words) for verb, words in VERBS.items() if verb.startswith(incomplete)]
        return verbs or click.Command.shell_complete(self, ctx, incomplete)


@click.command(
    cls=Verbs,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="mlgitops")
def cli() -> None:
    """Bring models from a git push to production by a judged canary, and back by one command."""
