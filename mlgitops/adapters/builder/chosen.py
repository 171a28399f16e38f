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

    def __init__(self, registry: Path, observer: Observer, login: Login | None = None) -> None:
        """Keep layouts below `registry`.

        Args:
            registry: Folder of the embedded builder's layouts.
            observer: Told what is sent.
            login: Credentials of one registry; those of others are looked up where Docker keeps them.
        """
        self._registry, self._observer, self._login = registry, observer, login

    def build(self, request: BuildRequest) -> ImageReference:
        """Build an image, and push it where the request says so.

        Raises:
            InvalidInput: The source cannot be built, or there is no registry in the image repository's name.
            MlgitopsError: As `pushing.push`.
        """
        image = EmbeddedBuilder(self._registry).build(request)
        if request.push:
            from mlgitops.adapters.builder.pushing import push
            from mlgitops.adapters.builder.registry import Registry

            layout = Layout(self._registry.joinpath(*parse_repository(request.repository)))
            registry = Registry(request.repository, find_credentials(self._login))
            push(layout, image, request.tag, registry, self._observer.note)
        return image
