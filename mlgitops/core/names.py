"""Names and identities: parsed once at the edge, trusted afterwards."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mlgitops.core.errors import InvalidInput

MODEL_NAME_LENGTH: Final = 36
"""`<model>-<release>-evaluator-0` must fit a DNS label of 63 characters."""
RELEASE_LENGTH: Final = 12
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_REVISION: Final = re.compile(r"[0-9a-f]{40}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(r"[a-z0-9]+([._:/-]+[a-z0-9]+)*")


def parse_name(text: str, kind: str = "name", limit: int = MODEL_NAME_LENGTH) -> str:
    """Return `text` when it is a DNS-1035 label of at most `limit` characters.

    Raises:
        InvalidInput: It is not; the message says the rule.
    """
    if not isinstance(text, str) or len(text) > limit or not _LABEL.fullmatch(text):
        raise InvalidInput(
            f"{kind} {text!r:.80} must be lower-case letters, digits and '-', start with a letter, "
            f"end with a letter or digit, and have at most {limit} characters"
        )
    return text


def parse_revision(text: str) -> str:
    """Return `text` when it is a full git revision of 40 hexadecimal digits."""
    if not _REVISION.fullmatch(text):
        raise InvalidInput(f"{text!r:.80} is not a full git revision (40 hexadecimal digits)")
    return text


@dataclass(frozen=True, order=True)
class Digest:
    """A SHA-256 content digest, `sha256:` and 64 hexadecimal digits."""

    value: str

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.value):
            raise InvalidInput(f"{self.value!r:.90} is not a digest (sha256: and 64 hexadecimal digits)")

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the digest of `data`."""
        return cls("sha256:" + hashlib.sha256(data).hexdigest())

    @classmethod
    def of_files(cls, files: Mapping[str, "Digest"]) -> Self:
        """Return the digest of a set of files: of each relative path and its content's digest, sorted by path."""
        lines = (f"{files[path].hex}  {path}\n" for path in sorted(files))
        return cls.of("".join(lines).encode())

    @property
    def hex(self) -> str:
        """The 64 hexadecimal digits."""
        return self.value.removeprefix("sha256:")

    @property
    def short(self) -> str:
        """The first 12 hexadecimal digits, for people."""
        return self.hex[:RELEASE_LENGTH]

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class ImageReference:
    """An image by content: `repository@sha256:…`, never a tag."""

    repository: str
    digest: Digest

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `repository@sha256:…`.

        Raises:
            InvalidInput: There is no digest, or the repository's name is malformed.
        """
        repository, at, digest = text.partition("@")
        if not at or not _REPOSITORY.fullmatch(repository):
            raise InvalidInput(f"{text!r:.160} is not an image by digest (repository@sha256:…)")
        return cls(repository, Digest(digest))

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"


def registry_host(repository: str) -> str | None:
    """Return the host of the registry that an image repository's name begins with; None for a bare name.

    As every container engine tells them apart: a host has a dot or a port, or is `localhost`.
    """
    first, slash, _ = repository.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else None


def job_name(model: str, release: str) -> str:
    """Return the name of a release's training job, one object per attempt."""
    return f"{model}-{release}"
