"""SVG by hand: escaped elements, linear scales, and ticks at round numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from mlgitops.adapters.report.characters import visible

WIDTH: Final = 640
"""Units of every drawing's width; the page scales it, and makes the letters larger where it is narrow."""
LARGEST: Final = 1e150
"""Numbers beyond are not drawn: their differences and squares must stay finite."""
SMALLEST: Final = 1e-300
"""Ranges below have no round numbers in them that floats can tell apart."""
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_DAY: Final = 86_400

Point = tuple[float, float]


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; `_` in an attribute's name stands for `-`, a trailing one for nothing (`class_`)."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>") + joined(children) + Markup(f"</{name}>")  # noqa: S704 - both parts are escaped


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else visible(str(value))


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one after the other; text among them is made visible and escaped."""
    return Markup("").join(one if isinstance(one, Markup) else visible(str(one)) for one in parts)


def number(value: float) -> str:
    """Return a coordinate with at most one digit behind the point."""
    return (
        f"{value:.1f}".removesuffix(".0").replace("-0", "0") if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")
    )


def figure(identifier: str, height: float, title: str, description: str, *children: object) -> Markup:
    """Return a drawing with its title and description, for those who do not see it."""
    return element(
        "svg",
        element("title", title, id=f"{identifier}-title"),
        element("desc", description, id=f"{identifier}-desc"),
        *children,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {number(height)}",
        role="img",
        aria_labelledby=f"{identifier}-title {identifier}-desc",
    )


def label(text: str, x: float, y: float, *, anchor: str = "start", kind: str = "label") -> Markup:
    """Return text at its baseline."""
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def line(start: Point, end: Point, kind: str) -> Markup:
    """Return a straight line."""
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=kind)


def polyline(points: Sequence[Point], kind: str) -> Markup:
    """Return a line through points; a dot where there is but one."""
    if len(points) == 1:
        return element("circle", cx=points[0][0], cy=points[0][1], r=4, class_=f"{kind} dot")
    return element("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=kind)


def bar(across: tuple[float, float], top: float, height: float, kind: str, title: str = "") -> Markup:
    """Return a bar that can be seen however short it is."""
    told = [element("title", title)] if title else []
    return element(
        "rect", *told, x=across[0], y=top, width=max(3.0, across[1] - across[0]), height=height, rx=2, class_=kind
    )


def drawable(value: object) -> bool:
    """Say whether a number can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


@dataclass(frozen=True)
class Scale:
    """A linear scale from values to units of the drawing; values outside are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value is drawn."""
        span = self.high - self.low
        share = (min(max(value, self.low), self.high) - self.low) / span if span > 0 else 0.5
        return self.start + share * (self.end - self.start)


def padded(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """Return a range with room around the values, also where they are all the same."""
    known = list(values)
    low, high = min(known), max(known)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between `low` and `high`, at most `most` of them."""
    if not low < high:
        return [low]
    raw = (high - low) / max(1, most)
    if raw < SMALLEST:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw), 10 * power)
    first = math.ceil(low / step)
    count = math.floor(high / step) - first + 1
    return [(first + index) * step for index in range(max(0, min(count, most + 1)))]


def round_seconds(span: float, most: int = 5) -> int:
    """Return a step of time that people count in, so that at most `most` of them fit into a span of seconds."""
    found = next((step for step in _SECONDS if span / step <= most), None)
    return found if found is not None else _DAY * math.ceil(span / _DAY / most)


def elapsed(seconds: float) -> str:
    """Return a tick of time since the start: `0`, `20 s`, `5 min`, `3 h`, `2 d`."""
    for unit, name in ((_DAY, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


def clock_ticks(start: datetime, end: datetime, most: int = 5) -> list[tuple[datetime, str]]:
    """Return round times between two moments with what to call them, UTC."""
    step = round_seconds((end - start).total_seconds(), most)
    shape = "%H:%M:%S" if step < 60 else "%H:%M" if step < _DAY else "%d %b"
    first = math.ceil(start.timestamp() / step)
    moments = (datetime.fromtimestamp(index * step, UTC) for index in range(first, first + most + 1))
    return [(one, one.strftime(shape)) for one in moments if one <= end]
