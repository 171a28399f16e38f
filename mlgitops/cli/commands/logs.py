"""`mlgitops logs`."""

import sys
from typing import TYPE_CHECKING

import click

from mlgitops.cli import failure, github, options
from mlgitops.cli.words import examples, one_line, several_lines
from mlgitops.core.errors import NotFound
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import job_name
from mlgitops.ports.cluster import one_log

if TYPE_CHECKING:
    from mlgitops.app.context import World
    from mlgitops.core.release import Release


@click.command(
    "logs",
    epilog=examples(
        "mlgitops logs 3f2a9c1d07be",
        "mlgitops logs 3f2a --model digits | tail -20",
        "mlgitops logs 3f2a --follow",
    ),
)
@click.argument("release")
@click.option("--follow", "-f", is_flag=True, help="Show what is written until the training is over.")
@options.one_model
@options.places
@options.output
def command(
    release: str,
    follow: bool,
    model: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> int:
    """Show the log of the training of RELEASE, while it runs and afterwards.

    Control characters and secrets are left out, as a log is whatever a program wrote. The first digits of RELEASE are
    enough. With --follow, exit code 0 means that it was trained, and 10 that it was not.
    """
    del verbose
    from dataclasses import replace

    from mlgitops.app.context import find_release, look
    from mlgitops.app.following import TRAINS
    from mlgitops.cli.observer import Lines
    from mlgitops.local.wiring import world

    settings, context = options.open_context(home, environment_repository)
    name = options.chosen(context, model)
    view = look(context)
    found = find_release(view, name, release)
    kept = view.ledger.log(name, found.name)
    if follow and found.phase in TRAINS:
        everything = world(settings.home, replace(context, observer=Lines()))
        found, kept = _followed(everything, name, found.name, aloud=output == "text")
        if output == "text":
            return _ended(found)
    elif kept is None:
        kept = _running(world(settings.home, context), name, found.name)
    text = kept.decode(errors="replace")
    options.show({"model": name, "release": found.name, "phase": str(found.phase), "log": text}, text, output)
    return _ended(found) if follow else failure.DONE


def _running(everything: "World", model: str, release: str) -> bytes:
    pods = everything.cluster.logs(TRAINING, job_name(model, release))
    if not pods:
        raise NotFound("log of release", release)
    return one_log(pods)


def _followed(everything: "World", model: str, release: str, *, aloud: bool) -> "tuple[Release, bytes]":
    """Follow a training to its end; returns the release and, where it was not told aloud, the log."""
    from mlgitops.adapters.redacting import redactor
    from mlgitops.app.following import follow
    from mlgitops.core.redaction import Stream

    streams: dict[str, Stream] = {}
    written: dict[str, bytes] = {}
    last = ""

    def tell(pod: str, data: bytes) -> None:
        nonlocal last
        stream = streams.setdefault(pod, Stream(redactor()))
        if not aloud:
            written[pod] = written.get(pod, b"") + data
        elif lines := stream.take(data):
            _say(pod if pod != last else "", lines)
            last = pod

    found = follow(everything, model, release, tell)
    for pod, stream in streams.items() if aloud else ():
        if rest := stream.end():
            _say(pod if pod != last else "", rest + b"\n")
    return found, one_log(written)


def _say(pod: str, lines: bytes) -> None:
    """Print whole lines of one pod, below its name where another one spoke before."""
    head = f"== {one_line(pod)}\n" if pod else ""
    sys.stdout.write(head + github.harmless(several_lines(lines.decode(errors="replace"))))
    sys.stdout.flush()


def _ended(release: "Release") -> int:
    """Say how a followed training ended; returns the published exit code."""
    if release.trained is not None:
        return failure.DONE
    sys.stderr.write(options.rendered({}, f"release {release.name} is {release.phase}: {release.reason}", "text"))
    return failure.ANSWER_NO
