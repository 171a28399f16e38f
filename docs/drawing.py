"""State diagrams as SVG: places from words.py, arrows from the transition tables; legible on light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 120, 40
COLUMN, ROW = 250, 124
MARGIN: Final = 74
ROOM: Final = 50
"""For words to the right of the last column."""
FONT: Final = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
Point = tuple[float, float]
Moves = Mapping[tuple[Any, type], Any]


def drawing(title: str, moves: Moves, group: Sequence[Any], places: Mapping[str, Point]) -> str:
    """Return a diagram of a transition table.

    Args:
        title: For readers who do not see it.
        moves: The table.
        group: Phases that get a box; what all of them do alike is one arrow from the box.
        places: Column and row of each phase.

    Raises:
        KeyError: A phase has no place.
    """
    left, top = (min(place[axis] for place in places.values()) for axis in (0, 1))
    at = {name: (MARGIN + (x - left) * COLUMN, MARGIN + (y - top) * ROW) for name, (x, y) in places.items()}
    width = max(x for x, _ in at.values()) + MARGIN + ROOM
    height = max(y for _, y in at.values()) + MARGIN
    box = _box([at[str(one)] for one in group])
    parts = [_frame(box)]
    parts += [_arrow(one, to, words, at, box) for (one, to), words in _edges(moves, group).items()]
    parts += [_node(name, place, first=name == str(next(iter(moves))[0])) for name, place in at.items()]
    return _page(title, width, height, parts)


def _edges(moves: Moves, group: Sequence[Any]) -> dict[tuple[str, str], list[str]]:
    """Return the words of each arrow; an empty name stands for the box."""
    edges: dict[tuple[str, str], list[str]] = {}
    for (one, event), to in moves.items():
        alike = one in group and all(moves.get((other, event)) == to for other in group)
        words = edges.setdefault(("" if alike else str(one), str(to)), [])
        if event.__name__ not in words:
            words.append(event.__name__)
    return edges


def _box(places: Sequence[Point]) -> tuple[float, float, float, float]:
    columns, rows = [x for x, _ in places], [y for _, y in places]
    return (
        min(columns) - WIDTH / 2 - 10,
        min(rows) - HEIGHT / 2 - 16,
        max(columns) + WIDTH / 2 + 10,
        max(rows) + HEIGHT / 2 + 26,
    )


def _arrow(
    one: str, to: str, words: Sequence[str], at: Mapping[str, Point], box: tuple[float, float, float, float]
) -> str:
    end = at[to]
    if one == to:
        x, y = end[0], end[1] + HEIGHT / 2
        path = f"M{x - 16:g} {y:g}c-6 22 38 22 32 2"
        return _line(path) + _words(words, (x + 26, y + 15), "start")
    start = (end[0], box[3]) if not one else at[one]
    back = (end, start) if f"{to}>{one}" in _BOTH else None
    shift = 9 if back or f"{one}>{to}" in _BOTH else 0
    first = start if not one else _edge(start, end)
    last = _edge(end, start)
    run, rise = last[0] - first[0], last[1] - first[1]
    length = math.hypot(run, rise) or 1
    across = (-rise / length * shift, run / length * shift)
    (x1, y1), (x2, y2) = ((x - across[0], y - across[1]) for x, y in (first, last))
    share = 0.3 if not one and abs(rise) > ROW else 0.5 if abs(run) < 1 or abs(rise) < 1 else 0.62
    middle = (x1 + (x2 - x1) * share, y1 + (y2 - y1) * share)
    line = _line(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}")
    if abs(rise) < 1:
        below = shift and run < 0
        return line + _words(words, (middle[0], middle[1] + (15 if below else -6)), "middle")
    return line + _words(words, (middle[0] + 7, middle[1] + 4), "start")


_BOTH: Final = ("STEP>ANALYSING", "ANALYSING>STEP", "LIVE>RETIRED", "RETIRED>LIVE")
"""Arrows that lead to and fro between the same places."""


def _edge(inside: Point, outside: Point) -> Point:
    """Return where the line from a node's middle leaves its box."""
    run, rise = outside[0] - inside[0], outside[1] - inside[1]
    share = min(WIDTH / 2 / abs(run) if run else math.inf, HEIGHT / 2 / abs(rise) if rise else math.inf)
    return inside[0] + run * share, inside[1] + rise * share


def _line(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#7d8794" stroke-width="1.5" marker-end="url(#tip)"/>'


def _words(words: Sequence[str], place: Point, anchor: str) -> str:
    text = escape(", ".join(words))
    where = f'x="{place[0]:.1f}" y="{place[1]:.1f}" text-anchor="{anchor}"'
    return f'<text {where} font-size="12" fill="#7d8794">{text}</text>'


def _node(name: str, place: Point, *, first: bool) -> str:
    x, y = place[0] - WIDTH / 2, place[1] - HEIGHT / 2
    colours = 'fill="#e8f0fe" stroke="#5b86c5"' if first else 'fill="#f3f5f7" stroke="#8b96a3"'
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="8" stroke-width="1.5" {colours}/>'
        f'<text x="{place[0]:g}" y="{place[1] + 4:g}" text-anchor="middle" font-size="12.5" font-weight="600" '
        f'fill="#1c2430">{escape(name)}</text>'
    )


def _frame(box: tuple[float, float, float, float]) -> str:
    x, y, right, bottom = box
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{right - x:g}" height="{bottom - y:g}" rx="12" fill="none" '
        'stroke="#7377b8" stroke-width="1.5" stroke-dasharray="6 5"/>'
    )


def _page(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    words = f'role="img" aria-label="{escape(title)}" font-family="{FONT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {words}>'
    return "\n".join([head, _TIP, *parts, "</svg>\n"])


_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="#7d8794"/></marker></defs>'
)
