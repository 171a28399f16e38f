"""What the command line is told by flags, environment variables and the folder it runs in; read once."""

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlgitops.cli.remembered import ENVIRONMENT_REPOSITORY, HOME_FOLDER, cache_folder
from mlgitops.cli.remembered import find_home as _find_home
from mlgitops.core.errors import InvalidInput
from mlgitops.core.names import parse_name, registry_host
from mlgitops.ports.repository import Person

if TYPE_CHECKING:
    from mlgitops.adapters.builder.login import Login
    from mlgitops.adapters.metrics.chosen import Sources
    from mlgitops.local.wiring import Access

__all__ = ["ENVIRONMENT_REPOSITORY", "HOME_FOLDER", "Settings", "access", "find_home", "person", "read_settings"]
MODEL_REPOSITORY: Final = "model.git"
TOKEN: Final = "MLGITOPS_TOKEN"  # noqa: S105 - the name of a variable
PASSPHRASE: Final = "MLGITOPS_SSH_PASSPHRASE"  # noqa: S105 - the name of a variable
SIGNING_KEY: Final = "MLGITOPS_SIGNING_KEY"
PROMETHEUS: Final = "MLGITOPS_PROMETHEUS"
PROMETHEUS_TOKEN: Final = "MLGITOPS_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
METRICS_COMMAND: Final = "MLGITOPS_METRICS_COMMAND"
REGISTRY: Final = "MLGITOPS_REGISTRY"
REGISTRY_USER: Final = "MLGITOPS_REGISTRY_USER"
REGISTRY_PASSWORD: Final = "MLGITOPS_REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable
FORGE: Final = "MLGITOPS_FORGE"
FORGE_TOKEN: Final = "MLGITOPS_FORGE_TOKEN"  # noqa: S105 - the name of a variable
ONLY_MODEL: Final = "MLGITOPS_ONLY_MODEL"
LONGEST_PATH: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where things are."""

    home: Path | None
    """Folder of the embedded engine; None where there is none."""
    location: str
    """The environment repository."""
    directory: Path
    """Where the command runs."""
    cache: Path
    """Clones of repositories behind a server."""


def read_settings(home: str | None, location: str | None) -> Settings:
    """Find the engine's folder and the environment repository.

    Args:
        home: `--home`; else `MLGITOPS_HOME`; else the nearest `.mlgitops` folder upwards.
        location: `--environment-repository`; else `MLGITOPS_ENVIRONMENT_REPOSITORY`; else the engine's own.

    Raises:
        InvalidInput: There is neither.
    """
    directory = Path.cwd()
    told = home or os.environ.get("MLGITOPS_HOME")
    folder = Path(told).resolve() if told else find_home(directory)
    where = location or os.environ.get("MLGITOPS_ENVIRONMENT_REPOSITORY")
    if not where:
        if folder is None or not (folder / ENVIRONMENT_REPOSITORY).exists():
            raise InvalidInput(
                "no environment repository is known here: run `mlgitops local up` in a model repository, "
                "or name one with --environment-repository or MLGITOPS_ENVIRONMENT_REPOSITORY"
            )
        where = str(folder / ENVIRONMENT_REPOSITORY)
    return Settings(home=folder, location=where, directory=directory, cache=Path(cache_folder()))


def access() -> "Access":
    """Return what opens the environment repository and signs commits, from environment variables; never from flags.

    Flags can be read by every user of a machine, and stay in histories. No value is repeated in an error: somebody may
    have put a secret where its path belongs.

    Raises:
        InvalidInput: A variable names no file or no model, or holds what cannot be a secret.
    """
    from mlgitops.adapters.repository.commits import Signing
    from mlgitops.adapters.repository.location import Credentials
    from mlgitops.local.wiring import Access

    given = Credentials(
        token=_secret(TOKEN),
        key=_file("MLGITOPS_SSH_KEY"),
        passphrase=_secret(PASSPHRASE),
        known_hosts=_file("MLGITOPS_KNOWN_HOSTS"),
    )
    program = os.environ.get("MLGITOPS_SIGNING_PROGRAM") or "ssh"
    if program == "gpg":
        key = _secret(SIGNING_KEY)
        signing = Signing(program="gpg", key=key) if key else None
    elif program == "ssh":
        file = _file(SIGNING_KEY)
        signing = Signing(program="ssh", key=str(file)) if file else None
    else:
        raise InvalidInput("MLGITOPS_SIGNING_PROGRAM must be ssh or gpg")
    only = os.environ.get(ONLY_MODEL)
    return Access(
        credentials=given,
        signing=signing,
        forge=_forge(),
        forge_token=_secret(FORGE_TOKEN),
        only_model=parse_name(only, ONLY_MODEL) if only else None,
    )


def _forge() -> str | None:
    from mlgitops.adapters.forge.address import check_address

    address = _secret(FORGE)
    return None if address is None else check_address(address, FORGE)


def registry_login() -> "Login | None":
    """Return the credentials of the one registry that environment variables name; None where they name none.

    They are shown to that registry only: a model's configuration says where its images go, and must not thereby say
    who learns a password.

    Raises:
        InvalidInput: Credentials without a registry, or a registry without them.
    """
    from mlgitops.adapters.builder.login import Credentials, Login

    host, username = os.environ.get(REGISTRY, "").strip(), os.environ.get(REGISTRY_USER, "").strip()
    password = _secret(REGISTRY_PASSWORD)
    if not (host or username or password):
        return None
    if not (host and username and password):
        raise InvalidInput(
            f"{REGISTRY}, {REGISTRY_USER} and {REGISTRY_PASSWORD} belong together; not all of them are set"
        )
    if registry_host(f"{host}/x") != host:
        raise InvalidInput(f"{REGISTRY} must be a registry's host, like registry.example.com or ghcr.io")
    return Login(host=host, credentials=Credentials(username=username, password=password))


def sources() -> "Sources":
    """Return where counts can come from beside the engine, from environment variables.

    Raises:
        InvalidInput: A variable holds no address, or no command.
    """
    from mlgitops.adapters.metrics.chosen import Sources

    address = os.environ.get(PROMETHEUS, "").strip() or None
    if address is not None and not (address.startswith(("http://", "https://")) and address.isprintable()):
        raise InvalidInput(f"{PROMETHEUS} must be an address that begins with http:// or https://")
    try:
        command = tuple(shlex.split(os.environ.get(METRICS_COMMAND, "")))
    except ValueError as error:
        raise InvalidInput(f"{METRICS_COMMAND} is no command: {error}") from error
    return Sources(prometheus=address, token=_secret(PROMETHEUS_TOKEN), command=command)


def _secret(name: str) -> str | None:
    value = os.environ.get(name, "").strip()
    if not value.isprintable():
        raise InvalidInput(f"{name} holds a line break or a control character; it must be one line")
    return value or None


def _file(name: str) -> Path | None:
    value = os.environ.get(name)
    if not value:
        return None
    file = Path(value).expanduser()
    if "\n" in value or len(value) > LONGEST_PATH or not file.is_file():
        raise InvalidInput(f"{name} must be the path of a file, and there is none")
    return file.resolve()


def find_home(directory: Path) -> Path | None:
    """Return the nearest engine folder at or above `directory`."""
    found = _find_home(str(directory))
    return Path(found) if found else None


def person() -> Person:
    """Return who runs the command, as git knows them."""
    name = os.environ.get("GIT_AUTHOR_NAME") or _git("user.name") or os.environ.get("USER") or "mlgitops"
    first = name.split()[0].lower() if name.strip() else "nobody"
    email = os.environ.get("GIT_AUTHOR_EMAIL") or _git("user.email") or f"{first}@localhost"
    return Person(name=name, email=email)


def _git(key: str) -> str:
    try:
        done = subprocess.run(["git", "config", key], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
