"""Whether a repository's branches are kept from being rewritten or deleted, as far as it can be seen from here."""

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pygit2

from mlgitops.adapters.repository.bare import open_bare
from mlgitops.adapters.repository.location import parse_location
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.findings import Finding

SETTINGS: Final = {
    "receive.denyNonFastForwards": "a push may rewrite its branches",
    "receive.denyDeletes": "a push may delete its branches",
}
"""What git asks when somebody pushes, and what is possible while it is not true."""
LOCK_SECONDS: Final = 60.0
"""git holds a lock for milliseconds; one that is older was left by a process that was killed."""


def protect(path: Path) -> None:
    """Keep the branches of a bare repository on this machine from being rewritten or deleted by a push.

    A setting that somebody made stays.

    Raises:
        NotFound: There is no repository.
    """
    configuration = open_bare(path).config
    for name in SETTINGS:
        if name not in configuration:
            configuration[name] = True


def examine_protection(location: str) -> Iterator[Finding]:
    """Yield what is found about protection and leftover locks; nothing is asked of a server."""
    try:
        place = parse_location(location)
    except MlgitopsError as error:
        yield Finding(check="protection", outcome="error", message=str(error), mend="correct the location")
        return
    if place.kind != "path":
        message = (
            f"whether {place.host} keeps main and mlgitops/ledger from force-pushes and deletion is its own matter"
        )
        mend = "see docs/how-to/protect-the-environment-repository.md, and try: `git push --force` must be refused"
        yield Finding(check="protection", outcome="unknown", message=message, mend=mend)
        return
    path = Path(place.url).expanduser()
    try:
        repository = open_bare(path)
    except MlgitopsError as error:
        yield Finding(check="protection", outcome="error", message=str(error), mend="name a bare repository")
        return
    yield from _settings(repository, path)
    yield from _locks(path)


def _settings(repository: pygit2.Repository, path: Path) -> Iterator[Finding]:
    missing = {name: harm for name, harm in SETTINGS.items() if not _is_true(repository, name)}
    for name, harm in missing.items():
        mend = f"git -C {shlex.quote(str(path))} config {name} true"
        yield Finding(check="protection", outcome="error", message=f"{name} is not set: {harm}", mend=mend)
    if not missing:
        message = "pushes can neither rewrite nor delete branches"
        yield Finding(check="protection", outcome="ok", message=message)


def _is_true(repository: pygit2.Repository, name: str) -> bool:
    try:
        return repository.config.get_bool(name)
    except (KeyError, ValueError, pygit2.GitError):
        return False


def _locks(path: Path) -> Iterator[Finding]:
    found = [*path.glob("*.lock"), *(path / "refs").rglob("*.lock")]
    old = [one for one in found if _age_seconds(one) > LOCK_SECONDS]
    for one in sorted(old):
        message = f"the lock {one.relative_to(path)} was left by a process that was killed: nothing can be written"
        mend = f"when no git process is at work there, delete {one}"
        yield Finding(check="locks", outcome="error", message=message, mend=mend)
    if not old:
        yield Finding(check="locks", outcome="ok", message="no lock was left behind")


def _age_seconds(file: Path) -> float:
    try:
        return time.time() - file.lstat().st_mtime
    except OSError:
        return 0.0
