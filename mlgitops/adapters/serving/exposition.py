"""The router's counts in Prometheus' terms."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mlgitops.adapters.serving.buckets import LABEL_DELAY_BUCKETS_SECONDS, LATENCY_BUCKETS_SECONDS
from mlgitops.adapters.serving.served import OUTCOMES, Series, ServedLog

LABELS: Final = ("environment", "model", "cohort", "arm", "release")


class ServedCollector(Collector):  # type: ignore[misc]  # the library is untyped here
    """Tells the counts of a log.

    - `mlgitops_requests_total{environment,model,cohort,arm,release,outcome}`: outcome `ok`, `refused` (4xx: the
      request's fault) or `failed` (5xx, timeout, no connection)
    - `mlgitops_request_seconds`: histogram of all of these, as the router saw them
    - `mlgitops_labelled_total{…,outcome}`: outcome `correct` or `incorrect`
    - `mlgitops_slice_requests_total`, `mlgitops_slice_request_seconds`, `mlgitops_slice_labelled_total`: the same of
      the requests of each `slice`
    - `mlgitops_label_delay_seconds`: histogram of the time from a request's answer to its label
    - `mlgitops_router_info{epoch}`: while the epoch is the same, no count ever fell
    - `mlgitops_router_log_errors_total`: lines that could not be written to the log
    """

    def __init__(self, log: ServedLog) -> None:
        self._log = log

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        every = self._by_release()
        yield from _families({key: one for key, one in every.items() if not key[-1]}, "", LABELS)
        yield from _families({key: one for key, one in every.items() if key[-1]}, "slice_", (*LABELS, "slice"))
        delays = HistogramMetricFamily("mlgitops_label_delay_seconds", "Time from answer to label.", labels=LABELS)
        for key, series in every.items():
            if not key[-1]:
                buckets = _cumulative(series.delays, LABEL_DELAY_BUCKETS_SECONDS)
                delays.add_metric(key[: len(LABELS)], buckets, series.delay_seconds)
        yield delays
        information = GaugeMetricFamily("mlgitops_router_info", "The router's line of counts.", labels=["epoch"])
        information.add_metric([self._log.epoch], 1)
        errors = CounterMetricFamily("mlgitops_router_log_errors", "Lines that could not be logged.")
        errors.add_metric([], self._log.write_errors)
        yield from (information, errors)

    def _by_release(self) -> dict[tuple[str, ...], Series]:
        """Add up series that differ only in the digest; a key ends with its slice, empty for all requests."""
        merged: defaultdict[tuple[str, ...], Series] = defaultdict(Series)
        for key, series in self._log.current():
            total = merged[(*key[: len(LABELS)], key.slice)]
            total.outcomes = [one + other for one, other in zip(total.outcomes, series.outcomes, strict=True)]
            total.buckets = [one + other for one, other in zip(total.buckets, series.buckets, strict=True)]
            total.seconds += series.seconds
            total.delays = [one + other for one, other in zip(total.delays, series.delays, strict=True)]
            total.delay_seconds += series.delay_seconds
            total.labelled += series.labelled
            total.incorrect += series.incorrect
        return merged


def _families(
    every: Mapping[tuple[str, ...], Series], what: str, labels: Sequence[str]
) -> tuple[CounterMetricFamily, HistogramMetricFamily, CounterMetricFamily]:
    name, counted = f"mlgitops_{what}", [*labels, "outcome"]
    requests = CounterMetricFamily(f"{name}requests", "Predictions asked for.", labels=counted)
    seconds = HistogramMetricFamily(f"{name}request_seconds", "Time from request to answer.", labels=labels)
    labelled = CounterMetricFamily(f"{name}labelled", "Requests whose label came.", labels=counted)
    for key, series in every.items():
        values = key[: len(labels)]
        for outcome, count in zip(OUTCOMES, series.outcomes, strict=True):
            requests.add_metric([*values, outcome], count)
        seconds.add_metric(values, _cumulative(series.buckets, LATENCY_BUCKETS_SECONDS), series.seconds)
        labelled.add_metric([*values, "correct"], series.labelled - series.incorrect)
        labelled.add_metric([*values, "incorrect"], series.incorrect)
    return requests, seconds, labelled


def _cumulative(buckets: Sequence[int], upper: Sequence[float]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in upper), "+Inf"]
    total, pairs = 0, []
    for bound, count in zip(bounds, buckets, strict=True):
        total += count
        pairs.append((bound, float(total)))
    return pairs
