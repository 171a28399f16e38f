"""Twins: two services of one release that share the traffic, so that all they differ by is noise.

At the end of a promotion the canary's service and the champion's place serve the same release. Where the plan says so,
they share the requests for a while. What they differ by is told to later rollouts as the dispersion of this service.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from mlgitops.core.analysis.counts import (
    Arm,
    ArmCounts,
    Interval,
    Measure,
    Sample,
    check_samples,
    errors_of,
    labels_of,
    moments,
    slower_than,
)
from mlgitops.core.analysis.measures import judged_bounds
from mlgitops.core.analysis.noise import Noise, noise_in
from mlgitops.core.configuration import MetricRule
from mlgitops.core.errors import InvalidInput

MINUTE: Final = timedelta(minutes=1)


def noises(samples: Sequence[Sample], rules: Sequence[MetricRule]) -> Mapping[str, Noise]:
    """Return what the twins of one release show, by the names of the metrics they say enough about.

    Latency is compared at each of the bucket bounds that it would be judged at, and the noisiest one counts.

    Args:
        samples: All samples of the cohort in which the twins shared the traffic, and no others.
        rules: The metrics to measure; of each, kind and slice matter.

    Returns:
        A noise for each metric with enough blocks of history; nothing where the counts contradict themselves.
    """
    try:
        check_samples(samples)
    except InvalidInput:  # what cannot be believed measures nothing, and must not stop a promotion that is over
        return {}
    measured = {rule.name: _noise(samples, rule) for rule in rules}
    return {name: noise for name, noise in measured.items() if noise is not None}


def _noise(samples: Sequence[Sample], rule: MetricRule) -> Noise | None:
    samples = [one.of(rule.slice) for one in samples]
    found = [noise_in(minutes(samples, measure)) for measure in _measures(samples, rule)]
    known = [noise for noise in found if noise is not None]
    return max(known, key=lambda noise: noise.dispersion, default=None)


def _measures(samples: Sequence[Sample], rule: MetricRule) -> Sequence[Measure]:
    match rule.kind:
        case "errors":
            return (errors_of,)
        case "labels":
            return (labels_of,)
        case "latency":
            return tuple(map(slower_than, judged_bounds([one for one in samples if one.total])))


def minutes(samples: Sequence[Sample], measure: Measure) -> tuple[Interval, ...]:
    """Return what both groups met in each minute, in order, from the first reading to the last.

    A minute without a reading is empty, and what it brought is counted in the next that has one: blocks of minutes keep
    their length in time.

    Args:
        samples: Samples of one cohort, in any order; its counters start at zero.
        measure: The metric's reading of a sample.
    """
    counts = dict.fromkeys(Arm, ArmCounts())
    told, found, start = dict(counts), list[Interval](), min((one.at for one in samples), default=None)
    for at, together in moments(samples):
        while start is not None and at >= start + MINUTE * (len(found) + 1):
            found.append(_interval(start + MINUTE * (len(found) + 1), counts, told))
            told = dict(counts)
        counts |= {one.arm: measure(one) for one in together}
    return (*found, _interval(start + MINUTE * (len(found) + 1), counts, told)) if start is not None else ()


def _interval(at: datetime, counts: Mapping[Arm, ArmCounts], told: Mapping[Arm, ArmCounts]) -> Interval:
    gained = {arm: counts[arm] - told[arm] for arm in Arm}
    return Interval(at=at, cohort="", canary=gained[Arm.CANARY], baseline=gained[Arm.BASELINE])
