"""Builds training images without a daemon: a deterministic OCI image layout per image repository.

An image has two layers, the locked requirements and the source, both below `/app`. It holds no interpreter and no
packages: those are the virtual environment's that runs mlgitops, checked against the lock. Layers are uncompressed tar
with fixed owners, times and modes, because compressed bytes differ between versions of the compressor.
"""

import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mlgitops.adapters.builder.context import CONTEXT_BYTES, CONTEXT_FILES, Source, check_words, collect, entry
from mlgitops.adapters.builder.layout import (
    CONFIG_TYPE,
    LAYER_TYPE,
    MANIFEST_TYPE,
    Layout,
    parse_repository,
)
from mlgitops.adapters.builder.requirements import check_lock, installed_versions
from mlgitops.adapters.files import open_regular
from mlgitops.core.names import Digest, ImageReference
from mlgitops.ports.builder import BuildRequest

WORKING_DIRECTORY: Final = "/app"
REQUIREMENTS_LABEL: Final = "dev.mlgitops.requirements"
"""Label of the image that names its lock, relative to the working directory."""
_ENVIRONMENT: Final = ("PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class EmbeddedBuilder:
    """Implements `ports.builder.Builder` on a folder of OCI image layouts; safe for several processes at once."""

    def __init__(
        self, registry: Path, *, context_bytes: int = CONTEXT_BYTES, context_files: int = CONTEXT_FILES
    ) -> None:
        """Write images to `<registry>/<image repository>/`.

        Args:
            registry: Folder of all layouts; made when needed.
            context_bytes: Largest source, over all files of one image.
            context_files: Most files in one image.
        """
        self._registry = registry
        self._context_bytes = context_bytes
        self._context_files = context_files

    def build(self, request: BuildRequest) -> ImageReference:
        """Build an image and list it under its tag; the same source gives the same digest.

        A folder among `request.files` stands for everything below it. A link is stored as the file it leads to, which
        must itself be among the files, so that nothing undeclared enters.

        Raises:
            InvalidInput: Files that are absent, special, badly named or linked from elsewhere; a source that is too
                large; a lock that does not lock, or is not what this interpreter has; all of them at once.
            Unavailable: The registry's disk is full or cannot be written.
        """
        folder = self._registry.joinpath(*parse_repository(request.repository))
        check_words(request)
        names = (*request.files, request.requirements)
        sources = collect(request.source, names, size_limit=self._context_bytes, count_limit=self._context_files)
        lock = sources[request.requirements]
        with open_regular(lock.path) as stream:
            check_lock(stream.read(self._context_bytes), request.requirements, installed_versions())
        layout = Layout(folder)
        layers = [
            _write_layer(layout, [lock]),
            _write_layer(layout, [one for name, one in sorted(sources.items()) if name != request.requirements]),
        ]
        config = layout.write_document(_config(request, layers), CONFIG_TYPE)
        manifest = layout.write_document(_manifest(request, config, layers), MANIFEST_TYPE)
        layout.tag(manifest, request.tag)
        return ImageReference(request.repository, Digest(manifest["digest"]))


def _write_layer(layout: Layout, sources: Sequence[Source]) -> dict[str, Any]:
    """Write files below the working directory as one uncompressed layer; returns its descriptor."""
    with layout.scratch() as scratch:
        with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as archive:
            for folder in _folders(sources):
                archive.addfile(entry(folder, tarfile.DIRTYPE, 0o755, 0))
            for one in sources:
                with open_regular(one.path) as stream:
                    mode = 0o755 if one.executable else 0o644
                    archive.addfile(entry(_in_image(one.name), tarfile.REGTYPE, mode, one.size_bytes), stream)
        return layout.adopt(scratch, LAYER_TYPE)


def _in_image(name: str) -> str:
    return f"{WORKING_DIRECTORY.lstrip('/')}/{name}"


def _folders(sources: Iterable[Source]) -> list[str]:
    parents = {str(parent) for one in sources for parent in PurePosixPath(_in_image(one.name)).parents}
    return sorted(parents - {"."} | {WORKING_DIRECTORY.lstrip("/")})


def _config(request: BuildRequest, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the image's configuration; without `created`, which would differ from build to build."""
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(request.entrypoint),
            "Env": list(_ENVIRONMENT),
            "Labels": {REQUIREMENTS_LABEL: request.requirements},
            "WorkingDir": WORKING_DIRECTORY,
        },
        # A layer is not compressed, so the digest of its content is its own.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }


def _manifest(request: BuildRequest, config: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": dict(config),
        "layers": [dict(layer) for layer in layers],
    }
    return {**manifest, "annotations": dict(request.annotations)} if request.annotations else manifest
