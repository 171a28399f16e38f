"""Lets git pack a repository that has too many loose objects: libgit2 leaves each of them a file for ever."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgitops.adapters.repository.push import environment

LOOSE_OBJECTS: Final = 6_700
"""Loose objects before git is asked: its own measure, so a push of a git client leads to the same. Git then goes by the
repository's `gc.auto`: whoever packs it otherwise is obeyed."""
_SAMPLE: Final = "17"
"""Identities are spread evenly, so one of their 256 folders tells how many there are, as git itself has it."""
_SETTINGS: Final = ("gc.autoDetach=true", "gc.packRefs=false", "pack.threads=1", "gc.pruneExpire=2.weeks.ago")
"""Whoever writes does not wait; references are moved meanwhile; what is not tied to a branch yet stays."""
_PATIENCE_SECONDS: Final = 10.0


def pack_when_many(repository: Path) -> bool:
    """Start git's packing where there are many loose objects; costs a look at one folder where there are few.

    It is never needed for what was written to be right, so nothing that is in its way is an error: no git program, a
    full disk, another packing at work.

    Returns:
        Whether git was asked.
    """
    try:
        count = sum(1 for _ in (repository / "objects" / _SAMPLE).iterdir())
    except OSError:
        return False
    if count * 256 <= LOOSE_OBJECTS:
        return False
    settings = [word for one in _SETTINGS for word in ("-c", one)]
    command = ["git", *settings, f"--git-dir={repository}", "gc", "--auto", "--quiet"]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            command,
            env=environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    return True
