"""`mlgitops trace`."""

from pathlib import Path

import click

from mlgitops.cli import options, render
from mlgitops.cli.words import examples
from mlgitops.core.errors import InvalidInput, NotFound, Unavailable
from mlgitops.core.names import RELEASE_LENGTH


@click.command(
    "trace",
    epilog=examples(
        "curl -si localhost:8080/v1/models/digits:predict -d @digit.json | grep -i x-request-id",
        "mlgitops trace 7c0f3b1e",
        "mlgitops trace 3f2a9c1d07be --output json",
    ),
)
@click.argument("request_id")
@options.one_model
@options.one_environment
@options.places
@options.output
def command(
    request_id: str,
    model: str | None,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Follow one production answer back to commit, data, image, metrics and decisions.

    REQUEST_ID is the X-Request-Id of an answer, or the release that its X-Mlgitops-Release names.
    """
    del verbose
    from mlgitops.app import reading
    from mlgitops.app.context import environment_of, look

    settings, context = options.open_context(home, environment_repository)
    name = options.chosen(context, model)
    unit = environment_of(look(context), environment, name).name
    served = _served(settings.home, unit, name, request_id)
    values = reading.trace(context, name, unit, served)
    options.show(values, render.trace(values), output)


def _served(home: Path | None, environment: str, model: str, request_id: str) -> dict[str, object]:
    """Return what answered a request, or the release of that name; a client may give a request such a name, too."""
    is_release = len(request_id) == RELEASE_LENGTH and all(one in "0123456789abcdef" for one in request_id)
    try:
        return {"id": request_id} | _remembered(home, environment, model, request_id)
    except (InvalidInput, NotFound, Unavailable):
        if not is_release:
            raise
        return {"release": request_id}


def _remembered(home: Path | None, environment: str, model: str, request_id: str) -> dict[str, object]:
    from mlgitops.adapters.serving.embedded import EmbeddedServing
    from mlgitops.local.wiring import SERVING

    if home is None:
        raise InvalidInput("requests are remembered by an engine, and there is none here; name a release instead")
    return dict(EmbeddedServing(home / SERVING).trace(environment, model, request_id))
