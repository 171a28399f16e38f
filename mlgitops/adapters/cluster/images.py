"""Images as the embedded cluster runs them: content that somebody else fetched, pulled as a kubelet pulls."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from mlgitops.core.errors import MlgitopsError

FIRST_PULL_SECONDS: Final = 2.0
LONGEST_PULL_SECONDS: Final = 60.0


class ImageContent(Protocol):
    """What is in an image, on this machine."""

    @property
    def root(self) -> Path:
        """Its files, extracted; read only, as nothing here changes them."""

    @property
    def working_directory(self) -> str:
        """Absolute, within `root`."""

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """Entrypoint and command of the image's configuration together."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the image's configuration."""


Resolve = Callable[[str], ImageContent]
"""Returns the content of `repository@sha256:…`; raises an MlgitopsError when there is none."""


@dataclass(frozen=True, kw_only=True)
class Pulling:
    """An image that is not there (yet)."""

    reason: str
    """`ContainerCreating`, `ErrImagePull` or `ImagePullBackOff`."""
    message: str = ""


class Puller:
    """Fetches images beside the engine's loop, and tries failed ones again, ever more rarely."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="image-pull")
        self._pulls: dict[str, Future[ImageContent]] = {}
        self._failures: dict[str, tuple[int, float, str]] = {}
        """Per image: failures so far, when it may be tried again (monotonic seconds), and what was wrong."""

    def get(self, image: str) -> ImageContent | Pulling:
        """Return an image's content, or how far its pull has come; never waits."""
        failures, again_at, message = self._failures.get(image, (0, 0.0, ""))
        pull = self._pulls.get(image)
        if pull is None:
            if monotonic() < again_at:
                return Pulling(reason="ImagePullBackOff", message=message)
            pull = self._pulls[image] = self._workers.submit(self._resolve, image)
        if not pull.done():
            return Pulling(reason="ImagePullBackOff" if failures else "ContainerCreating", message=message)
        del self._pulls[image]
        try:
            content = pull.result()
        except (MlgitopsError, OSError) as error:
            message = f"cannot pull {image}: {error}"
            pause = min(FIRST_PULL_SECONDS * 2**failures, LONGEST_PULL_SECONDS)
            self._failures[image] = (failures + 1, monotonic() + pause, message)
            return Pulling(reason="ErrImagePull", message=message)
        self._failures.pop(image, None)
        return content

    def close(self) -> None:
        """Stop pulling."""
        self._workers.shutdown(wait=False, cancel_futures=True)
