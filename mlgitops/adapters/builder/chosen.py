"""The builder that a model's configuration asks for."""

from pathlib import Path

from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.adapters.builder.layout import Layout, parse_repository
from mlgitops.adapters.builder.login import Login, find_credentials
from mlgitops.core.names import ImageReference
from mlgitops.ports.builder import BuildRequest
from mlgitops.ports.observer import Observer


class ChosenBuilder:
    """Implements `ports.builder.Builder`: builds as a request says, and pushes what is to be pushed."""

    def __init__(self, registry: Path, logs: Path, observer: Observer, login: Login | None = None) -> None:
        """Keep layouts and logs.

        Args:
            registry: Folder of the embedded builder's layouts.
            logs: Folder of the logs of a Docker Engine's builds.
            observer: Told what is built and sent.
            login: Credentials of one registry; those of others are looked up where Docker keeps them.
        """
        self._registry, self._logs, self._observer = registry, logs, observer
        self._find = find_credentials(login)

    def build(self, request: BuildRequest) -> ImageReference:
        """Build an image, and push it where the request says so.

        Raises:
            InvalidInput: The source cannot be built, or there is no registry in the image repository's name.
            MlgitopsError: As `pushing.push` and `DockerBuilder.build`.
        """
        if request.docker is not None:
            from mlgitops.adapters.builder.docker import DockerBuilder

            return DockerBuilder(self._logs, self._observer.note, self._find).build(request)
        image = EmbeddedBuilder(self._registry).build(request)
        if request.push:
            from mlgitops.adapters.builder.pushing import push
            from mlgitops.adapters.builder.registry import Registry

            layout = Layout(self._registry.joinpath(*parse_repository(request.repository)))
            push(layout, image, request.tag, Registry(request.repository, self._find), self._observer.note)
        return image
