"""The few lines of workflow that a repository needs to call mlgitops' own workflows."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mlgitops.app.initialise import write_missing
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.loading import ENVIRONMENTS_FILE, MODEL_FILE

FOLDER: Final = ".github/workflows"
_CALLERS: Final = Path(__file__).resolve().parent / "callers"
_KINDS: Final = {MODEL_FILE: "model", ENVIRONMENTS_FILE: "environment"}
_SOURCE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_.-]{1,100})@([0-9a-f]{40})")


def initialise_workflows(directory: Path, source: str, *, dry_run: bool = False) -> Mapping[str, bytes]:
    """Write the workflows of a model repository or of an environment repository; what it is, its files tell.

    A workflow that is there is its owner's, and stays as it is.

    Args:
        directory: Top of a checkout.
        source: The repository whose workflows are called, and the commit: `OWNER/NAME@COMMIT`.
        dry_run: Write nothing.

    Returns:
        The files written, or that would be, by path relative to `directory`.

    Raises:
        InvalidInput: `source` is something else, or names no whole commit: branches and tags can be moved. Or the
            folder for workflows is a link.
        NotFound: `directory` is neither kind of repository.
        Unavailable: A file cannot be written.
    """
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise InvalidInput(
            f"{source!r} is no OWNER/NAME@COMMIT with all 40 digits of the commit: branches and tags move"
        )
    kinds = [kind for name, kind in _KINDS.items() if (directory / name).is_file()]
    if not kinds:
        raise NotFound("file", str(directory / MODEL_FILE), [MODEL_FILE, ENVIRONMENTS_FILE])
    linked = next((one for one in (directory / ".github", directory / FOLDER) if one.is_symlink()), None)
    if linked is not None:
        raise InvalidInput([Problem(message="is a link", path=str(linked), mend="make it a folder")])
    files = {path: data for kind in kinds for path, data in _callers(kind, *found.groups()).items()}
    return write_missing(directory, files, dry_run=dry_run)


def _callers(kind: str, repository: str, commit: str) -> Mapping[str, bytes]:
    return {
        f"{FOLDER}/{path.name}": path.read_text()
        .replace("OWNER/NAME/", f"{repository}/")
        .replace("@COMMIT", f"@{commit}")
        .encode()
        for path in sorted((_CALLERS / kind).iterdir())
    }
