"""Linting plans: whether the traffic that is expected can show the effects that they name."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from mlgitops.core.analysis import words
from mlgitops.core.analysis.foresight import Need, needs, slowest
from mlgitops.core.configuration import Environment, MetricRule
from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.lint.rule import add
from mlgitops.core.manifest.read import read_document

_BLIND = add(
    "tree-blind-plan",
    "warning",
    what="A plan that cannot see an effect it names, with the traffic that the environment expects",
    why="A step that has seen too little does not pass when its time is over: it waits, and then asks a person.",
    mend="begin at a higher weight, give the step more seconds, or name a larger effect; `mlgitops simulate` compares",
    can_be_allowed=False,
)


def lint_plans(data: bytes, path: str) -> list[Problem]:
    """Return a warning for each metric that makes a step of an environment's plan wait.

    Only environments that say `expectedRequestsPerSecond` are looked at.

    Args:
        data: `environments.yaml`.
        path: The file, as people know it.

    Returns:
        Warnings; none for a file that is not valid, which others tell.
    """
    try:
        configuration = load_environments(data, path)
    except InvalidInput:
        return []
    document = read_document(data, path)
    return [
        replace(
            document.problem(message, ("environments", place, "plan"), mend=_BLIND.mend),
            rule=_BLIND.name,
            severity=_BLIND.severity,
        )
        for place, environment in enumerate(configuration.environments)
        for message in _messages(environment)
    ]


def _messages(environment: Environment) -> Iterator[str]:
    """Say of each metric which step has to wait longest for it."""
    rate = environment.expected_requests_per_second
    if rate is None:
        return
    found = [one for one in needs(environment.plan, rate) if one.waits]
    for _, of_metric in groupby(sorted(found, key=lambda one: one.rule.name), key=lambda one: one.rule.name):
        yield _message(environment, rate, slowest(list(of_metric)))


def _message(environment: Environment, rate: float, need: Need) -> str:
    seconds = environment.plan.judged_steps[need.step - 1].seconds
    ends = "it would stop and ask a person" if need.held else f"it would take {words.seconds(need.seconds)}"
    return (
        f"step {need.step} of plan {environment.plan.name} needs about {need.needed:,} requests of the canary to see "
        f"{_effect(need.rule)}, and gets {need.expected:,.0f} in {words.seconds(seconds)} at {rate:g} requests per "
        f"second: {ends}"
    )


def _effect(rule: MetricRule) -> str:
    tolerated = f" beyond a margin of {rule.margin:g}" if rule.margin > 1 else ""
    of = "" if rule.slice is None else f" of slice {rule.slice}"
    return f"{rule.kind}{of} worse by an odds ratio of {rule.effect:g}{tolerated}"
