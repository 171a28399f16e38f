"""Images of the embedded builder, pushed to a registry: what is named afterwards is what the registry says it has."""

from collections.abc import Callable
from typing import Any, Final

from mlgitops.adapters.builder.layout import MANIFEST_TYPE, Layout
from mlgitops.adapters.builder.registry import Registry
from mlgitops.core.errors import Conflict, DigestMismatch
from mlgitops.core.names import Digest, ImageReference

MEGABYTE: Final = 1_000_000
Tell = Callable[[str], None]
"""Told in words what goes on."""


def push(layout: Layout, image: ImageReference, tag: str, registry: Registry, tell: Tell) -> None:
    """Push an image, its blobs first, so that nobody ever finds a manifest without them.

    What the registry has is not sent again, so the same push after a cut one sends only what is missing.

    Args:
        layout: Where the image is.
        image: The image, and what it is called in the registry.
        tag: Tag for people. It moves to this image; a different image that had it is told.
        registry: The image repository there.
        tell: Told what is sent.

    Raises:
        Denied: The registry refuses the login, or the image.
        NotFound: It knows no such image repository.
        Conflict: Somebody else moved the tag in the same moment.
        DigestMismatch: A blob, or what the registry has under the digest, is not what its digest says.
        Unavailable: The registry cannot be reached, or is full.
    """
    data = layout.manifest(image.digest)
    document = layout.document(image.digest)
    before = registry.digest(tag)
    for number, blob in enumerate(blobs := (*document["layers"], document["config"]), 1):
        _upload(layout, blob, registry, f"{image.repository}: blob {number} of {len(blobs)}", tell)
    registry.put_manifest(data, MANIFEST_TYPE, str(image.digest))
    confirm(registry, image)
    registry.put_manifest(data, MANIFEST_TYPE, tag)
    compare_tag(registry, image, tag, before, tell)


def _upload(layout: Layout, blob: dict[str, Any], registry: Registry, what: str, tell: Tell) -> None:
    digest, size_bytes = Digest(str(blob["digest"])), blob["size"]
    file = layout.blob(digest, size_bytes)
    if registry.has(digest):
        tell(f"{what} is there already")
        return
    tell(f"{what}: sending {size_bytes / MEGABYTE:.1f} MB")
    registry.upload(digest, file, size_bytes)


def confirm(registry: Registry, image: ImageReference) -> None:
    """Read an image back by digest; `DigestMismatch` where the registry has none, or another."""
    found = registry.digest(str(image.digest))
    if found != image.digest:
        raise DigestMismatch(f"{image.repository} in the registry", str(image.digest), str(found or "nothing"))


def compare_tag(registry: Registry, image: ImageReference, tag: str, before: Digest | None, tell: Tell) -> None:
    """Compare what a tag names now with the image, and tell what it named before; `Conflict` when others moved it."""
    found = registry.digest(tag)
    if found != image.digest:
        raise Conflict(f"tag {tag} of {image.repository}", str(image.digest), str(found), "somebody else pushed it")
    if before is not None and before != image.digest:
        tell(
            f"{image.repository}: tag {tag} named {before}, pushed by somebody else or built differently; "
            f"it names {image.digest} now. Manifests name digests, so nothing that runs changes"
        )
