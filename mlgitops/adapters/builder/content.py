"""What an image of the embedded builder holds, extracted for a job: every byte checked on the way."""

import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mlgitops.adapters.builder.context import CONTEXT_BYTES, CONTEXT_FILES
from mlgitops.adapters.builder.embedded import REQUIREMENTS_LABEL
from mlgitops.adapters.builder.layout import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, Layout, parse_repository
from mlgitops.adapters.builder.requirements import check_lock, installed_versions
from mlgitops.adapters.files import directory_files
from mlgitops.core.errors import InvalidInput, MlgitopsError, NotFound, Unavailable
from mlgitops.core.names import Digest, ImageReference

LAYER_COUNT: Final = 127
"""Most layers of one image; what container engines allow."""


@dataclass(frozen=True, kw_only=True)
class ImageContent:
    """An image as a job sees it."""

    root: Path
    """Extracted content; shared by all jobs of the image, to be copied, never written."""
    working_directory: str
    """Absolute path in the image."""
    entrypoint: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One file of a layer."""

    layer: Path
    offset: int
    """Where its bytes start in the layer, which is not compressed."""
    size_bytes: int
    executable: bool


def image_content(registry: Path, reference: ImageReference, cache: Path) -> ImageContent:
    """Return the content of an image, extracted below `cache` once and compared with the image every time.

    Args:
        registry: Folder of an `EmbeddedBuilder`.
        reference: The image, by digest.
        cache: Folder for extracted images; made when needed. Several processes may share it.

    Raises:
        NotFound: There is no such image.
        DigestMismatch: Its manifest, configuration or a layer are not what their digests say.
        InvalidInput: It is no image this engine runs (links, devices, paths that leave it, too large, another media
            type), or its lock is not what this interpreter has installed.
        Unavailable: The cache cannot be written.
    """
    layout = Layout(registry.joinpath(*parse_repository(reference.repository)))
    manifest = _manifest(layout, reference)
    config = _config(layout, manifest)
    files = _members(layout, manifest, config)
    root = cache / reference.digest.hex
    try:
        if not _intact(root, files):
            _extract(files, root)
    except OSError as error:
        raise Unavailable(f"image cache {cache}", error.strerror or type(error).__name__) from error
    settings = config["config"]
    _check_requirements(settings, root)
    return ImageContent(
        root=root,
        working_directory=str(settings.get("WorkingDir") or "/"),
        entrypoint=tuple(settings.get("Entrypoint") or ()),
        environment=dict(pair.split("=", 1) for pair in settings.get("Env") or () if "=" in pair),
    )


def _manifest(layout: Layout, reference: ImageReference) -> dict[str, Any]:
    try:
        return layout.document(reference.digest)
    except NotFound as error:  # a Docker Engine's, or another machine's
        raise NotFound("image of this machine's embedded builder", str(reference)) from error


def _config(layout: Layout, manifest: Mapping[str, Any]) -> dict[str, Any]:
    if manifest.get("mediaType", MANIFEST_TYPE) != MANIFEST_TYPE:
        raise InvalidInput(f"not an image manifest but {manifest.get('mediaType')!r:.100}")
    digest, _ = _descriptor(manifest.get("config"), CONFIG_TYPE)
    config = layout.document(digest)
    settings = config.get("config")
    lists = [settings.get(key) or [] for key in ("Entrypoint", "Env")] if isinstance(settings, dict) else [None]
    if not isinstance(settings, dict) or not all(
        _is_words(one) for one in (*lists, [settings.get("WorkingDir") or "/"])
    ):
        raise InvalidInput(f"image configuration {digest.short} is malformed")
    working_directory = PurePosixPath(settings.get("WorkingDir") or "/")
    if not working_directory.is_absolute() or ".." in working_directory.parts:
        raise InvalidInput(f"image configuration {digest.short} has a working directory that leaves the image")
    return config


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and "\0" not in word for word in value)


def _descriptor(value: Any, media_type: str) -> tuple[Digest, int]:
    """Return digest and size of a descriptor of the one media type that will do."""
    if not isinstance(value, dict) or value.get("mediaType") != media_type or not isinstance(value.get("size"), int):
        found = value.get("mediaType") if isinstance(value, dict) else value
        raise InvalidInput(f"an image of the embedded engine needs {media_type}, found {found!r:.100}")
    return Digest(str(value.get("digest"))), value["size"]


def _members(layout: Layout, manifest: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, _Member]:
    """Return the files of all layers by path in the image, later layers over earlier ones."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > LAYER_COUNT:
        raise InvalidInput("an image needs a list of at most 127 layers")
    blobs = [layout.blob(*_descriptor(layer, LAYER_TYPE)) for layer in layers]
    rootfs = config.get("rootfs")
    if not isinstance(rootfs, dict) or rootfs.get("diff_ids") != [layer["digest"] for layer in layers]:
        raise InvalidInput("an image's configuration must list the layers of its manifest")
    files: dict[str, _Member] = {}
    size_bytes = 0
    for blob in blobs:
        for name, member in _layer_members(blob):
            size_bytes += member.size_bytes
            files[name] = member
            if size_bytes > CONTEXT_BYTES or len(files) > CONTEXT_FILES:
                raise InvalidInput(f"image is larger than {CONTEXT_BYTES} bytes or {CONTEXT_FILES} files")
    return files


def _layer_members(blob: Path) -> Sequence[tuple[str, _Member]]:
    found: list[tuple[str, _Member]] = []
    try:
        with tarfile.open(blob, "r:") as archive:
            for member in archive:
                name = _safe_name(member.name)
                if member.isreg() and not member.issparse():
                    place = _Member(
                        layer=blob,
                        offset=member.offset_data,
                        size_bytes=member.size,
                        executable=bool(member.mode & 0o100),
                    )
                    found.append((name, place))
                elif not member.isdir():
                    raise InvalidInput(f"image holds {name!r:.100}, which is neither a plain file nor a folder")
                if len(found) > CONTEXT_FILES:
                    break
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise InvalidInput(f"layer {blob.name[:12]} is no readable tar archive") from error
    return found


def _safe_name(name: str) -> str:
    path = PurePosixPath(name)
    plain = name.isprintable() and "\\" not in name and not path.is_absolute() and ".." not in path.parts
    if not plain or path.name.startswith(".wh."):
        raise InvalidInput(f"image holds the path {name!r:.100}, which this engine refuses")
    return str(path)


def _content(member: _Member) -> bytes:
    with member.layer.open("rb") as stream:
        stream.seek(member.offset)
        return stream.read(member.size_bytes)


def _intact(root: Path, files: Mapping[str, _Member]) -> bool:
    """Say whether what was extracted before is still the image: a job may have got at it."""
    if root.is_symlink() or not root.is_dir():
        return False
    try:
        found = directory_files(root)
    except MlgitopsError:
        return False
    return found == {name: Digest.of(_content(member)) for name, member in files.items()}


def _extract(files: Mapping[str, _Member], root: Path) -> None:
    """Write all files to a folder of our own and exchange it for what stands at `root`."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=root.parent, ignore_cleanup_errors=True) as scratch:
        fresh, old = Path(scratch, "fresh"), Path(scratch, "old")
        fresh.mkdir()
        for name, member in files.items():
            target = fresh / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_content(member))
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise InvalidInput(f"image holds {name!r:.100} both as a file and as a folder") from error
            target.chmod(0o555 if member.executable else 0o444)
        with suppress(FileNotFoundError):
            root.rename(old)
        with suppress(FileExistsError):
            _rename_unless_there(fresh, root)
        shutil.rmtree(old, ignore_errors=True)


def _rename_unless_there(fresh: Path, root: Path) -> None:
    try:
        fresh.rename(root)
    except OSError:
        if not root.is_dir():  # else another process extracted the same image in between
            raise


def _check_requirements(settings: Mapping[str, Any], root: Path) -> None:
    labels = settings.get("Labels")
    name = labels.get(REQUIREMENTS_LABEL) if isinstance(labels, dict) else None
    if not isinstance(name, str):
        return
    file = root / str(settings.get("WorkingDir") or "/").lstrip("/") / _safe_name(name)
    if not file.is_file():
        raise InvalidInput(f"image lacks its lock {name!r:.100}")
    check_lock(file.read_bytes(), name, installed_versions())
