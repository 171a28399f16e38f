"""When the harms of a simulated canary are found, as a drawing that stands alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from mlgitops.adapters.report.html import standing_alone
from mlgitops.adapters.report.plots import LEFT, RIGHT
from mlgitops.adapters.report.svg import (
    WIDTH,
    Point,
    Scale,
    elapsed,
    figure,
    joined,
    label,
    line,
    polyline,
    round_seconds,
)
from mlgitops.core.analysis.words import percent

Values = Mapping[str, Any]
Course = Sequence[Sequence[float]]
"""(seconds, share of the rollouts that were rolled back by then), ascending."""
_TOP: Final = 52
_HEIGHT: Final = 170
_FOOT: Final = 40
_LEGEND: Final = 20


def drawing(values: Values, courses: Sequence[Course]) -> str:
    """Return an SVG file with one panel for each plan.

    Args:
        values: What `app.simulating.foresee` returns.
        courses: The courses of all its scenarios, in their order.
    """
    left, panels, top = list(courses), [], 0.0
    longest = max([one["seconds"] for one in values["plans"]] + [one[-1][0] for one in courses if one])
    for plan in values["plans"]:
        scenarios = plan["scenarios"]
        panels.append(_panel(plan, left[: len(scenarios)], top, longest))
        left = left[len(scenarios) :]
        top += _TOP + _HEIGHT + _FOOT + _LEGEND * len(scenarios)
    whose = f"{values['model']} in {values['environment']}" if values["model"] else values["environment"]
    described = "; ".join(_told(plan, one) for plan in values["plans"] for one in plan["scenarios"])
    return standing_alone(figure("foreseen", top, f"When a bad canary of {whose} is found", described, *panels))


def _told(plan: Values, scenario: Values) -> str:
    return f"plan {plan['name']}, {_name(scenario)}: {percent(scenario['fates']['rolledBack']['share'])} rolled back"


def _name(scenario: Values) -> str:
    if not scenario["kind"]:
        return "no worse"
    of = f"/{scenario['slice']}" if scenario["slice"] else ""
    return f"{scenario['kind']}{of} × {scenario['effect']:g}"


def _panel(plan: Values, courses: Sequence[Course], top: float, longest: float) -> Markup:
    x, y = Scale(0, longest, LEFT, RIGHT), Scale(0, 1, top + _TOP + _HEIGHT, top + _TOP)
    step = round_seconds(longest)
    file = f" ({plan['file']})" if plan["file"] else ""
    parts = [
        label(f"Plan {plan['name']}{file}: share of rollouts rolled back, by time", 0, top + 18, kind="label strong"),
        *(_level(y, share) for share in (0, 0.25, 0.5, 0.75, 1)),
        *(
            label(elapsed(one), x(one), top + _TOP + _HEIGHT + 22, anchor="middle" if x(one) < RIGHT - 20 else "end")
            for one in range(0, int(longest) + 1, step)
        ),
        *_steps(plan, x, top),
    ]
    for place, (scenario, course) in enumerate(zip(plan["scenarios"], courses, strict=True)):
        kind = f"line s{place % 3 + 1}" if place else "line limit"
        below = top + _TOP + _HEIGHT + _FOOT + _LEGEND * place
        parts += [
            polyline([(x(at), y(share)) for at, share in _stairs(course, longest)], kind),
            line((LEFT, below), (LEFT + 34, below), kind),
            label(f"{_name(scenario)}: {_words(scenario)}", LEFT + 44, below + 4),
        ]
    return joined(parts)


def _level(y: Scale, share: float) -> Markup:
    return joined(
        [
            line((LEFT, y(share)), (RIGHT, y(share)), "grid"),
            label(f"{100 * share:g} %", LEFT - 8, y(share) + 5, anchor="end"),
        ]
    )


def _steps(plan: Values, x: Scale, top: float) -> list[Markup]:
    """Return where the steps begin when none has to wait; named as far as there is room."""
    parts, at, free = [], 0.0, 0.0
    for one in plan["steps"]:
        parts.append(line((x(at), top + _TOP), (x(at), top + _TOP + _HEIGHT), "grid faint"))
        if x(at) >= free:
            free = x(at) + 44
            name = f"{one['weightPercent']} %"
            parts.append(label(name, min(x(at) + 4, WIDTH - 40), top + _TOP - 6, kind="label muted"))
        at += one["seconds"]
    return parts


def _stairs(course: Course, longest: float) -> list[Point]:
    points: list[Point] = [(0.0, 0.0)]
    for at, share in course:
        points += [(at, points[-1][1]), (at, share)]
    return [*points, (longest, points[-1][1])]


def _words(scenario: Values) -> str:
    back = scenario["fates"]["rolledBack"]["share"]
    if scenario["secondsToRollBack"] is None:
        return "never rolled back"
    requests = scenario["canaryRequests"]["median"]
    return f"{percent(back)} rolled back, half of them by {requests:,} requests of the canary"
