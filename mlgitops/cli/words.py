"""Text of other people made safe: for a terminal, and for a log that is read by machines."""

import re


def one_line(value: object) -> str:
    """Return text in one line without control characters: escape sequences, line breaks, changes of direction.

    Names and subjects come from other people's repositories, and a terminal obeys what it is sent.
    """
    text = str(value)
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)


def several_lines(text: str) -> str:
    """Return text with its line breaks and without other control characters; tabs become spaces."""
    return "\n".join(one_line(line.expandtabs(8)) for line in re.split(r"\r\n|\n|\r", text))


def examples(*commands: str) -> str:
    """Return the end of a help page: commands as they are typed, none of them wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)
