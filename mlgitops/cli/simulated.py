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
_FATES: Final = {"rolledBack": "rolled back", "promoted": "promoted", "held": "asks a person", "expired": "too old"}
_NEEDS: Final = {"inTime": "in its time", "waits": "waits", "held": "asks a person"}


def words(values: Values) -> str:
    """Return what was simulated, for people."""
    parts = [_traffic(values)]
    parts += [part for plan in values["plans"] for part in _plan(plan) if part]
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
    yield paragraph(f"Plan {plan['name']}{file}: {least} of steps at least, alpha {plan['alpha']:g}, {_noise(plan)}")
    needs = [
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
    yield table(("step", "canary", "metric", "effect", "requests", "needed", "passes"), needs, "  ")
    fates = [fate for fate in _FATES if fate != "expired" or any(_came(one, fate) for one in plan["scenarios"])]
    ends = [
        (_name(one), f"{one['runs']:,}", *(_share(one["fates"][fate]) for fate in fates)) for one in plan["scenarios"]
    ]
    yield table(("canary", "rollouts", *(_FATES[fate] for fate in fates)), ends, "  ")
    headings = ("if rolled back", "half of them by", "9 in 10 by", "its requests", "more bad ones")
    yield table(headings, [_back(one) for one in plan["scenarios"] if one["secondsToRollBack"]], "  ")


def _came(one: Values, fate: str) -> bool:
    return bool(one["fates"][fate]["share"])


def _back(one: Values) -> tuple[str, ...]:
    after = one["secondsToRollBack"]
    bad = f"{one['extraBad']['median']:,.0f}" if one["kind"] else "-"
    return (
        _name(one),
        seconds(after["median"]),
        seconds(after["most"]),
        f"{one['canaryRequests']['median']:,}",
        bad,
    )


def _name(one: Values) -> str:
    return f"{_metric(one)} × {one['effect']:g}" if one["kind"] else "no worse"


def _noise(plan: Values) -> str:
    """Say by what the evidence of each metric is tempered, once where it is the same of all."""
    said = [f"{one['dispersion']:.3g} ({_NOISES[one['source']]})" for one in plan["noises"]]
    if len(set(said)) == 1:
        return f"dispersion {said[0]}"
    return "dispersion " + ", ".join(f"of {one['metric']} {of}" for one, of in zip(plan["noises"], said, strict=True))


def _metric(one: Values) -> str:
    return f"{one['kind']}/{one['slice']}" if one["slice"] else str(one["kind"])


def _share(one: Values) -> str:
    """Return a share of the rollouts with its 95 % interval: `2 % (1-5)`."""
    lower, upper = (_limit(100 * one[name]) for name in ("lower", "upper"))
    return f"{_limit(100 * one['share'])} % ({lower}-{upper})"


def _limit(value: float) -> str:
    return f"{value:.1f}" if 0.05 <= value < 1.95 else f"{value:.0f}"


def _reading(values: Values) -> str:
    alphas = sorted({plan["alpha"] for plan in values["plans"]})
    promised = " or ".join(f"{100 * one:g} %" for one in alphas)
    return (
        f"Simulated with seed {values['seed']}. In brackets: what a share may truly be, with 95 % confidence; more "
        "--runs tell it better. That a release that is no worse is rolled back is promised to be at most as likely as "
        f"alpha, {promised}. `× 2` is twice the odds of a bad outcome in that metric. A person is asked where a step "
        "has too little data when its extension is over. Requests are what half of the canaries had answered at most "
        "when they were rolled back; more bad ones, what the present release would not have done badly of it."
    )
