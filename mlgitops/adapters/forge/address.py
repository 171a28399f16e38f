"""Where a repository is in the API of its forge."""

import re
from typing import Final
from urllib.parse import urlsplit

from mlgitops.core.errors import InvalidInput

_GITHUB: Final = re.compile(
    r"(?:https://(?:[^@/?#\\]*@)?github\.com/|ssh://git@github\.com/|git@github\.com:)"
    r"(?P<owner>[A-Za-z0-9-]{1,39})/(?P<name>[A-Za-z0-9._-]{1,100}?)(?:\.git)?/?"
)
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._-]+)*/repos/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def hosted_repository(location: str) -> str | None:
    """Return the address in the API for a repository on github.com; None for one elsewhere."""
    found = _GITHUB.fullmatch(location)
    return None if found is None else f"https://api.github.com/repos/{found['owner']}/{found['name']}"


def check_address(address: str, where: str) -> str:
    """Return an address that a token may be sent to.

    Raises:
        InvalidInput: It is none of a repository in a forge's API, or would show the token to the network. The message
            does not repeat it: somebody may have put a secret there.
    """
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        raise InvalidInput(f"{where} is not a URL") from None
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc or not _PATH.fullmatch(parts.path):
        example = "https://api.github.com/repos/<owner>/<name>, or https://<server>/api/v3/repos/<owner>/<name>"
        raise InvalidInput(f"{where} must be the address of a repository in the forge's API, like {example}")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise InvalidInput(f"{where} must begin with https://, as http would show the token to the network")
    return address.rstrip("/")
