"""The command line's entry: a table of verbs, one place that turns errors into words and exit codes."""

import importlib
import sys
import traceback
from typing import Final, cast

import click

from mlgitops import __version__
from mlgitops.core.errors import MlgitopsError

VERBS: Final = {
    "init": "Make a training script or notebook a model repository that mlgitops can release",
    "local": "Run the whole engine on this machine, for your own repository",
    "demo": "Run the whole loop on this machine, on handwritten digits",
    "lint": "Check mlgitops.yaml, environments.yaml and manifests; name every problem and its mend",
    "train": "Make a release of a pushed commit: test, build, submit",
    "reconcile": "Move every release and rollout as far as it goes now",
    "promote": "Ask for a rollout of a release, by a commit",
    "rollback": "Return all traffic to what served before, by a commit, at once",
    "hold": "Stop automation for a model in an environment",
    "resume": "End a hold",
    "approve": "Approve the proposed rollout",
    "reject": "Refuse a release for good",
    "abort": "Stop a release that is still training",
    "status": "Show what serves, what is under way, and what waits for what",
    "history": "Show every release and rollout, and what happened to each",
    "trace": "Follow one production answer back to commit, data, image, metrics and decisions",
    "logs": "Show the log of a training",
    "models": "List the models, show one release, write its model card",
    "report": "Write the HTML report of a model",
    "gc": "Delete artifacts that no rollback can need",
    "completion": "Print the completion script of a shell",
}
"""Every verb with the first line of its help; the modules are imported when they are run."""


class Verbs(click.Group):
    """Verbs that are imported only when they run, so that `--help` is fast."""

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
        return cast(click.Command, module.command)

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="mlgitops")
def cli() -> None:
    """Bring models from a git push to production by a judged canary, and back by one command.

    Every change of what runs is a commit in an environment repository. In a model repository, start with
    `mlgitops init`, then `mlgitops local up`, then `git push local`.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a published code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        result = cli.main(args=words, prog_name="mlgitops", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\ninterrupted\n")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except MlgitopsError as error:
        from mlgitops.cli import failure

        return failure.show(error, as_json="json" in _output(words), verbose="--verbose" in words)
    except Exception:  # noqa: BLE001 - the last place before a user: a bug is said to be one
        from mlgitops.cli import failure

        return failure.show_bug(traceback.format_exc(), verbose="--verbose" in words)
    return result if isinstance(result, int) else 0


def _output(words: list[str]) -> list[str]:
    """Return what follows `--output`, as the failing command may not have parsed it."""
    after = [second for first, second in zip(words, words[1:], strict=False) if first in ("--output", "-o")]
    return after + [word.partition("=")[2] for word in words if word.startswith("--output=")]
