"""The report's drawings: training curves, traffic and evidence, comparisons, and the timeline of rollouts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from markupsafe import Markup

from mlgitops.adapters.report import wording
from mlgitops.adapters.report.characters import visible
from mlgitops.adapters.report.svg import (
    WIDTH,
    Point,
    Scale,
    bar,
    clock_ticks,
    drawable,
    elapsed,
    element,
    figure,
    joined,
    label,
    line,
    padded,
    polyline,
    round_seconds,
    ticks,
)
from mlgitops.core.analysis.words import odds

Values = Mapping[str, Any]
LEFT: Final = 76
RIGHT: Final = WIDTH - 14
ROW: Final = 54
MOST_ROWS: Final = 14
"""Rows of one drawing; the table beside it has all."""
MOST_CURVES: Final = 3
MOST_WAIT: Final = 3
"""A rollback by hand is in the drawing when it came within so many times the rollout's own length."""
SERIES: Final = ("errors", "labels", "latency")
"""Metrics of a rollout in the order of their colours."""


def series(name: str) -> str:
    """Return the class that gives a metric of a rollout its colour and dashes; slices look like their metric."""
    kind = name.partition("/")[0]
    return f"s{SERIES.index(kind) + 1 if kind in SERIES else len(SERIES)}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _y_axis(scale: Scale, values: Sequence[float], unit: str = "") -> Markup:
    parts = []
    for value in values:
        y = scale(value)
        parts += [line((LEFT, y), (RIGHT, y), "grid"), label(f"{value:.4g}{unit}", LEFT - 8, y + 5, anchor="end")]
    return joined(parts)


# Training


def curves(history: Sequence[Values]) -> list[tuple[str, list[Point], list[Point]]]:
    """Return each measure's course in training and in validation, by epoch; the loss first, at most three."""
    names = dict.fromkeys(name.removeprefix("val_") for entry in history for name in entry)
    wanted = sorted((name for name in names if name not in {"epoch", "seconds"}), key=lambda name: name != "loss")
    found = ((name, _course(history, name), _course(history, f"val_{name}")) for name in wanted)
    return [one for one in found if one[1] or one[2]][:MOST_CURVES]


def _course(history: Sequence[Values], name: str) -> list[Point]:
    places = enumerate(history, start=1)
    return [
        (float(entry["epoch"] if drawable(entry.get("epoch")) else place), float(entry[name]))
        for place, entry in places
        if drawable(entry.get(name))
    ]


def learning(identifier: str, name: str, training: Sequence[Point], validation: Sequence[Point]) -> Markup:
    """Return the training curve of one measure."""
    both = [*training, *validation]
    epochs = [x for x, _ in both]
    x = Scale(min(epochs), max(epochs), LEFT + 10, RIGHT - 10)
    y = Scale(*padded(value for _, value in both), 196, 34)
    whole = sorted({round(one) for one in ticks(min(epochs), max(epochs), 6)} or {round(epochs[0])})
    drawn = [
        polyline([(x(epoch), y(value)) for epoch, value in points], kind)
        for points, kind in ((training, "line s1"), (validation, "line s2"))
        if points
    ]
    told = [f"{side} {points[0][1]:.4g} to {points[-1][1]:.4g}" for side, points in _sides(training, validation)]
    return figure(
        identifier,
        248,
        f"{name} by epoch",
        f"{len({*epochs})} epochs; {'; '.join(told)}.",
        label(_short(name, 40), 0, 16, kind="label strong"),
        _y_axis(y, ticks(y.low, y.high, 4)),
        joined(label(f"{one:.6g}", x(one), 218, anchor="middle") for one in whole if x.low <= one <= x.high),
        label("epoch", (LEFT + RIGHT) / 2, 243, anchor="middle", kind="label muted"),
        *drawn,
    )


def _sides(training: Sequence[Point], validation: Sequence[Point]) -> list[tuple[str, Sequence[Point]]]:
    return [(name, points) for name, points in (("training", training), ("validation", validation)) if points]


def _short(text: str, most: int) -> str:
    shown = visible(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


# Rollouts


@dataclass(frozen=True)
class _Window:
    """The time that a rollout's drawing shows."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    def scale(self) -> Scale:
        return Scale(0, self.seconds, LEFT, RIGHT)

    def since(self, text: str) -> float:
        """Return seconds since the start."""
        return (_moment(text) - self.start).total_seconds()


def _window(rollout: Values, made_at: str) -> _Window | None:
    """Return from the start to where it served alone or had gone; until now while it is under way."""
    if not rollout["traffic"]:
        return None
    start = _moment(rollout["traffic"][0]["at"])
    end = max((_moment(event["at"]) for event in _shown_events(rollout, start)), default=start)
    if rollout["ended"] is None:
        return _Window(start, max(end, _moment(made_at), start + timedelta(seconds=1)))
    return _Window(start, max(end + (end - start) * 0.06, start + timedelta(seconds=1)))


def _shown_events(rollout: Values, start: datetime) -> list[Values]:
    """Return the events on the way to serving alone, and of the way back where that can be seen beside it."""
    names = [event["event"] for event in rollout["events"]]
    kept = rollout["events"][: names.index("Retired")] if "Retired" in names else rollout["events"]
    kept = [event for event in kept if event["event"] not in ("Trusted", "Alarmed")]
    if ends_before_rollback(rollout, start):
        kept = kept[: [event["event"] for event in kept].index("ServingAll") + 1]
    return kept


def ends_before_rollback(rollout: Values, start: datetime | None = None) -> bool:
    """Say whether a person rolled back so long after the rollout that it would be a dot beside the time between."""
    served = next((_moment(event["at"]) for event in rollout["events"] if event["event"] == "ServingAll"), None)
    back = rollout["rollback"]
    if served is None or back is None or back["decision"]:
        return False
    begun = start or _moment(rollout["traffic"][0]["at"])
    return _moment(back["at"]) - served > MOST_WAIT * (served - begun)


def course(identifier: str, rollout: Values, made_at: str) -> Markup | None:
    """Return traffic over time, and the evidence below it on the same axis; None where nothing ever started."""
    window = _window(rollout, made_at)
    if window is None:
        return None
    x = window.scale()
    evidence = rollout["evidence"]
    bottom = 172 if evidence is None else 362
    step = round_seconds(window.seconds)
    marks = [index * step for index in range(int(window.seconds / step) + 1)]
    axis = [
        *(line((x(mark), 34), (x(mark), bottom), "grid faint") for mark in marks),
        *(label(elapsed(mark), x(mark), bottom + 24, anchor="start" if mark == 0 else "middle") for mark in marks),
    ]
    parts = [_traffic(rollout, window, x), *([] if evidence is None else [_evidence(rollout, evidence, window, x)])]
    return figure(
        identifier,
        bottom + 34,
        f"Traffic{'' if evidence is None else ' and evidence'} of rollout {rollout['rollout']}",
        _told(rollout, evidence),
        *axis,
        *parts,
    )


def _told(rollout: Values, evidence: Values | None) -> str:
    weights = ", ".join(f"{one['weight']} %" for one in rollout["traffic"])
    text = f"Share of the traffic as it was observed: {weights}."
    for kind, path in (evidence or {"paths": {}})["paths"].items():
        highest = max((log for _, log in path if drawable(log)), default=0.0)
        limit = evidence["thresholds"].get(kind) if evidence else None
        needed = "" if limit is None else f" of {odds(limit)} needed to roll back"
        text += f" Evidence from {kind}: at most {odds(max(0.0, highest))}{needed}."
    return text


def _traffic(rollout: Values, window: _Window, x: Scale) -> Markup:
    y = Scale(0, 100, 172, 44)
    inside = [(window.since(one["at"]), one["weight"]) for one in rollout["traffic"]]
    inside = [(at, weight) for at, weight in inside if at <= window.seconds]
    corners: list[Point] = []
    names = []
    for (at, weight), (until, _) in zip(inside, [*inside[1:], (window.seconds, 0)], strict=True):
        corners += [(x(at), y(weight)), (x(until), y(weight))]
        if x(until) - x(at) > 64 and 0 < weight < 100:
            names.append(label(f"{weight} %", (x(at) + x(until)) / 2, y(weight) - 8, anchor="middle"))
    area = " ".join(f"{px:.1f},{py:.1f}" for px, py in [(corners[0][0], y(0)), *corners, (corners[-1][0], y(0))])
    return joined(
        (
            label("traffic to the canary", 0, 16, kind="label strong"),
            _y_axis(y, (0, 50, 100), " %"),
            element("polygon", points=area, class_="area"),
            polyline(corners, "line traffic"),
            *names,
            *_marks(rollout, window, x, y),
        )
    )


def _marks(rollout: Values, window: _Window, x: Scale, y: Scale) -> list[Markup]:
    """Return a disc for each step that passed, and a cross where going back was decided."""
    kinds = {"StepPassed": "passed", "LastStepPassed": "passed", "RollbackDecided": "back"}
    found = []
    for event in rollout["events"]:
        kind = kinds.get(event["event"])
        at = window.since(event["at"])
        if kind is None or at > window.seconds:
            continue
        weights = [one["weight"] for one in rollout["traffic"] if window.since(one["at"]) <= at]
        place = x(at), y(weights[-1] if weights else 0)
        title = element("title", f"{wording.event(event['event'])}, {elapsed(round(at))} after the start")
        found.append(_cross(place, title) if kind == "back" else _disc(place, title))
    return found


def _disc(place: Point, title: Markup) -> Markup:
    return element("circle", title, cx=place[0], cy=place[1], r=6, class_="mark passed")


def _cross(place: Point, title: Markup) -> Markup:
    x, y = place
    return element("path", title, d=f"M{x - 7:.1f} {y - 7:.1f}l14 14m0 -14l-14 14", class_="mark back")


def _evidence(rollout: Values, evidence: Values, window: _Window, x: Scale) -> Markup:
    paths = {
        kind: [(window.since(at), float(log)) for at, log in path if drawable(log)]
        for kind, path in evidence["paths"].items()
    }
    begins = next((window.since(one["at"]) for one in rollout["traffic"] if one["weight"]), 0.0)
    limits = [limit for limit in evidence["thresholds"].values() if drawable(limit) and limit > 0]
    limit = min(limits, default=5.0)
    every = [log for path in paths.values() for _, log in path]
    # What lies far beyond the limit, or far below 0, decides nothing more: it is drawn at the edge.
    y = Scale(max(min([-1.0, *every]), -limit), min(max([limit * 1.3, *every]), limit * 3), 362, 236)
    drawn = [
        polyline(
            [(x(begins), y(0)), *((x(at), y(log)) for at, log in path if begins <= at <= window.seconds)],
            f"line {series(kind)}",
        )
        for kind, path in paths.items()
        if path
    ]
    threshold = [
        line((LEFT, y(limit)), (RIGHT, y(limit)), "limit"),
        label(f"rolls back from {odds(limit)}", LEFT + 6, y(limit) - 7, kind="label alarm"),
    ]
    return joined(
        (
            label("evidence against the canary, ln E", 0, 214, kind="label strong"),
            _y_axis(y, ticks(y.low, y.high, 4)),
            *drawn,
            *(threshold if limits else ()),
        )
    )


def timeline(identifier: str, rollouts: Sequence[Values], made_at: str) -> Markup | None:
    """Return what was tried and what served when, one row per rollout, newest first."""
    shown = rollouts[:MOST_ROWS]
    if not shown:
        return None
    now = _moment(made_at)
    start = min(_moment(one["proposed"]) for one in shown)
    end = max(now, start + timedelta(seconds=1))
    x = Scale(start.timestamp(), end.timestamp(), 4, RIGHT)
    bottom = 8 + ROW * len(shown)
    rows = [_lane(one, x, 8 + ROW * place, now) for place, one in enumerate(shown)]
    axis = []
    for at, name in clock_ticks(start, end):
        place = x(at.timestamp())
        anchor = "start" if place < 40 else "end" if place > RIGHT - 40 else "middle"
        axis += [line((place, 8), (place, bottom), "grid faint"), label(name, place, bottom + 24, anchor=anchor)]
    told = "; ".join(f"{one['rollout']}: release {one['release']}, {wording.outcome(one).words}" for one in shown)
    return figure(
        identifier, bottom + 34, "What was tried and what served, over time", f"Rollouts {told}.", *axis, *rows
    )


def _lane(rollout: Values, x: Scale, top: float, now: datetime) -> Markup:
    outcome = wording.outcome(rollout)
    proposed = _moment(rollout["proposed"]).timestamp()
    ended = _moment(rollout["ended"]).timestamp() if rollout["ended"] else now.timestamp()
    parts = [
        label(f"{rollout['rollout']} · {_short(rollout['release'], 12)} · {outcome.short}", 4, top + 17),
        bar((x(proposed), x(ended)), top + 29, 4, "lane wait"),
    ]
    changes = [(x(_moment(one["at"]).timestamp()), one["weight"]) for one in rollout["traffic"]]
    for (left, weight), (until, _) in pairwise([*changes, (x(now.timestamp()), 0)]):
        if 0 < weight < 100:
            parts.append(bar((left, until), top + 26, 10, "lane tried", f"canary at {weight} %"))
    for left, right in rollout["served"]:
        until = _moment(right).timestamp() if right else now.timestamp()
        parts.append(bar((x(_moment(left).timestamp()), x(until)), top + 24, 14, "lane served", "served alone"))
    if outcome.tone == "bad":
        parts.append(_cross((x(ended), top + 31), element("title", outcome.words)))
    return joined(parts)


# Evaluations


def is_share(metric: str) -> bool:
    """Say whether a metric is a share of examples, which belong on one axis."""
    return metric in {"accuracy", "macro_f1"} or re.fullmatch(r"recall:.*", metric, re.DOTALL) is not None


def _limits(gates: Sequence[Values], metric: str, name: str) -> list[float]:
    found = (one["gate"] for one in gates if one["gate"]["metric"] == metric and one["gate"].get("slice") is None)
    return [gate[name] for gate in found if drawable(gate.get(name))]


def values(identifier: str, metrics: Sequence[Values], gates: Sequence[Values]) -> Markup | None:
    """Return the shares of both models with their intervals; None where there are none."""
    rows = [one for one in metrics if one["candidate"] and is_share(one["metric"])][:MOST_ROWS]
    if not rows:
        return None
    ends = [end for row in rows for side in (row["candidate"], row["champion"]) if side for end in _ends(side)]
    x = _share_scale(ends, gates, rows)
    drawn = [_value_row(row, gates, x, ROW * place) for place, row in enumerate(rows)]
    told = "; ".join(f"{row['metric']} {_in_words(row)}" for row in rows)
    axis = _bottom_axis(x, ROW * len(rows) + 4, [(one, f"{one * 100:.3g} %") for one in ticks(x.low, x.high, 5)])
    return figure(
        identifier, ROW * len(rows) + 36, "Metrics of the evaluation, with intervals", f"{told}.", axis, *drawn
    )


def _share_scale(ends: Sequence[float], gates: Sequence[Values], rows: Sequence[Values]) -> Scale:
    """Return the axis of shares; limits of gates are on it where they do not push all values into a corner."""
    low, high = min(ends), max(ends)
    room = high - low
    limits = [limit for row in rows for name in ("minimum", "maximum") for limit in _limits(gates, row["metric"], name)]
    low, high = padded([low, high, *(one for one in limits if low - room <= one <= high + room)], 0.04)
    return Scale(max(0.0, low), min(1.0, high), 10, RIGHT - 6)


def _ends(side: Values) -> list[float]:
    return [side[name] for name in ("value", "low", "high") if side[name] is not None]


def _in_words(row: Values) -> str:
    text = f"{row['candidate']['value']:.4g}"
    return text + (f" against {row['champion']['value']:.4g}" if row["champion"] else "")


def _value_row(row: Values, gates: Sequence[Values], x: Scale, top: float) -> Markup:
    sides = [("champion", row["champion"], 10), ("candidate", row["candidate"], -2)]
    shown = [whisker(side, x, top + 32 + shift, kind) for kind, side, shift in sides if side]
    limits = [limit for name in ("minimum", "maximum") for limit in _limits(gates, row["metric"], name)]
    value = f"{100 * row['candidate']['value']:.4g} %"
    return joined(
        (
            label(_short(row["metric"], 24), 10, top + 17),
            label(value, RIGHT - 6, top + 17, anchor="end", kind="label strong"),
            *(line((x(one), top + 23), (x(one), top + ROW - 2), "limit") for one in limits if x.low <= one <= x.high),
            *shown,
        )
    )


def whisker(side: Values, x: Scale, y: float, kind: str) -> Markup:
    """Return a value with its interval: a disc, a square or a diamond, so that colour is not needed to tell them."""
    parts = []
    if side["low"] is not None and side["high"] is not None:
        parts.append(line((x(side["low"]), y), (x(side["high"]), y), f"whisker {kind}"))
    place = x(side["value"])
    if kind == "champion":
        parts.append(element("rect", x=place - 5, y=y - 5, width=10, height=10, class_=f"point {kind}"))
    elif kind == "worse":
        diamond = f"M{place:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z"
        parts.append(element("path", d=diamond, class_=f"point {kind}"))
    else:
        parts.append(element("circle", cx=place, cy=y, r=6, class_=f"point {kind}"))
    return joined(parts)


def _bottom_axis(x: Scale, y: float, marks: Sequence[tuple[float, str]]) -> Markup:
    parts = []
    for value, name in marks:
        place = x(value)
        anchor = "start" if place < 50 else "end" if place > RIGHT - 50 else "middle"
        parts += [line((place, 4), (place, y), "grid faint"), label(name, place, y + 22, anchor=anchor)]
    return joined(parts)


def turned(row: Values) -> Values | None:
    """Return a paired difference so that positive is better; None where there is none."""
    found = row["difference"]
    if found is None or row["better"] not in {"higher", "lower", "zero"}:
        return None
    if row["better"] == "higher":
        return dict(found)
    low, high = found["low"], found["high"]
    return {
        "value": 0 - found["value"],
        "low": None if high is None else 0 - high,
        "high": None if low is None else 0 - low,
    }


def told_apart(found: Values) -> str:
    """Return `better`, `worse`, or `equal` where the interval has room for both."""
    low, high = found["low"], found["high"]
    if low is not None and low > 0:
        return "better"
    return "worse" if high is not None and high < 0 else "equal"


def differences(identifier: str, metrics: Sequence[Values], gates: Sequence[Values]) -> list[Markup]:
    """Return dots and whiskers of the paired differences: shares on one axis, each other metric on its own."""
    rows = [(row, found) for row in metrics if (found := turned(row)) is not None]
    shares = [one for one in rows if is_share(one[0]["metric"])][:MOST_ROWS]
    others = [one for one in rows if not is_share(one[0]["metric"])][:MOST_CURVES]
    groups = [*([shares] if shares else []), *([one] for one in others)]
    return [_forest(f"{identifier}-{place}", group, gates) for place, group in enumerate(groups, start=1)]


def _forest(identifier: str, rows: Sequence[tuple[Values, Values]], gates: Sequence[Values]) -> Markup:
    shares = is_share(rows[0][0]["metric"])
    allowed = {row["metric"]: [-one for one in _limits(gates, row["metric"], "maximumLoss")] for row, _ in rows}
    ends = [end for _, found in rows for end in _ends(found)] + [one for some in allowed.values() for one in some]
    x = Scale(*padded([0.0, *ends]), 10, RIGHT - 6)
    bottom = ROW * len(rows) + 4
    marks = [(one, signed(round(one * 100 if shares else one, 12))) for one in ticks(x.low, x.high, 4)]
    drawn = [
        _difference_row(row, found, allowed[row["metric"]], x, ROW * place) for place, (row, found) in enumerate(rows)
    ]
    told = "; ".join(f"{row['metric']}: {difference_words(row)}" for row, found in rows)
    unit = "percentage points" if shares else "own unit, positive is better"
    return figure(
        identifier,
        bottom + 56,
        "Difference from the champion on the same examples",
        f"{told}.",
        _bottom_axis(x, bottom, marks),
        line((x(0), 4), (x(0), bottom), "zero"),
        label(f"← worse · {unit} · better →", WIDTH / 2, bottom + 48, anchor="middle", kind="label muted"),
        *drawn,
    )


def _difference_row(row: Values, found: Values, allowed: Sequence[float], x: Scale, top: float) -> Markup:
    return joined(
        (
            label(_short(row["metric"], 20), 10, top + 17),
            label(difference_words(row), RIGHT - 6, top + 17, anchor="end", kind="label strong"),
            *(line((x(one), top + 23), (x(one), top + ROW - 2), "limit") for one in allowed),
            whisker(found, x, top + 34, told_apart(found)),
        )
    )


def signed(value: float) -> str:
    """Return a difference with its sign, and 0 without one."""
    text = f"{value:+.3g}"
    return "0" if float(text) == 0 else text


def difference_words(row: Values) -> str:
    """Return a difference with its interval, turned so that positive is better."""
    found = turned(row)
    if found is None:
        return "no difference known"
    factor = 100 if is_share(row["metric"]) else 1
    told = [None if found[name] is None else signed(found[name] * factor) for name in ("value", "low", "high")]
    return f"{told[0]}" + (f" ({told[1]} to {told[2]})" if None not in told else "")
