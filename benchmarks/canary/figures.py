"""The plots of the benchmark, as SVG that stands alone and is legible on light and dark pages."""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from benchmarks.canary.detection import Detection, ratio
from benchmarks.canary.study import RULES, Result
from benchmarks.canary.tables import MEAN_RATIO, worst_of
from benchmarks.canary.twin import ALPHA
from mlgitops.adapters.report.svg import Point, Scale, element, figure, joined, label, line, ticks

ROW: Final = 26.0
LEFT: Final = 300.0
RIGHT: Final = 590.0
TOP: Final = 52.0
_STYLE: Final = """
:root { --page: #ffffff; --text: #1b1f24; --muted: #55606b; --rule: #d3d9df;
  --bad: #98330a; --s1: #0072b2; --s2: #c95500; }
@media (prefers-color-scheme: dark) { :root { --page: #10151b; --text: #e7eaee; --muted: #a3afbb; --rule: #35404c;
  --bad: #ffb089; --s1: #56b4e9; --s2: #f0933c; } }
svg { background: var(--page); }
text { font: 12px system-ui, sans-serif; fill: var(--text); }
text.muted { fill: var(--muted); }
.grid { stroke: var(--rule); stroke-width: 1; }
.limit { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 10 3 2 3; }
.s1 { fill: var(--s1); }
.s2 { fill: var(--page); stroke: var(--s2); stroke-width: 3; }
"""


def drawings(detections: Sequence[Detection], results: Sequence[Result]) -> dict[str, str]:
    """Return the plots by their names."""
    return {
        "canary-false-rollbacks": false_rollbacks(results),
        "canary-detected": detected(results),
        "canary-requests": requests(detections),
    }


def false_rollbacks(results: Sequence[Result]) -> str:
    """Draw, for each rule, the share of perfect canaries that it rolls back in its worst scenario."""
    rows = []
    for rule in RULES:
        some = [
            [one for one in results if bool(one.scenario.noise) is noise and rule in one.outcomes]
            for noise in (False, True)
        ]
        if all(some):
            rows.append((rule, [100 * worst_of(one, rule).outcomes[rule].false_rollbacks.value for one in some]))
    return _dots(
        "Perfect canaries rolled back",
        "Worst scenario of each rule, in percent of the rollouts.",
        rows,
        keys=("independent requests", "bursts"),
        limit=(100 * ALPHA, f"{100 * ALPHA:g} %"),
        unit=" %",
    )


def detected(results: Sequence[Result]) -> str:
    """Draw, for each rule, the share of worse canaries that it rolls back, over all scenarios."""
    rows = []
    for rule in RULES:
        some = [
            [one for one in results if bool(one.scenario.noise) is noise and rule in one.outcomes]
            for noise in (False, True)
        ]
        if all(some):
            means = [100 * sum(each.outcomes[rule].detected.value for each in one) / len(one) for one in some]
            rows.append((rule, means))
    return _dots(
        "Worse canaries rolled back",
        "Mean over the scenarios, in percent of the rollouts. Rules that roll back perfect ones as well find them all.",
        rows,
        keys=("independent requests", "bursts"),
        unit=" %",
    )


def requests(detections: Sequence[Detection]) -> str:
    """Draw requests to detection over the oracle's."""
    rows = [(one.effect.name, [one.ratio[0], ratio(one.default, one.oracle)[0]]) for one in detections]
    return _dots(
        "Requests until a worse canary is seen, × the oracle's",
        "The oracle knows both rates, and judges latency at the p99 alone.",
        rows,
        keys=("effect named", "no effect named"),
        limit=(MEAN_RATIO, f"{MEAN_RATIO:g}"),
        low=0.5,
    )


def _dots(
    title: str,
    told: str,
    rows: Sequence[tuple[str, Sequence[float]]],
    *,
    keys: tuple[str, str],
    unit: str = "",
    limit: tuple[float, str] | None = None,
    low: float = 0.0,
) -> str:
    """Draw a row for each name, with a full dot for the first value and an open one for the second."""
    most = max(value for _, values in rows for value in values)
    x = Scale(low, 100.0 if unit else max(1.5, most), LEFT, RIGHT)
    bottom = TOP + ROW * len(rows)
    parts: list[Markup] = [_mark((LEFT, 18), 0), label(keys[0], LEFT + 10, 22), _mark((LEFT + 170, 18), 1)]
    parts.append(label(keys[1], LEFT + 180, 22))
    for value in ticks(x.low, x.high):
        parts += [line((x(value), TOP - 8), (x(value), bottom), "grid")]
        parts += [label(f"{value:g}{unit}", x(value), bottom + 18, anchor="middle", kind="muted")]
    if limit is not None:
        parts += [line((x(limit[0]), TOP - 8), (x(limit[0]), bottom), "limit")]
        parts += [label(f"limit {limit[1]}", x(limit[0]), bottom + 34, anchor="middle", kind="muted")]
    for place, (name, values) in enumerate(rows):
        parts += _row(name, values, TOP + ROW * (place + 0.5), x, unit)
    drawing = figure(title.split(" ", 1)[0].lower(), bottom + 44, title, told, *parts)
    head, _, rest = str(drawing).partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}\n'


def _row(name: str, values: Sequence[float], y: float, x: Scale, unit: str) -> Iterable[Markup]:
    yield label(name, LEFT - 12, y + 4, anchor="end")
    said = " / ".join(f"{value:.2g}{unit}" if value < 1 else f"{value:.3g}{unit}" for value in values)
    for place, value in reversed(list(enumerate(values))):
        yield joined([_mark((x(value), y), place, f"{name}: {said}")])


def _mark(place: Point, series: int, title: str = "") -> Markup:
    told = [element("title", title)] if title else []
    return element("circle", *told, cx=place[0], cy=place[1], r=4.5, class_=f"s{series + 1}")
