"""`mlgitops simulate`."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from mlgitops.cli import options, simulated
from mlgitops.cli.words import examples
from mlgitops.core.configuration import MetricKind
from mlgitops.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from mlgitops.app.context import Context
    from mlgitops.core.configuration import Plan

_KINDS: Final = get_args(MetricKind)
_PAIR: Final = re.compile(r"(?P<name>[^\s]+)=(?P<number>[0-9.eE+-]+)")


@click.command(
    "simulate",
    epilog=examples(
        "mlgitops simulate",
        "mlgitops simulate digits --environment staging --requests-per-second 20",
        "mlgitops simulate --effect errors=1.5 --plan careful --plan draft.yaml --plot plan.svg",
        "mlgitops simulate --rate labels=0.08 --labelled 0.3 --label-delay 900",
    ),
)
@click.argument("model", required=False)
@click.option("--requests-per-second", type=float, metavar="NUMBER", help="Of all users; default: as measured.")
@click.option("--effect", "effects", multiple=True, metavar="METRIC=RATIO", help="Another harm, as an odds ratio.")
@click.option("--slice", "slices", multiple=True, metavar="SLICE=SHARE", help="Of the requests; default: as measured.")
@click.option("--rate", "rates", multiple=True, metavar="METRIC=SHARE", help="Bad outcomes of what serves now.")
@click.option("--labelled", type=float, metavar="SHARE", help="Share of requests whose label comes.")
@click.option("--label-delay", type=float, default=0.0, metavar="SECONDS", help="Mean time a label takes.")
@click.option("--noise", type=float, default=0.0, metavar="CV", help="How much each side's rates swing, like 0.3.")
@click.option(
    "--plan", "plans", multiple=True, metavar="NAME|FILE", help="Another plan, of environments.yaml or a file."
)
@click.option("--plot", metavar="PATH", help="Draw when harms are found into this SVG file.")
@click.option("--runs", type=click.IntRange(1, 10_000), help="Rollouts of each harm; default: a few seconds of them.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same answer.")
@options.one_environment
@options.places
@options.output
def command(
    model: str | None,
    requests_per_second: float | None,
    effects: tuple[str, ...],
    slices: tuple[str, ...],
    rates: tuple[str, ...],
    labelled: float | None,
    label_delay: float,
    noise: float,
    plans: tuple[str, ...],
    plot: str | None,
    runs: int | None,
    seed: int,
    environment: str | None,
    home: str | None,
    environment_repository: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Say what a plan would do with a model's traffic.

    Before anything is rolled out: how long each step would take, how soon each harm would be found and how many users
    would have met it, and how often a good release would be rolled back. Rollouts are simulated, and judged as real
    ones are. Traffic is measured from the decisions of former rollouts. MODEL is needed only where there are several;
    METRIC is errors, latency or labels, or labels/mobile of a slice. Reads the environment
    repository alone.
    """
    del verbose
    from mlgitops.app.simulating import Asked, foresee

    asked = Asked(
        requests_per_second=requests_per_second,
        rates=_rates(rates),
        effects=_pairs(effects, "--effect", "METRIC"),
        slices=dict(_pairs(slices, "--slice", "SLICE")),
        labelled_share=labelled,
        label_delay_seconds=label_delay,
        noise=noise,
        runs=runs,
        seed=seed,
    )
    settings, context = options.open_context(home, environment_repository)
    name = _model(context, model)
    others = [_plan(settings.directory, file, context, environment) for file in plans]
    values = foresee(context, name, environment, asked, others)
    courses = [one.pop("course") for plan in values["plans"] for one in plan["scenarios"]]
    values["plot"] = _drawn(settings.directory / plot, values, courses) if plot else None
    options.show(values, simulated.words(values), output)


def _pairs(given: tuple[str, ...], flag: str, what: str) -> list[tuple[str, float]]:
    """Return each NAME=NUMBER.

    Raises:
        InvalidInput: One is none.
    """
    found = []
    for text in given:
        match = _PAIR.fullmatch(text)
        try:
            found.append((match["name"], float(match["number"])) if match else ("", math.nan))
        except ValueError:
            match = None
        if match is None:
            raise InvalidInput(f"{flag} {text!r:.60} is not {what}=NUMBER")
    return found


def _rates(given: tuple[str, ...]) -> dict[MetricKind, float]:
    found: dict[MetricKind, float] = {}
    for name, number in _pairs(given, "--rate", "METRIC"):
        kind: MetricKind | None = next((one for one in _KINDS if one == name), None)
        if kind is None:
            raise InvalidInput(f"--rate names {name!r:.60}, which is none of {', '.join(_KINDS)}")
        found[kind] = number
    return found


def _model(context: "Context", model: str | None) -> str | None:
    """Return the model that was named, or the only one; None where none was submitted yet and none was named."""
    from mlgitops.app.context import look

    return None if model is None and not look(context).ledger.models() else options.chosen(context, model)


def _plan(directory: Path, named: str, context: "Context", environment: str | None) -> "tuple[str | None, Plan]":
    """Return (file, plan) of a plan that `environments.yaml` has, else of a file.

    Raises:
        InvalidInput: The file holds no plan.
        NotFound: There is neither.
    """
    from mlgitops.app.context import look
    from mlgitops.core.loaders.plan import load_plan

    configuration, path = look(context).configuration, directory / named
    known = next((one for one in configuration.plans if one.name == named), None)
    if known is not None:
        return None, known
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise NotFound("plan or file", named, [one.name for one in configuration.plans]) from error
    return named, load_plan(data, str(path), environment or configuration.environments[-1].name)


def _drawn(path: Path, values: dict[str, Any], courses: list[Any]) -> str:
    """Draw what was simulated; returns the file's path.

    Raises:
        InvalidInput: The file cannot be written.
    """
    from mlgitops.adapters.redacting import redacted_values
    from mlgitops.adapters.report.foreseen import drawing

    options.write_file(path, drawing(redacted_values(values), courses), "the plot")
    return str(path)
