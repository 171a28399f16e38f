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
    "evaluated": "as the release that serves was evaluated",
    "assumed": "assumed",
}
_NOISES: Final = {"plan": "as the plan says", "history": "as measured", "default": "assumed"}
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
    sliced = {need["slice"] for plan in values["plans"] for need in plan["needs"]}
    shares = [
        f"{one['slice']} {percent(one['share'])} ({_SOURCES[one['source']]})"
        for one in traffic["slices"]
        if one["slice"] in sliced
    ]
    if shares:
        told.append(paragraph(f"Slices of the requests: {', '.join(shares)}."))
    if traffic["noise"]:
        told.append(paragraph(f"The rates of each side swing by a coefficient of variation of {traffic['noise']:g}."))
    return "\n".join(told)


def _plan(plan: Values) -> Iterator[str]:
    file = f" ({plan['file']})" if plan["file"] else ""
    least = seconds(plan["seconds"])
    yield f"Plan {plan['name']}{file}: {least} of steps at least, alpha {plan['alpha']:g}, {_noise(plan)}"
    rows = [
        (
            need["step"],
            f"{need['weightPercent']} %",
            _metric(need),
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


def _noise(plan: Values) -> str:
    """Say by what the evidence of each metric is tempered, once where it is the same of all."""
    said = [f"{one['dispersion']:.3g} ({_NOISES[one['source']]})" for one in plan["noises"]]
    if len(set(said)) == 1:
        return f"dispersion {said[0]}"
    return "dispersion " + ", ".join(f"of {one['metric']} {of}" for one, of in zip(plan["noises"], said, strict=True))


def _metric(one: Values) -> str:
    return f"{one['kind']}/{one['slice']}" if one["slice"] else str(one["kind"])


def _scenario(one: Values) -> tuple[object, ...]:
    fates, back = one["fates"], one["secondsToRollBack"]
    expired = fates["expired"]["share"]
    return (
        f"{_metric(one)} × {one['effect']:g}" if one["kind"] else "no worse",
        _share(fates["rolledBack"]),
        "-" if back is None else f"{seconds(back['median'])} to {seconds(back['most'])}",
        "-" if back is None else f"{one['canaryRequests']['median']:,}",
        "-" if back is None or not one["kind"] else f"{one['extraBad']['median']:,.0f}",
        _share(fates["promoted"]),
        _share(fates["held"]) + (f", {percent(expired)} too old" if expired else ""),
    )


def _share(one: Values) -> str:
    """Return a share of the rollouts with its 95 % interval: `2 % (1-5)`."""
    lower, upper = (_limit(100 * one[name]) for name in ("lower", "upper"))
    return f"{_limit(100 * one['share'])} % ({lower}-{upper})"


def _limit(value: float) -> str:
    return f"{value:.1f}" if 0.05 <= value < 1.95 else f"{value:.0f}"


def _reading(values: Values) -> str:
    runs = sorted({one["runs"] for plan in values["plans"] for one in plan["scenarios"]}, reverse=True)
    alphas = sorted({plan["alpha"] for plan in values["plans"]})
    counts = " and ".join(f"{one:,}" for one in runs)
    return (
        f"{counts} simulated rollouts of {'each' if len(runs) == 1 else 'a good release and of each harm'}, seed "
        f"{values['seed']}; in brackets what "
        "the shares may truly be, with 95 % confidence. That a good release is rolled back is promised to be at most "
        f"as likely as alpha, {' or '.join(f'{100 * one:g} %' for one in alphas)}. `× 2` is twice the odds of a bad "
        "outcome in that metric. Times are those of half and of nine in ten of the rollouts that were rolled back; "
        "requests and bad outcomes, what the canary had answered by then, and what of it the present release had not "
        "done badly. `held` is that a step has too little data when its extension is over, so that a person is asked."
    )
