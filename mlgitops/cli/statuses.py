"""The answer to `mlgitops status`: computed when asked, or ahead by whatever on this machine changed something."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlgitops.cli import options, remembered, render

if TYPE_CHECKING:
    from mlgitops.app.context import Context

LOG: Final = "pushed.log"
"""The end of what the last push's `train` said, beside how it ended."""


def values(context: "Context", location: str, model: str | None = None) -> dict[str, Any]:
    """Return what `mlgitops status` tells, as data.

    Args:
        context: The environment repository.
        location: Where that is; beside a folder an engine keeps how the last push ended.
        model: Only this one; None for every model.

    Raises:
        NotFound: There is no such model, or no ledger.
    """
    from mlgitops.app import reading

    return reading.status(context, model) | {"push": _last_push(Path(location).parent)}


def answer(context: "Context", location: str, model: str | None, output: str, words: list[str]) -> tuple[str, int]:
    """Return the answer to a question and the exit code; keep it where nothing in it waits for a time or is wrong."""
    before = remembered.state_of(location)
    told = values(context, location, model)
    text = options.rendered(told, render.status(told), output)
    if words and _stands(told):
        remembered.remember(words, location, before, text)
    return text, options.unreadable(told)


def keeper(context: "Context", location: str) -> Callable[[], None]:
    """Return what computes the plain answers ahead, when something has changed since it was last called."""
    known = ""

    def keep() -> None:
        nonlocal known
        before = remembered.state_of(location)
        if before != known:
            ahead(context, location)
            known = before

    return keep


def ahead(context: "Context", location: str) -> None:
    """Compute the plain answers about a repository on this machine, so that whoever asks next waits for nothing."""
    before = remembered.state_of(location)
    told = values(context, location)
    if not _stands(told):
        return
    text = render.status(told)
    rendered = {output: options.rendered(told, text, output) for output in ("text", "json")}
    for words in remembered.PLAIN:
        remembered.remember(words, location, before, rendered["json" if "json" in words else "text"], where=location)


def _stands(told: Mapping[str, Any]) -> bool:
    """Say whether an answer stands until the repository changes.

    What waits may wait for a time, such as the end of a freeze, and what cannot be read has another exit code than 0.
    """
    waits = any(one["waiting"] for model in told["models"] for one in model["environments"])
    return not waits and not options.unreadable(told)


def _last_push(home: Path) -> dict[str, Any] | None:
    """Return how the push that an engine took last ended; None where no engine took one."""
    try:
        found = json.loads((home / remembered.PUSHED).read_bytes())
        revision, code = str(found["revision"]), int(found["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"revision": revision, "exitCode": code, "reason": "" if code == 0 else _last_words(home / LOG)}


def _last_words(log: Path) -> str:
    """Return the line that says why a push failed: the error's, else the last one."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or [""])[-1]
