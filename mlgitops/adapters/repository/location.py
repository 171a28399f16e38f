"""Where a repository is, with what is secret kept apart from what may be shown."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from mlgitops.adapters.redacting import redacted
from mlgitops.core.errors import InvalidInput

_SCP: Final = re.compile(r"(?:(?P<user>[A-Za-z0-9_][\w.-]*)@)?(?P<host>[A-Za-z0-9][\w.-]*):(?!//)(?P<path>[^-].*)")
_WHOLE_USERINFO: Final = re.compile(r"(?<=://).*@", re.DOTALL)
_ESCAPE: Final = "write / as %2F and @ as %40 in a name or password, or give it by MLGITOPS_TOKEN"
_LONGEST: Final = 4096
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What opens a repository behind a server; never shown."""

    token: str | None = field(default=None, repr=False)
    """For https: a token or password; None means the server asks for none."""
    username: str = "x-access-token"
    """For https: the name beside the token; GitHub, GitLab and Gitea take any with a token."""
    key: Path | None = None
    """For ssh: the private key; None asks the ssh agent."""
    passphrase: str | None = field(default=None, repr=False)
    """For ssh: opens the private key; None for a key without one."""
    known_hosts: Path | None = None
    """For ssh: the file of host keys that are trusted; None means the user's own."""


@dataclass(frozen=True, kw_only=True)
class Location:
    """One repository's place."""

    kind: Literal["path", "http", "ssh"]
    """`path` is a bare repository on this machine; `http` stands for https too."""
    url: str
    """Path, or URL without name and password."""
    host: str = ""
    """The server; empty for a path."""
    username: str | None = None
    """The name in the URL, if any."""
    password: str | None = field(default=None, repr=False)
    """The password or token in the URL, if any."""
    clear: bool = False
    """Whether secrets would cross a network readable by others."""


def parse_location(text: str) -> Location:
    """Parse a path, `file://`, `http(s)://`, `ssh://` or scp-like location.

    Raises:
        InvalidInput: It is none of them. The message does not hold the location's secrets.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in text) or not 0 < len(text) <= _LONGEST:
        raise InvalidInput(f"{_shown(text)!r:.200} is not a location of a repository")
    if "://" not in text:
        found = _SCP.fullmatch(text)
        exists = os.path.exists(text)  # noqa: PTH110 - False for a name that no file can have, too
        if found and not exists and "/" not in text.partition(":")[0]:
            return Location(kind="ssh", url=text, host=found["host"], username=found["user"])
        return Location(kind="path", url=text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # Not from the error: it quotes what stands where a port would, which may be a password with a slash.
        raise InvalidInput(f"{_shown(text)!r:.200} is not a URL; {_ESCAPE}") from None
    return _from_url(text, parts, port)


def _shown(text: str) -> str:
    """Return a location that cannot be read without all that may be a secret in it, slashes in a password included."""
    return redacted(_WHOLE_USERINFO.sub("***@", text))


def _from_url(text: str, parts: SplitResult, port: int | None) -> Location:
    host = parts.hostname or ""
    if parts.scheme == "file" and host in {"", "localhost"}:
        return Location(kind="path", url=unquote(parts.path))
    if parts.scheme not in {"http", "https", "ssh"} or not host or host.startswith("-"):
        raise InvalidInput(
            f"{_shown(text)!r:.200} is not a location the tool can write to: a path, file://, https://, ssh:// or "
            "user@host:path"
        )
    if parts.scheme != "ssh" and "@" in parts.path + parts.query + parts.fragment:
        raise InvalidInput(f"{_shown(text)!r:.200} has an @ behind its host; {_ESCAPE}")
    shown = f"[{host}]" if ":" in host else host
    place = shown + (f":{port}" if port else "")
    name = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if parts.scheme == "ssh":
        url = f"ssh://{parts.username + '@' if parts.username else ''}{place}{parts.path}"
        return Location(kind="ssh", url=url, host=host, username=name, password=password)
    url = f"{parts.scheme}://{place}{parts.path}"
    clear = parts.scheme == "http" and host not in _LOOPBACK
    return Location(kind="http", url=url, host=host, username=name, password=password, clear=clear)
