"""Bytes that somebody means harm with: what strict readers are fed, and what may come of it."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import strategies as st

from mlgitops.core.errors import MlgitopsError

BUDGET_SECONDS: Final = 3.0
"""Most time for one input; readers need milliseconds, two busy cores need some more."""
PLAIN: Final = (dict, list, tuple, str, bytes, int, float, bool, type(None))
_FRAGMENTS: Final = (
    *(b"[", b"]", b"{", b"}", b":", b": ", b"- ", b"\n", b"\n  ", b"\t", b"\r", b"---\n", b"...\n", b"%YAML 1.2\n"),
    *(
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"!!python/object/apply:os.system [id]",
        b"!!timestamp x",
        b"!!int ''",
        b"!!float ''",
    ),
    *(b"!!binary x", b"!!set {a}", b"!!omap [a]", b"!<tag:yaml.org,2002:bool> x", b"!!null x", b"!!merge x", b"? "),
    *(
        b".nan",
        b"-.inf",
        b"1e999",
        b"0x",
        b"1_000",
        b"190:20:30",
        b"NO",
        b"~",
        b"null",
        b"9" * 5000,
        b"NaN",
        b"Infinity",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\x00",
        b"\x1b[2J",
        b"\xc2\x85",
        b"\xe2\x80\xae",
        b"\xe2\x80\xa8",
        b"\xed\xa0\x80",
    ),
    *(b"../../etc/passwd", b"/etc/passwd", b"-rf", b"--upload-pack=id", b"$(id)", b"`id`", b"${{ github.token }}"),
    *(b'"', b"'", b"|\n", b">-\n", b"#", b"\\u0000", b"\\ud800", b"\xd0\xbe", b"a" * 300, b"[" * 200, b"{a: " * 200),
    *(b"2026-13-45", b"sha256:" + b"0" * 64, b"0" * 40, b"true", b"-1", b"0", b"99999999999999999999"),
)


def hostile(examples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return any bytes: noise, fragments of syntax, and good examples that were damaged in a few places."""
    fragment = st.one_of(st.sampled_from(_FRAGMENTS), st.binary(max_size=8))
    soup = st.lists(fragment, max_size=40).map(b"".join)
    cuts = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), fragment), min_size=1, max_size=5)
    damaged = st.builds(_damaged, st.sampled_from(list(examples)), cuts)
    return st.one_of(damaged, soup, st.binary(max_size=200))


def _damaged(data: bytes, cuts: Sequence[tuple[float, int, bytes]]) -> bytes:
    for place, length, fragment in cuts:
        at = int(place * len(data))
        data = data[:at] + fragment + data[at + length :]
    return data


def survives(read: Callable[[bytes], object], data: bytes) -> object:
    """Return what `read` makes of `data`, None where it refuses; anything but a value or a refusal fails the test."""
    started = time.perf_counter()
    try:
        found = read(data)
    except MlgitopsError:
        found = None
    spent = time.perf_counter() - started
    assert spent < BUDGET_SECONDS, f"{spent:.1f} s for {len(data)} bytes"
    return found


def only_plain(value: object) -> bool:
    """Say whether a value is made of plain data alone: nothing in it was constructed by what was read."""
    if isinstance(value, dict):
        return type(value) is dict and all(only_plain(key) and only_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(only_plain(one) for one in value)
    return type(value) in PLAIN
