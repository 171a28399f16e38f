"""An OCI image layout on disk: blobs by digest, and an index of tags that several processes may write.

Source: OCI Image Format Specification 1.1, image-layout.md, image-index.md and manifest.md.
"""

import errno
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from mlgitops.adapters.files import file_digest
from mlgitops.core.configuration import canonical
from mlgitops.core.errors import DigestMismatch, InvalidInput, MlgitopsError, NotFound, Unavailable
from mlgitops.core.names import Digest

INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
TAG_ANNOTATION: Final = "org.opencontainers.image.ref.name"
DOCUMENT_BYTES: Final = 4 << 20
"""Largest manifest, config or index that is read; the specification asks registries for at least this much."""
REPOSITORY_LENGTH: Final = 255
LOCK_SECONDS: Final = 60.0
_COMPONENT: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
_FIRST: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(:[0-9]{1,5})?")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_OWN: Final = {"blobs", "index.json", "oci-layout"}
"""Names inside a layout: a repository named so would lie in the middle of another one's."""


def parse_repository(text: str) -> tuple[str, ...]:
    """Split an image repository's name into its folders; `InvalidInput` for a malformed one."""
    first, *others = text.split("/")
    good = _FIRST.fullmatch(first) and all(_COMPONENT.fullmatch(part) for part in others)
    if not good or len(text) > REPOSITORY_LENGTH or _OWN & {first, *others}:
        raise InvalidInput(
            f"image repository {text!r:.160} must be lower-case words with a '/' between, like registry.example/digits"
        )
    return (first, *others)


def check_tag(tag: str) -> None:
    """Refuse a tag that no registry accepts; raises `InvalidInput`."""
    if not _TAG.fullmatch(tag):
        raise InvalidInput(f"image tag {tag!r:.140} must be at most 128 letters, digits, '_', '.' and '-'")


class Layout:
    """The layout of one image repository."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, made when something is first written."""
        self._folder = folder
        self._blobs = folder / "blobs" / "sha256"

    def write_document(self, value: Mapping[str, Any], media_type: str) -> dict[str, Any]:
        """Write a JSON document as a blob, the same bytes for the same value; returns its descriptor."""
        data = canonical(value)
        digest = Digest.of(data)
        with self._storing():
            if not self._holds(digest):
                self._blobs.mkdir(parents=True, exist_ok=True)
                _replace(self._blobs / digest.hex, data)
        return {"mediaType": media_type, "digest": str(digest), "size": len(data)}

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Lend a file beside the blobs to write one into; it is gone afterwards."""
        with self._storing():
            self._blobs.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=self._folder)
            os.close(descriptor)
            try:
                yield Path(name)
            finally:
                Path(name).unlink(missing_ok=True)

    def adopt(self, file: Path, media_type: str) -> dict[str, Any]:
        """Move a finished scratch file to its place among the blobs; returns its descriptor."""
        with self._storing():
            digest, size = file_digest(file), file.stat().st_size
            if not self._holds(digest):
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
                file.chmod(0o444)
                file.replace(self._blobs / digest.hex)
        return {"mediaType": media_type, "digest": str(digest), "size": size}

    def tag(self, manifest: Mapping[str, Any], tag: str) -> None:
        """List a manifest under `tag`, which moves there; what carried it before stays, without it.

        Raises:
            InvalidInput: The tag is malformed.
            Unavailable: The disk is full, or another process has held the index for a minute.
        """
        check_tag(tag)
        with self._storing(), FileLock(self._folder / ".lock", timeout=LOCK_SECONDS):
            _replace(self._folder / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            entries = [
                entry for entry in self._index() if entry.get("digest") != manifest["digest"] or _tag(entry) != tag
            ]
            kept = [_untagged(entry) if _tag(entry) == tag else entry for entry in entries]
            tagged = {**manifest, "annotations": {TAG_ANNOTATION: tag}}
            others = [entry for entry in kept if _tag(entry) or entry["digest"] != manifest["digest"]]
            index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [*others, tagged]}
            _replace(self._folder / "index.json", json.dumps(index, indent=2).encode() + b"\n")

    def document(self, digest: Digest) -> dict[str, Any]:
        """Read a JSON blob and check it; `NotFound`, `DigestMismatch`, or `InvalidInput` when it is no object."""
        return _json_object(self.manifest(digest), str(digest))

    def manifest(self, digest: Digest) -> bytes:
        """Read a JSON blob as it is, byte by byte, and check it; raises as `document` does."""
        path = self._existing(digest)
        if path.stat().st_size > DOCUMENT_BYTES:
            raise InvalidInput(f"blob {digest} is too large for a manifest")
        data = path.read_bytes()
        if (found := Digest.of(data)) != digest:
            raise DigestMismatch(f"blob {digest.short}", str(digest), str(found))
        return data

    def blob(self, digest: Digest, size_bytes: int) -> Path:
        """Return the file of a blob after checking its digest and size."""
        path = self._existing(digest)
        found = file_digest(path)
        if found != digest or path.stat().st_size != size_bytes:
            raise DigestMismatch(f"blob {digest.short}", f"{digest} of {size_bytes} bytes", f"{found}")
        return path

    def manifests(self) -> tuple[Digest, ...]:
        """Return the manifests of the index, each once; empty for a layout that holds nothing."""
        with self._storing():
            return tuple(dict.fromkeys(Digest(str(entry["digest"])) for entry in self._index()))

    def parts(self, manifest: Digest) -> dict[str, int]:
        """Return the blobs of an image, its manifest included: size in bytes by digest; without those that are gone."""
        digests = [manifest]
        with suppress(MlgitopsError):
            document = self.document(manifest)
            digests += [Digest(str(one["digest"])) for one in (document["config"], *document["layers"])]
        files = {str(one): self._blobs / one.hex for one in digests}
        return {name: file.lstat().st_size for name, file in files.items() if file.exists()}

    def remove(self, manifest: Digest, *, unless_used_since: datetime) -> int:
        """Take an image out of the index, and delete the blobs that no other image has; returns bytes freed.

        An image or a blob that a build wrote or found since `unless_used_since` stays.

        Raises:
            Unavailable: The disk cannot be written, or another process has held the index for a minute.
        """
        moment = unless_used_since.timestamp()
        with self._storing(), FileLock(self._folder / ".lock", timeout=LOCK_SECONDS):
            blob = self._blobs / manifest.hex
            if blob.exists() and blob.lstat().st_mtime >= moment:
                return 0
            entries = [entry for entry in self._index() if entry["digest"] != str(manifest)]
            index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
            _replace(self._folder / "index.json", json.dumps(index, indent=2).encode() + b"\n")
            return self._sweep(moment)

    def sweep(self, *, unless_used_since: datetime) -> int:
        """Delete the blobs that no image has: an interrupted build or deletion left them; returns bytes freed."""
        with self._storing(), FileLock(self._folder / ".lock", timeout=LOCK_SECONDS):
            return self._sweep(unless_used_since.timestamp())

    def _sweep(self, moment: float) -> int:
        needed = {name for entry in self._index() for name in self.parts(Digest(str(entry["digest"])))}
        loose = [file for file in self._blobs.iterdir() if f"sha256:{file.name}" not in needed]
        return sum(_delete(file, moment) for file in [*loose, *self._folder.glob(".new-*")])

    def _existing(self, digest: Digest) -> Path:
        path = self._blobs / digest.hex
        if path.is_symlink() or not path.is_file():
            raise NotFound("blob", str(digest))
        return path

    def _holds(self, digest: Digest) -> bool:
        path = self._blobs / digest.hex
        if not path.is_file() or path.is_symlink():
            return False
        with suppress(FileNotFoundError):  # `remove` took it: it is written anew
            os.utime(path)  # used now, so `remove` leaves it
            return file_digest(path) == digest
        return False

    def _index(self) -> list[dict[str, Any]]:
        try:
            data = (self._folder / "index.json").read_bytes()
        except FileNotFoundError:
            return []
        manifests = _json_object(data, "index.json").get("manifests", [])
        if not isinstance(manifests, list) or not all(
            isinstance(entry, dict) and "digest" in entry for entry in manifests
        ):
            raise InvalidInput(f"{self._folder / 'index.json'} is no OCI image index")
        return manifests

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except Timeout as error:
            raise Unavailable(f"registry {self._folder}", "another process holds its lock") from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "no space left" if full else (error.strerror or type(error).__name__)
            raise Unavailable(f"registry {self._folder}", reason) from error


def _delete(file: Path, moment: float) -> int:
    """Delete a blob unless it was used since; returns bytes freed."""
    gone = file.with_name(f".gone-{file.name.removeprefix('.gone-')}")
    try:
        if file.lstat().st_mtime >= moment:
            return 0
        file.rename(gone)
        if gone.lstat().st_mtime >= moment:  # a build found it in between
            gone.rename(file)
            return 0
        size = gone.lstat().st_size
        gone.unlink()
    except FileNotFoundError:
        return 0
    return size


def _tag(entry: Mapping[str, Any]) -> str | None:
    annotations = entry.get("annotations")
    tag = annotations.get(TAG_ANNOTATION) if isinstance(annotations, dict) else None
    return tag if isinstance(tag, str) else None


def _untagged(entry: Mapping[str, Any]) -> dict[str, Any]:
    annotations = {name: value for name, value in entry["annotations"].items() if name != TAG_ANNOTATION}
    bare = {name: value for name, value in entry.items() if name != "annotations"}
    return {**bare, "annotations": annotations} if annotations else bare


def _json_object(data: bytes, shown: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{shown} is not JSON") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{shown} is no JSON object")
    return value


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            os.fchmod(stream.fileno(), 0o444)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
