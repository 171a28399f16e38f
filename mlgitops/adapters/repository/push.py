"""Pushing through the git program, for what libgit2 cannot do.

It cannot move all references or none, run hooks of a local folder, or push without reading all that the server has.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgitops.adapters.repository.transport import Move
from mlgitops.core.errors import Unavailable

_PATIENCE_SECONDS: Final = 120.0
"""A hook may run a linter over the repository; none should take longer."""
_PASSED_ON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "SSH_AUTH_SOCK"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Variables git and the hooks it starts get to see; the rest may hold this tool's secrets."""
_HERMETIC: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_LOCKED: Final = re.compile(r"Unable to create '(.+?\.lock)': File exists")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a push."""

    landed: bool
    """Whether all references moved; otherwise none did."""
    verdicts: Mapping[str, str]
    """Why a reference was refused, by its name; those refused only because of another are left out where possible."""
    words: str
    """What the server, or a hook there, said; or git itself, when no server answered."""
    locked: Path | None
    """The lock that stood in the way, for a repository on this machine."""
    answered: bool
    """Whether the server gave a verdict at all."""


def push_all(git_folder: Path, target: str, moves: Sequence[Move], extra: Mapping[str, str]) -> Outcome:
    """Push all moves or none, each only where the reference still is where it was expected.

    Args:
        git_folder: The bare repository that holds the objects.
        target: Path or URL to push to, without secrets.
        moves: References to move.
        extra: Variables for this push alone, secrets among them; hooks of a local folder inherit them.

    Raises:
        Unavailable: There is no git program, or it did not end in time.
    """
    leases = [f"--force-with-lease={move.ref}:{move.expected or ''}" for move in moves]
    specifications = [f"{move.target}:{move.ref}" for move in moves]
    together = ["--atomic"] if len(moves) > 1 else []  # not every server knows the word
    options = ["--porcelain", *together, "--no-verify", "--no-signed", *leases]
    command = ["git", f"--git-dir={git_folder}", "push", *options, "--", target, *specifications]
    try:
        done = subprocess.run(
            command, env=environment(extra), capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except OSError as error:
        raise Unavailable("git", "the program is needed for hooks, and for several references at once") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(target, f"no answer to a push within {int(_PATIENCE_SECONDS)} s") from error
    return _outcome(done.returncode == 0, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables git is started with: no configuration but the repository's, no secrets of this tool."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**kept, **_HERMETIC, **extra}


def _outcome(landed: bool, verdicts: str, words: str) -> Outcome:  # noqa: FBT001
    refused = dict(_verdict(line) for line in verdicts.splitlines() if line.startswith("!\t"))
    own = {ref: reason for ref, reason in refused.items() if "atomic" not in reason}
    lines = [line.strip() for line in words.splitlines()]
    told = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")] or lines
    locked = _LOCKED.search(words)
    return Outcome(
        landed=landed,
        verdicts=own or refused,
        words="; ".join(filter(None, told)),
        locked=Path(locked[1]) if locked else None,
        answered=bool(refused),
    )


def _verdict(line: str) -> tuple[str, str]:
    """Split `!<tab>from:to<tab>[remote rejected] (reason)`."""
    _, pair, summary = [*line.split("\t", 2), "", ""][:3]
    return pair.partition(":")[2], summary
