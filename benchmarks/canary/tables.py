"""The tables of the benchmark, as Markdown."""

from collections.abc import Iterable, Sequence

from benchmarks.canary.detection import WEIGHT, Detection, ratio
from benchmarks.canary.study import (
    ASSUMED,
    KAYENTA,
    ORACLE,
    OURS,
    RULES,
    SEQUENTIAL,
    Outcome,
    Result,
    Share,
)
from benchmarks.canary.traffic import USUAL
from benchmarks.canary.twin import ALPHA

MEAN_RATIO, WORST_RATIO = 1.25, 1.5
"""Requests to detection over the oracle's: what is to be reached without bursts."""


def summary(detections: Sequence[Detection], results: Sequence[Result]) -> str:
    """Return what is to be reached, and what is."""
    shares = [one.outcomes[OURS].false_rollbacks for one in results]
    ratios, worst = [one.ratio[0] for one in detections], worst_of(results, OURS)
    others = [one.ratio[0] for one in detections if one.effect.kind != "latency"]
    above = sum(one.value > ALPHA for one in shares)
    rows = [
        ("false rollbacks in the worst scenario", f"≤ {100 * ALPHA:g} %", told(worst.outcomes[OURS].false_rollbacks)),
        (f"scenarios with more, of {len(results)}", "0", f"{above}"),
        ("requests to detection, × the oracle's, mean", f"≤ {MEAN_RATIO:g}", f"{sum(ratios) / len(ratios):.2f}"),
        ("the same without latency", f"≤ {MEAN_RATIO:g}", f"{sum(others) / len(others):.2f}"),
        ("the same, worst effect", f"≤ {WORST_RATIO:g}", f"{max(ratios):.2f}"),
    ]
    return table(("", "to reach", "measured"), rows)


def missed(detections: Sequence[Detection], results: Sequence[Result]) -> list[str]:
    """Return which figures are missed beyond what the simulation's chance allows."""
    found = [
        f"{one.scenario.name}: {told(share)} false rollbacks"
        for one in results
        if (share := one.outcomes[OURS].false_rollbacks).limits[0] > ALPHA
    ]
    lowest = [one.ratio[0] - one.ratio[1] for one in detections]
    if sum(lowest) / len(lowest) > MEAN_RATIO:
        found.append("requests to detection on average")
    return found + [one.effect.name for one, low in zip(detections, lowest, strict=True) if low > WORST_RATIO]


def page(detections: Sequence[Detection], results: Sequence[Result], runs: int, seed: int) -> str:
    """Return the page of all results."""
    usual = [one for one in results if one.scenario.plan == USUAL and not one.scenario.label_delay_minutes]
    parts = [
        "# Results of the canary benchmark",
        "Written by the benchmark; what is compared, and how to read it, [is told apart](canary.md).",
        _told(runs, seed),
        "## What is to be reached",
        summary(detections, results),
        "## False rollbacks, worst scenario of each rule",
        _worst(results),
        "## False rollbacks by requests per second, worst effect",
        _by_rate(usual),
        "## Requests of the canary until it is seen to be worse",
        f"Weight {100 * WEIGHT:g} %, a look each ten seconds at 10 req/s, α = {100 * ALPHA:g} %, φ = 1; means.",
        _detections(detections),
        *_detected(usual),
        "## Other weights",
        _scenario_rows([one for one in results if one.scenario.plan != USUAL]),
        "## Late labels",
        _scenario_rows([one for one in results if one.scenario.label_delay_minutes]),
        "## Every scenario",
        _every(results),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first column is text."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _told(runs: int, seed: int) -> str:
    return (
        f"{runs:,} rollouts of an equal and as many of a worse canary in each scenario, seed {seed}. In brackets: 95 % "
        "limits of what the simulation leaves open."
    )


def told(share: Share) -> str:
    """Return a share with its limits, in percent."""
    low, high = share.limits
    return f"{_percent(share.value)} % ({_percent(low)}–{_percent(high)})"


def worst_of(results: Sequence[Result], rule: str) -> Result:
    """Return the scenario in which a rule rolls back most canaries that equal their baseline."""
    return max(
        (one for one in results if rule in one.outcomes), key=lambda one: one.outcomes[rule].false_rollbacks.value
    )


def _percent(share: float) -> str:
    return f"{100 * share:.{2 if share < 0.0995 else 1 if share < 0.9995 else 0}f}" if share else "0"


def _known(results: Sequence[Result]) -> list[str]:
    return [rule for rule in RULES if any(rule in one.outcomes for one in results)]


def _split(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    return [one for one in results if not one.scenario.noise], [one for one in results if one.scenario.noise]


def _worst(results: Sequence[Result]) -> str:
    def cells(rule: str) -> Iterable[str]:
        for some in _split(results):
            found = worst_of(some, rule)
            yield f"{told(found.outcomes[rule].false_rollbacks)}; {found.scenario.name.removesuffix(', bursts')}"

    return table(("rule", "independent requests", "bursts"), [(rule, *cells(rule)) for rule in _known(results)])


def _by_rate(results: Sequence[Result]) -> str:
    rates = sorted({one.scenario.requests_per_second for one in results})

    def cells(rule: str) -> Iterable[str]:
        for some in _split(results):
            for rate in rates:
                of_rate = [one for one in some if one.scenario.requests_per_second == rate]
                yield _percent(worst_of(of_rate, rule).outcomes[rule].false_rollbacks.value)

    head = [f"{rate:g}/s, {noise}" for noise in ("calm", "bursts") for rate in rates]
    return table(("rule, %", *head), [(rule, *cells(rule)) for rule in _known(results)])


def _detections(detections: Sequence[Detection]) -> str:
    def row(one: Detection) -> tuple[str, ...]:
        named, half = one.ratio
        others = [f"{found.mean():,.0f} ({ratio(found, one.oracle)[0]:.2f})" for found in (one.misnamed, one.default)]
        bound, oracle, ours = f"{one.bound:,.0f}", f"{one.oracle.mean():,.0f}", f"{one.named.mean():,.0f}"
        return one.effect.name, bound, oracle, ours, f"{named:.2f} ± {half:.2f}", *others

    head = ("", "lower bound", "oracle", OURS, "× oracle", "effect named squared", "no effect named")
    return table(head, map(row, detections))


def _detected(results: Sequence[Result]) -> Iterable[str]:
    """Yield, for each rule that keeps good canaries at all, what share of worse ones it rolls back, and when."""
    for some, noise in zip(_split(results), ("independent requests", "bursts"), strict=True):
        rates = sorted({one.scenario.requests_per_second for one in some})
        for rate in rates:
            yield f"## Worse canaries rolled back, {noise}, {rate:g} req/s"
            of_rate = [one for one in some if one.scenario.requests_per_second == rate]
            yield _by_effect(of_rate)


def _by_effect(results: Sequence[Result]) -> str:
    rows = [
        (rule, *[_seen(one.outcomes[rule]) if rule in one.outcomes else "" for one in results])
        for rule in _known(results)
    ]
    return table(("rule", *[one.scenario.effect.name for one in results]), rows)


def _seen(outcome: Outcome) -> str:
    median = "" if outcome.median_minutes is None else f", {outcome.median_minutes:g} min"
    return f"{100 * outcome.detected.value:.0f} %{median}"


def _scenario_rows(results: Sequence[Result]) -> str:
    rules = (OURS, KAYENTA, SEQUENTIAL, ORACLE)

    rows = [
        (
            one.scenario.name,
            *[
                f"{_percent(one.outcomes[rule].false_rollbacks.value)} % / {_seen(one.outcomes[rule])}"
                for rule in rules
            ],
        )
        for one in results
    ]
    return table(("false rollbacks / worse canaries rolled back", *rules), rows)


def _every(results: Sequence[Result]) -> str:
    rows = [
        (
            one.scenario.name,
            f"{one.dispersion:.1f}",
            told(one.outcomes[OURS].false_rollbacks),
            _seen(one.outcomes[OURS]),
            told(one.outcomes[ASSUMED].false_rollbacks),
            _seen(one.outcomes[ORACLE]),
        )
        for one in results
    ]
    head = ("scenario", "φ", f"{OURS}: false", "worse", f"{ASSUMED}: false", f"{ORACLE}: worse")
    return table(head, rows)
