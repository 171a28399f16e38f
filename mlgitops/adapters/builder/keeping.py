"""Images of the embedded builder, as something that is kept for a while; implements `ports.keeper.Keeper`."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mlgitops.adapters.builder.layout import Layout, parse_repository
from mlgitops.adapters.leaving import remove, size_bytes, sweep
from mlgitops.core.names import ImageReference
from mlgitops.ports.keeper import Kept

EXTRACTED: Final = "extracted"
FAR: Final = datetime.max.replace(tzinfo=UTC)
"""A copy goes with its image, whenever it was made."""


class ImageKeeper:
    """The images of a registry of layouts, each with what was extracted of it."""

    kind = "image"

    def __init__(self, registry: Path, extracted: Path) -> None:
        """Look after the layouts below `registry`, and the cache of `image_content`."""
        self._registry, self._extracted = registry, extracted
        self._leaving = extracted / ".leaving"

    def kept(self) -> Sequence[Kept]:
        """Return every image, by reference."""
        return tuple(self._images())

    def _images(self) -> Iterator[Kept]:
        for repository, layout in self._layouts():
            for digest in layout.manifests():
                copied = size_bytes(self._extracted / digest.hex)
                parts = {**layout.parts(digest), **({f"{EXTRACTED}/{digest.hex}": copied} if copied else {})}
                yield Kept(name=f"{repository}@{digest}", place=f"{self._registry / repository}@{digest}", parts=parts)

    def _layouts(self) -> Iterator[tuple[str, Layout]]:
        for mark in sorted(self._registry.rglob("oci-layout")):
            yield mark.parent.relative_to(self._registry).as_posix(), Layout(mark.parent)

    def delete(self, name: str, *, unless_used_since: datetime) -> int:
        """Delete an image, the blobs that no other image has, and what was extracted of it.

        Raises:
            Unavailable: The disk cannot be written, or another process has held the index for a minute.
        """
        reference = ImageReference.parse(name)
        layout = Layout(self._registry.joinpath(*parse_repository(reference.repository)))
        freed = layout.remove(reference.digest, unless_used_since=unless_used_since)
        if reference.digest in layout.manifests():
            return freed
        return freed + remove(self._extracted / reference.digest.hex, self._leaving, unless_used_since=FAR)

    def sweep(self, *, unless_used_since: datetime) -> None:
        """Delete blobs that no image has, and what was extracted of images that are gone."""
        known = set()
        for _, layout in self._layouts():
            layout.sweep(unless_used_since=unless_used_since)
            known |= {one.hex for one in layout.manifests()}
        for copy in self._extracted.glob("[0-9a-f]*"):
            if copy.name not in known:
                remove(copy, self._leaving, unless_used_since=unless_used_since)
        sweep(self._leaving)
