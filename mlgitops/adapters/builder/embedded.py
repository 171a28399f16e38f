"""Builds training images without a daemon: a deterministic OCI image layout per image repository.

An image has two layers, the locked requirements and the source, both below `/app`. It holds no interpreter and no
packages: those are the virtual environment's that runs mlgitops, checked against the lock. Layers are uncompressed tar
with fixed owners, times and modes, because compressed bytes differ between versions of the compressor.
"""

import platform
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mlgitops.adapters.builder.layout import (
    CONFIG_TYPE,
    LAYER_TYPE,
    MANIFEST_TYPE,
    TAG_ANNOTATION,
    Layout,
    parse_repository,
)
from mlgitops.adapters.builder.requirements import check_lock, installed_versions
from mlgitops.adapters.files import check_name, open_regular, resolve_below, walk_files
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.names import Digest, ImageReference
from mlgitops.ports.builder import BuildRequest

WORKING_DIRECTORY: Final = "/app"
REQUIREMENTS_LABEL: Final = "dev.mlgitops.requirements"
"""Label of the image that names its lock, relative to the working directory."""
CONTEXT_BYTES: Final = 256 << 20
CONTEXT_FILES: Final = 20_000
_ENVIRONMENT: Final = ("PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class _Source:
    """One file that enters the image."""

    name: str
    """Path in the image, relative to the working directory."""
    path: Path
    """Regular file that holds its bytes."""
    size_bytes: int
    executable: bool


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
        _check_words(request)
        sources = self._collect(request)
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

    def _collect(self, request: BuildRequest) -> dict[str, _Source]:
        """Find everything that enters the image, by its path in it."""
        try:
            base = request.source.resolve(strict=True)
        except OSError as error:
            raise NotFound("source directory", str(request.source)) from error
        problems: list[Problem] = []
        found: dict[str, Path] = {}
        for name in (*request.files, request.requirements):
            try:
                found.update(_expand(base, name))
            except InvalidInput as error:
                problems.extend(error.problems)
        declared = {path.resolve() for name, path in found.items() if not (base / name).is_symlink()}
        sources = {name: _source(name, path) for name, path in found.items()}
        problems.extend(_undeclared(base, sources.values(), declared))
        size_bytes = sum(one.size_bytes for one in sources.values())
        if size_bytes > self._context_bytes or len(sources) > self._context_files:
            problems.append(
                Problem(
                    message=f"the training inputs are {len(sources)} files of {size_bytes} bytes together; at most "
                    f"{self._context_files} files of {self._context_bytes} bytes can be an image",
                    mend="name data under `data:` in mlgitops.yaml, which keeps it out of the image",
                )
            )
        if problems:
            raise InvalidInput(problems)
        return sources


def _expand(base: Path, name: str) -> Iterable[tuple[str, Path]]:
    """Return the files that one entry of the request stands for."""
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts or str(parts) != name or "\\" in name:
        mend = "write a relative path with '/', without '.' or '..'"
        raise InvalidInput([Problem(message="is no path inside the repository", path=name, mend=mend)])
    check_name(name, base)
    if not (base / name).exists() and not (base / name).is_symlink():
        mend = "commit the file, or leave it out of `inputs`"
        raise InvalidInput([Problem(message="does not exist in this revision", path=name, mend=mend)])
    resolved = resolve_below(base, base / name)
    if resolved.is_file():
        return [(name, resolved)]
    return [(f"{name}/{relative}", path) for relative, path in walk_files(resolved)]


def _source(name: str, path: Path) -> _Source:
    status = path.stat()
    return _Source(name=name, path=path, size_bytes=status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))


def _undeclared(base: Path, sources: Iterable[_Source], declared: set[Path]) -> Iterable[Problem]:
    """Name links to files that are not themselves inputs: their bytes would change an image behind a release's back."""
    for one in sources:
        if one.path not in declared:
            message = f"is a link to {one.path.relative_to(base)}, which is not among the training inputs"
            mend = "add that file to `inputs` in mlgitops.yaml"
            yield Problem(message=message, path=one.name, mend=mend)


def _check_words(request: BuildRequest) -> None:
    if not request.entrypoint or not all(word and "\0" not in word for word in request.entrypoint):
        raise InvalidInput("the image needs a command of non-empty words")
    for name, value in request.annotations.items():
        if name == TAG_ANNOTATION or not name.isprintable() or not isinstance(value, str):
            raise InvalidInput(f"annotation {name!r:.100} cannot be set on an image")


def _write_layer(layout: Layout, sources: Sequence[_Source]) -> dict[str, Any]:
    """Write files below the working directory as one uncompressed layer; returns its descriptor."""
    with layout.scratch() as scratch:
        with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as archive:
            for folder in _folders(sources):
                archive.addfile(_entry(folder, tarfile.DIRTYPE, 0o755, 0))
            for one in sources:
                with open_regular(one.path) as stream:
                    mode = 0o755 if one.executable else 0o644
                    archive.addfile(_entry(_in_image(one.name), tarfile.REGTYPE, mode, one.size_bytes), stream)
        return layout.adopt(scratch, LAYER_TYPE)


def _in_image(name: str) -> str:
    return f"{WORKING_DIRECTORY.lstrip('/')}/{name}"


def _folders(sources: Iterable[_Source]) -> list[str]:
    parents = {str(parent) for one in sources for parent in PurePosixPath(_in_image(one.name)).parents}
    return sorted(parents - {"."} | {WORKING_DIRECTORY.lstrip("/")})


def _entry(name: str, kind: bytes, mode: int, size_bytes: int) -> tarfile.TarInfo:
    """Describe one entry with nothing in it that differs between machines; TarInfo's owner and time are 0."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, size_bytes
    return entry


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
