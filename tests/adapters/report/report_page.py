"""Reads a page as a browser does, for tests."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree as ET


class Page(HTMLParser):
    """Elements with their attributes, and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self._silent = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._silent = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._silent = self._silent and tag != "style"

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)

    @property
    def text(self) -> str:
        """Everything shown, with runs of blanks as one."""
        return " ".join("".join(self.parts).split())

    def values(self, name: str) -> list[str]:
        """Return every value of an attribute."""
        return [found for _, attributes in self.elements if (found := attributes.get(name)) is not None]


def drawings(page: str) -> Iterator[ET.Element]:
    """Yield every SVG of a page, parsed as XML."""
    for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        yield ET.fromstring(found)
