"""What turns a model repository's source into a training image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlgitops.core.configuration import DockerBuild
from mlgitops.core.names import ImageReference


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One image to build."""

    source: Path
    """A clean checkout of the revision; nothing outside it is read."""
    files: Sequence[str]
    """The training inputs below `source`, relative, without data; only these enter the image."""
    requirements: str
    """Relative path of the locked requirements (a pip requirements file with `==`)."""
    entrypoint: Sequence[str]
    """Command that trains, like `("python", "train.py")`."""
    repository: str
    """Image repository, like `digits` or `registry.example/ml/digits`."""
    tag: str
    """Tag for people; never used to find the image."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """OCI annotations (`org.opencontainers.image.*`); none of them may vary between builds of the same source."""
    docker: DockerBuild | None = None
    """How a Docker Engine builds it; None for the embedded builder."""
    push: bool = False
    """Whether the image goes to the registry that `repository` begins with, and is named as that registry tells it."""


class Builder(Protocol):
    """Docker Engine, or the embedded builder."""

    def build(self, request: BuildRequest) -> ImageReference:
        """Build and push; the same source gives the same digest. `InvalidInput` for source that cannot be built."""
