"""The router's counts in Prometheus' terms."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mlgitops.adapters.serving.buckets import LATENCY_BUCKETS_SECONDS
from mlgitops.adapters.serving.served import OUTCOMES, Series, ServedLog

LABELS: Final = ("environment", "model", "cohort", "arm", "release")


class ServedCollector(Collector):  # type: ignore[misc]  # the library is untyped here
    """Tells the counts of a log.

    - `mlgitops_requests_total{environment,model,cohort,arm,release,outcome}`: outcome `ok`, `refused` (4xx: the
      request's fault) or `failed` (5xx, timeout, no connection)
    - `mlgitops_request_seconds`: histogram of all of these, as the router saw them
    - `mlgitops_labelled_total{…,outcome}`: outcome `correct` or `incorrect`
    - `mlgitops_router_info{epoch}`: while the epoch is the same, no count ever fell
    - `mlgitops_router_log_errors_total`: lines that could not be written to the log
    """

    def __init__(self, log: ServedLog) -> None:
        self._log = log

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        requests = CounterMetricFamily("mlgitops_requests", "Predictions asked for.", labels=[*LABELS, "outcome"])
        seconds = HistogramMetricFamily("mlgitops_request_seconds", "Time from request to answer.", labels=LABELS)
        labelled = CounterMetricFamily("mlgitops_labelled", "Requests whose label came.", labels=[*LABELS, "outcome"])
        for values, series in self._by_release().items():
            for outcome, count in zip(OUTCOMES, series.outcomes, strict=True):
                requests.add_metric([*values, outcome], count)
            seconds.add_metric(values, _cumulative(series.buckets), series.seconds)
            labelled.add_metric([*values, "correct"], series.labelled - series.incorrect)
            labelled.add_metric([*values, "incorrect"], series.incorrect)
        information = GaugeMetricFamily("mlgitops_router_info", "The router's line of counts.", labels=["epoch"])
        information.add_metric([self._log.epoch], 1)
        errors = CounterMetricFamily("mlgitops_router_log_errors", "Lines that could not be logged.")
        errors.add_metric([], self._log.write_errors)
        yield from (requests, seconds, labelled, information, errors)

    def _by_release(self) -> dict[tuple[str, ...], Series]:
        """Add up series that differ only in the digest."""
        merged: defaultdict[tuple[str, ...], Series] = defaultdict(Series)
        for key, series in self._log.current():
            total = merged[key[: len(LABELS)]]
            total.outcomes = [one + other for one, other in zip(total.outcomes, series.outcomes, strict=True)]
            total.buckets = [one + other for one, other in zip(total.buckets, series.buckets, strict=True)]
            total.seconds += series.seconds
            total.labelled += series.labelled
            total.incorrect += series.incorrect
        return merged


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in LATENCY_BUCKETS_SECONDS), "+Inf"]
    total, pairs = 0, []
    for bound, count in zip(bounds, buckets, strict=True):
        total += count
        pairs.append((bound, float(total)))
    return pairs
