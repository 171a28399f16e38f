"""Text from elsewhere, with nothing hidden in it."""

import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"
"""Parts of scripts and of emoji; they move nothing."""
_KEPT: Final = ("L", "M", "N", "P", "S", "Zs")
"""Categories of characters that are seen, or are spaces."""


def visible(text: str) -> str:
    """Return text in which every character that is not seen, or moves others, is written as its number."""
    if text.isprintable():
        return text
    return "".join(_visible(one) for one in text.replace("\r\n", "\n"))


def _visible(character: str) -> str:
    if character == "\n" or character in _JOINERS or unicodedata.category(character).startswith(_KEPT):
        return character
    return " " if character == "\t" else f"⟨U+{ord(character):04X}⟩"
