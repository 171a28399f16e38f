"""The words of `mlgitops simulate`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mlgitops.cli.render import paragraph, table
from mlgitops.core.analysis.words import percent, seconds

Values = Mapping[str, Any]
_SOURCES: Final = {
    "flag": "as you say",
    "measured": "as former rollouts measured",
    "expected": "as environments.yaml expects",
    "assumed": "assumed",
}
_NEEDS: Final = {"inTime": "in its time", "waits": "waits", "held": "asks a person"}


def words(values: Values) -> str:
    """Return what was simulated, for people."""
    parts = [_traffic(values)]
    parts += [part for plan in values["plans"] for part in _plan(plan)]
    parts.append(paragraph(_reading(values)))
    return "\n\n".join([*parts, *([f"drawn: {values['plot']}"] if values["plot"] else [])])


def _traffic(values: Values) -> str:
    traffic = values["traffic"]
    judged = {need["kind"] for plan in values["plans"] for need in plan["needs"]}
    rates = [
        f"{one['kind']} {percent(one['rate'])} ({_SOURCES[one['source']]})"
        for one in traffic["rates"]
        if one["kind"] in judged
    ]
    whose = f"{values['model']} in " if values["model"] else ""
    speed = f"{traffic['requestsPerSecond']:.3g} requests per second, {_SOURCES[traffic['source']]}"
    told = [paragraph(f"{whose}{values['environment']}: {speed}."), paragraph(f"Bad outcomes now: {', '.join(rates)}.")]
    if "labels" in judged:
        share = f"{percent(traffic['labelledShare'])} of the requests ({_SOURCES[traffic['labelledShareSource']]})"
        delay = traffic["labelDelaySeconds"]
        told.append(paragraph(f"Labels come for {share}{f', after {seconds(delay)} on average' if delay else ''}."))
    if traffic["noise"]:
        told.append(paragraph(f"The rates of each side swing by a coefficient of variation of {traffic['noise']:g}."))
    return "\n".join(told)


def _plan(plan: Values) -> Iterator[str]:
    file = f" ({plan['file']})" if plan["file"] else ""
    yield f"Plan {plan['name']}{file}: {seconds(plan['seconds'])} of steps at least, alpha {plan['alpha']:g}"
    rows = [
        (
            need["step"],
            f"{need['weightPercent']} %",
            need["kind"],
            f"{need['effect']:g}",
            f"{need['expected']:,}",
            f"{need['needed']:,}",
            f"{_NEEDS[need['outcome']]}, {seconds(need['seconds'])}",
        )
        for need in plan["needs"]
    ]
    headings = ("step", "canary", "metric", "effect", "requests", "needed", "passes")
    yield table(headings, rows, "  ")
    headings = ("canary", "rolled back", "after", "its requests", "bad more", "promoted", "held")
    yield table(headings, (_scenario(one) for one in plan["scenarios"]), "  ")


def _scenario(one: Values) -> tuple[object, ...]:
    fates, back = one["fates"], one["secondsToRollBack"]
    expired = fates["expired"]["share"]
    return (
        f"{one['kind']} × {one['effect']:g}" if one["kind"] else "no worse",
        _share(fates["rolledBack"]),
        "-" if back is None else f"{seconds(back['median'])} to {seconds(back['most'])}",
        "-" if back is None else f"{one['canaryRequests']['median']:,}",
        "-" if back is None or not one["kind"] else f"{one['extraBad']['median']:,.0f}",
        _share(fates["promoted"]),
        _share(fates["held"]) + (f", {percent(expired)} too old" if expired else ""),
    )


def _share(one: Values) -> str:
    return f"{100 * one['share']:.0f} %"


def _reading(values: Values) -> str:
    clean = values["plans"][0]["scenarios"][0]["fates"]["rolledBack"]
    return (
        f"{values['runs']} simulated rollouts of each, seed {values['seed']}: shares are known to some points (of "
        f"good releases, at most {percent(clean['upper'])} are rolled back; the plan's alpha is the promise). `× 2` is "
        "twice the odds of a bad outcome in that metric. Times are those of half and of nine in ten of the rollouts; "
        "requests and bad outcomes, what the canary had answered by then, and what of it the present release had not "
        "done badly."
    )
