"""The command line's entry: one place that turns errors into words and exit codes.

What is asked most is answered before anything is loaded: the help page, and a status that has not changed.
"""

import os
import sys

from mlgitops import __version__
from mlgitops.cli.verbs import VERBS, page

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, whose import would cost more than the help page
if TYPE_CHECKING:
    from mlgitops.cli.tree import cli

__all__ = ["VERBS", "cli", "main", "run"]
INTERRUPTED = 130
UNAVAILABLE = 5
COMPLETE_VARIABLE = "_MLGITOPS_COMPLETE"
"""Set by a shell's completion script."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a published code."""
    code = run(arguments, terminable=True)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _nobody_reads(code)
    except OSError as error:  # the answer goes to a file on a full disk
        sys.stderr.write(f"Error: the answer could not be written: {error.strerror}\n")
        code = _nobody_reads(code or UNAVAILABLE)
    sys.exit(code)


def run(arguments: list[str] | None = None, *, terminable: bool = False) -> int:
    """Run the command line; returns the exit code.

    Args:
        arguments: What was typed; None for the process's own.
        terminable: Whether the whole process is this command, so that SIGTERM, which services and workflows send,
            ends it as Ctrl-C does: what it made for a time is taken away.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if _at_once(words):
            return 0
        if terminable:
            _end_by_sigterm()
        return _run(words)
    except BrokenPipeError:
        return _nobody_reads(0)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return INTERRUPTED


def _end_by_sigterm() -> None:
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _at_once(words: list[str]) -> bool:
    """Answer what needs nothing loaded."""
    if COMPLETE_VARIABLE in os.environ:
        return False
    if words in ([], ["-h"], ["--help"]):
        sys.stdout.write(page())
        return True
    if words == ["--version"]:
        sys.stdout.write(f"mlgitops, version {__version__}\n")
        return True
    from mlgitops.cli.remembered import answered

    return answered(words)


def _run(words: list[str]) -> int:
    import click

    from mlgitops.cli.tree import cli
    from mlgitops.core.errors import MlgitopsError

    try:
        result = cli.main(args=words, prog_name="mlgitops", standalone_mode=False, obj=words)
    except (click.ClickException, click.Abort, MlgitopsError, SystemExit) as error:
        return _failed(error, words)
    except OSError as error:
        from mlgitops.adapters.atomic import full_disk

        full = full_disk(error)
        return _bug(words) if full is None else _failed(full, words)
    except Exception:  # noqa: BLE001 - the last place before a user: a bug is said to be one
        return _bug(words)
    return result if isinstance(result, int) else 0


def _bug(words: list[str]) -> int:
    """Say that the exception at hand is a bug."""
    import traceback

    from mlgitops.cli import failure

    return failure.show_bug(traceback.format_exc(), as_json=_as_json(words), verbose="--verbose" in words)


def _failed(error: BaseException, words: list[str]) -> int:
    import click

    from mlgitops.cli import failure
    from mlgitops.core.errors import MlgitopsError

    if isinstance(error, MlgitopsError):
        return failure.show(error, as_json=_as_json(words), verbose="--verbose" in words)
    if isinstance(error, click.ClickException):
        return failure.show_usage(error, as_json=_as_json(words))
    if isinstance(error, SystemExit):  # click's answer to a shell's completion, or to a reader that went away
        return 0 if COMPLETE_VARIABLE in os.environ else _nobody_reads(0)
    raise KeyboardInterrupt


def _nobody_reads(code: int) -> int:
    """Say nothing more to a reader that went away, like `head`: what was to be done is done."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _as_json(words: list[str]) -> bool:
    """Say whether JSON was asked for, also where the failing command never parsed it."""
    spaced = any(words[at : at + 2] in (["--output", "json"], ["-o", "json"]) for at in range(len(words)))
    return spaced or "--output=json" in words or "-ojson" in words


def __getattr__(name: str) -> object:
    """Load the tree of commands for whoever asks for it by name."""
    if name == "cli":
        from mlgitops.cli.tree import cli

        return cli
    raise AttributeError(name)
