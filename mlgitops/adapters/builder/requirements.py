"""Locked requirements: read from a pip file, compared with what the running interpreter has.

The embedded engine runs an image with the interpreter and packages of its own virtual environment. So the lock is a
promise to be checked: at the build, where a person can mend it, and again before the image runs.
"""

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from mlgitops.core.errors import InvalidInput, Problem

REQUIREMENTS_BYTES: Final = 1 << 20
_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_HASH: Final = re.compile(r"\s--hash=\S+")
_TOLERATED: Final = re.compile(
    r"(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host|--no-index|--require-hashes|--pre"
    r"|--prefer-binary|--only-binary|--no-binary)(\s|=|$)"
)
"""Options that say where packages come from; nothing is fetched here, so they are left to those who install."""
_SAME: Final = {"tensorflow": "tensorflow-cpu", "tensorflow-cpu": "tensorflow"}
"""Distributions of one source tree under two names: the same import, the same versions."""


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One line of a lock."""

    name: str
    """Distribution, normalised."""
    version: str
    """The only version that will do, as written."""
    line: int
    """Where it stands, counted from 1."""
    applies: bool
    """Its marker, if any, is true on this machine."""


class _Installed(Mapping[str, str]):
    """Versions by normalised name; only those asked for are read, which takes a millisecond each."""

    def __getitem__(self, name: str) -> str:
        try:
            found: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        if not found:  # a half-removed package has none
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        names = (one.metadata["Name"] for one in importlib.metadata.distributions())
        return iter({canonicalize_name(name) for name in names if name})

    def __len__(self) -> int:
        return sum(1 for _ in self)


def installed_versions() -> Mapping[str, str]:
    """Return the versions of this interpreter's distributions by normalised name."""
    return _Installed()


def check_lock(data: bytes, path: str, installed: Mapping[str, str]) -> None:
    """Check a lock against installed distributions.

    Args:
        data: A pip requirements file of `name==version` lines; extras, hashes, markers and index options are tolerated.
        path: The file's name, for messages.
        installed: Version by normalised name, as `installed_versions` gives.

    Raises:
        InvalidInput: Lines that lock nothing, and every version that is missing here or another one, with its line.
    """
    problems: list[Problem] = []
    locked = [item for item in parse_lock(data, path, problems) if item.applies]
    for item in locked:
        found = installed.get(item.name) or installed.get(_SAME.get(item.name, item.name))
        if found is None:
            message = f"{item.name}=={item.version} is locked, but {item.name} is not installed"
        elif not _same_version(item.version, found):
            message = f"{item.name}=={item.version} is locked, but {found} is installed"
        else:
            continue
        mend = f"install {item.name}=={item.version} in the environment that runs mlgitops, or lock what is there"
        problems.append(Problem(message=message, path=path, line=item.line, mend=mend))
    if problems:
        raise InvalidInput(sorted(problems, key=lambda problem: problem.line or 0))


def parse_lock(data: bytes, path: str, problems: list[Problem]) -> list[Locked]:
    """Read a lock; what cannot be read is added to `problems`, with its line."""
    if len(data) > REQUIREMENTS_BYTES:
        problems.append(
            Problem(message="is larger than 1 MiB", path=path, mend="lock direct and indirect packages only")
        )
        return []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.append(Problem(message="is not UTF-8", path=path, mend="save it as UTF-8"))
        return []
    locked: dict[str, Locked] = {}
    for number, line in _logical_lines(text):
        try:
            item = _parse_line(line, number)
        except InvalidInput as error:
            mend = "write one `name==version` per line"
            problems.append(Problem(message=str(error), path=path, line=number, mend=mend))
            continue
        if item is None:
            continue
        other = locked.get(item.name)
        if item.applies and other is not None and other.applies and not _same_version(item.version, other.version):
            message = f"{item.name} is locked at {other.version} in line {other.line} and at {item.version} here"
            problems.append(Problem(message=message, path=path, line=number, mend="keep one of the two lines"))
        elif other is None or not other.applies:
            locked[item.name] = item
    return list(locked.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join continued lines and drop comments; each with the number of its first physical line."""
    start, joined = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        bare = _COMMENT.sub("", line)
        if bare.endswith("\\"):
            joined += bare[:-1] + " "
            continue
        if (joined + bare).strip():
            yield start, (joined + bare).strip()
        start, joined = 0, ""
    if joined.strip():
        yield start, joined.strip()


def _parse_line(line: str, number: int) -> Locked | None:
    if _TOLERATED.match(line):
        return None
    if line.startswith("-"):
        raise InvalidInput(f"option {line.split(maxsplit=1)[0]!r:.40} cannot be part of a lock")
    try:
        requirement = Requirement(_HASH.sub("", f" {line}").strip())
    except InvalidRequirement as error:
        raise InvalidInput(f"is no requirement: {line!r:.80}") from error
    specifiers = list(requirement.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator in ("==", "===")
    if requirement.url or not exact or specifiers[0].version.endswith(".*"):
        raise InvalidInput(f"{requirement.name} is not locked to one version")
    applies = requirement.marker is None or requirement.marker.evaluate()
    name = canonicalize_name(requirement.name)
    return Locked(name=name, version=specifiers[0].version, line=number, applies=applies)


def _same_version(locked: str, found: str) -> bool:
    """Compare as `==` does: a lock without a local part accepts any build of that version."""
    try:
        wanted, present = Version(locked), Version(found)
    except InvalidVersion:
        return locked == found
    return wanted == present or (wanted.local is None and Version(present.public) == wanted)
