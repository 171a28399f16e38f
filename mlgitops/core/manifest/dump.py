"""Writing a new YAML file for review: block style, a fixed order, strings that every reader reads as strings."""

from typing import Any

import yaml

from mlgitops.core.manifest.scalars import is_safe_plain


class Quoted(str):
    """A string written in double quotes, because its next value may need them: lines of a diff then look alike."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Indents sequences below their key and never writes an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = not isinstance(text, Quoted) and is_safe_plain(text, flow=True)
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=None if plain else '"')


_Dumper.add_representer(str, _string)
_Dumper.add_representer(Quoted, _string)


def dump(value: Any, *, header: str = "") -> bytes:
    """Return a new YAML file.

    Args:
        value: Plain values; mappings keep their order.
        header: Comment above it, without `#`; lines are kept.

    Returns:
        UTF-8 with a final newline; the same value gives the same bytes.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)
    return (comment + body).encode()
