"""Counts from Prometheus: exact over restarts, doubles and gaps, and nothing that is doubtful."""

import json
import math
from collections.abc import Iterator, Mapping

import pytest

from mlgitops.adapters.metrics.prometheus import PrometheusMetrics
from mlgitops.core.analysis.counts import check_samples
from mlgitops.core.configuration import PrometheusSource
from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Arm, Sample
from tests.support.prometheus import Scrapes, prometheus

START = 1_800_000_000.0


@pytest.fixture
def place() -> Iterator[tuple[str, Scrapes]]:
    with prometheus() as found:
        yield found


def counts(epoch: str = "a", **arms: tuple[int, int, int, int]) -> dict[str, float | str]:
    """Return an exposition: (total, failed, labelled, incorrect) of rollout 4, step 1, by arm; half within 0.1 s."""
    told: dict[str, float | str] = {f'mlgitops_router_info{{epoch="{epoch}"}}': 1}
    for arm, (total, failed, labelled, incorrect) in arms.items():
        labels = f'environment="production",model="digits",cohort="4-1",arm="{arm}",release="0123456789ab"'
        told |= {
            f'mlgitops_requests_total{{{labels},outcome="ok"}}': total - failed,
            f'mlgitops_requests_total{{{labels},outcome="failed"}}': failed,
            f'mlgitops_labelled_total{{{labels},outcome="correct"}}': labelled - incorrect,
            f'mlgitops_labelled_total{{{labels},outcome="incorrect"}}': incorrect,
            f'mlgitops_request_seconds_bucket{{{labels},le="0.1"}}': total // 2,
            f'mlgitops_request_seconds_bucket{{{labels},le="1.0"}}': total,
            f'mlgitops_request_seconds_bucket{{{labels},le="+Inf"}}': total,
        }
    return told


def ask(place: tuple[str, Scrapes], token: str | None = None, **source: object) -> list[Sample]:
    found = list(_metrics(place, token, **source).samples("production", "digits", 4))
    check_samples(found)
    return found


def _metrics(place: tuple[str, Scrapes], token: str | None = None, **source: object) -> PrometheusMetrics:
    return PrometheusMetrics(place[0], PrometheusSource(**source), token)  # type: ignore[arg-type]


def last(samples: list[Sample]) -> Mapping[Arm, tuple[int, int, int, int]]:
    return {one.arm: (one.total, one.failed, one.labelled, one.incorrect) for one in samples}


def test_counts_are_those_that_were_scraped(place) -> None:
    """Every scrape becomes a sample of both arms, with the server's time and every count as it was."""
    for second in range(3):
        at = START + 15 * second
        place[1].scrape(
            at, counts(canary=(10 * second, second, second, 0), baseline=(5 + 90 * second, 2, 5, 1)), instance="r"
        )
    found = ask(place)
    assert [one.at.timestamp() for one in found] == [START, START, START + 15, START + 15, START + 30, START + 30]
    assert last(found) == {Arm.CANARY: (20, 2, 2, 0), Arm.BASELINE: (185, 2, 5, 1)}
    assert found[-1].latency == ((0.1, found[-1].total // 2), (1.0, found[-1].total))


def test_only_the_asked_rollout_is_told(place) -> None:
    """Rollout 4 has nothing of rollout 14 or 40, of another model, or of another environment."""
    place[1].scrape(START, counts(canary=(10, 0, 0, 0)), instance="r")
    for old, new in (('"4-1"', '"14-1"'), ('"4-1"', '"40-1"'), ('"digits"', '"digit"'), ("production", "staging")):
        other = {name.replace(old, new): value for name, value in counts(canary=(99, 9, 9, 9)).items()}
        place[1].scrape(START, other, instance="r")
    assert last(ask(place))[Arm.CANARY] == (10, 0, 0, 0)


def test_counts_add_up_over_restarts(place) -> None:
    """What a process counted before it started anew stays, also where it had counted higher when it was seen again."""
    for at, epoch, total in ((0, "a", 10), (15, "a", 30), (30, "b", 5), (45, "c", 50)):
        place[1].scrape(START + at, counts(epoch, canary=(total, 1, 0, 0)), instance="r")
    found = [one.total for one in ask(place) if one.arm is Arm.CANARY]
    assert found == [10, 30, 35, 85]
    without = [one.total for one in ask(place, lines="") if one.arm is Arm.CANARY]
    assert without == [10, 30, 35, 80], "without lines a restart shows by a falling count alone"


def test_a_process_that_two_scrapers_see_counts_once(place) -> None:
    """Two jobs or two servers that scrape one process do not double its requests; two processes add up."""
    place[1].scrape(START, counts("a", canary=(10, 1, 0, 0)), instance="one", job="x")
    place[1].scrape(START + 1, counts("a", canary=(10, 1, 0, 0)), instance="one:80", job="y")
    place[1].scrape(START + 2, counts("b", canary=(7, 0, 0, 0)), instance="two", job="x")
    assert last(ask(place))[Arm.CANARY] == (17, 1, 0, 0)


def test_replicas_of_a_server_are_known_by_their_label(place) -> None:
    """Series that differ in nothing but `sameProcess` are counted once, where no line of counts is told."""
    for replica in ("a", "b"):
        place[1].scrape(START, counts(canary=(10, 1, 0, 0)), instance="one", replica=replica)
    assert last(ask(place, lines=""))[Arm.CANARY] == (10, 1, 0, 0)
    assert last(ask(place, lines="", same_process=()))[Arm.CANARY] == (20, 2, 0, 0)


def test_missing_scrapes_lose_nothing(place) -> None:
    """A gap makes an interval longer; the counts after it are whole."""
    for at, total in ((0, 10), (15, 20), (900, 500)):
        place[1].scrape(START + at, counts(canary=(total, 0, 0, 0), baseline=(total, 0, 0, 0)), instance="r")
    assert [one.total for one in ask(place) if one.arm is Arm.BASELINE] == [10, 20, 500]


def test_a_scrape_between_two_queries_makes_nobody_slow(place) -> None:
    """Requests that came after the latencies were asked for are told with the next answer, not as slow ones."""
    place[1].scrape(START, counts(canary=(10, 0, 0, 0)), instance="r")

    def next_scrape() -> None:
        place[1].scrape(START + 15, counts(canary=(1000, 0, 0, 0)), instance="r")

    place[1].after["mlgitops_requests_total"] = next_scrape
    assert [one.total for one in ask(place) if one.arm is Arm.CANARY] == [10]
    assert [one.total for one in ask(place) if one.arm is Arm.CANARY] == [10, 1000]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_scrape_without_a_number_is_left_out_whole(place, value: str) -> None:
    """One counter that holds no number makes its whole scrape worthless, and the next one right again."""
    for second, total in enumerate((10, 20, 30)):
        told = counts(canary=(total, 0, 0, 0))
        if second == 1:
            told = {name: value if "bucket" in name and "0.1" in name else one for name, one in told.items()}
        place[1].scrape(START + second, told, instance="r")
    assert [one.total for one in ask(place) if one.arm is Arm.CANARY] == [10, 30]


@pytest.mark.parametrize("value", ["3.5", "-1", "1e300"])
def test_what_is_no_count_is_refused(place, value: str) -> None:
    """A rate, a gauge or an average is never taken for a number of requests."""
    told = {name: value if "requests_total" in name else one for name, one in counts(canary=(9, 0, 0, 0)).items()}
    place[1].scrape(START, told, instance="r")
    with pytest.raises(Unavailable, match="no count of requests"):
        ask(place)


@pytest.mark.parametrize("without", ["cohort", "arm", "outcome"])
def test_a_series_that_cannot_be_told_apart_is_refused(place, without: str) -> None:
    """A series without cohort, arm or outcome could be anybody's, so nothing is decided on it."""
    place[1].scrape(START, counts(canary=(9, 0, 0, 0)), instance="r")
    place[1].series = {
        frozenset(one for one in key if one[0] != without): values for key, values in place[1].series.items()
    }
    with pytest.raises(Unavailable, match="lacks cohort, arm or outcome"):
        ask(place, requests="mlgitops_requests_total{}")


BAD_ANSWERS = {
    "an error": (400, json.dumps({"status": "error", "errorType": "execution", "error": "too many samples"}).encode()),
    "no JSON": (200, b"<html>login</html>"),
    "no object": (200, b"[]"),
    "another type": (200, b'{"status":"success","data":{"resultType":"vector","result":[]}}'),
    "a redirect": (302, b""),
    "nobody let in": (401, b"unauthorized"),
    "deep": (200, b"[" * 100_000),
    "no values": (200, b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}'),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_an_answer_that_is_none_decides_nothing(place, case: str) -> None:
    """Whatever a server or a proxy says instead of samples ends as unavailable."""
    place[1].answer = BAD_ANSWERS[case]
    with pytest.raises(Unavailable):
        ask(place)


def test_a_partial_answer_decides_nothing(place) -> None:
    """An answer with warnings may lack series, so it is not taken."""
    place[1].scrape(START, counts(canary=(9, 0, 0, 0)), instance="r")
    place[1].warnings.append("store gateway timed out")
    with pytest.raises(Unavailable, match="may be partial: store gateway"):
        ask(place)


def test_a_server_that_is_slow_or_away_is_unavailable_in_time(place) -> None:
    """An answer that does not come in time, or nobody at the address, is unavailable; the token is in no message."""
    place[1].seconds = 30.0
    with pytest.raises(Unavailable) as slow:
        ask(place, "s3cret-token", timeout_seconds=0.2)
    with pytest.raises(Unavailable) as away:
        ask(("http://127.0.0.1:9", place[1]), "s3cret-token", timeout_seconds=0.2)
    assert "s3cret" not in f"{slow.value}{away.value}"


def test_the_token_is_sent(place) -> None:
    """A server that asks for a token gets it, in the header alone."""
    place[1].scrape(START, counts(canary=(9, 0, 0, 0)), instance="r")
    ask(place, "s3cret-token")
    assert set(place[1].authorization) == {"Bearer s3cret-token"}
    assert "s3cret" not in "".join(place[1].asked)


def test_nothing_is_no_sample_and_is_told_before_a_rollout(place) -> None:
    """A misnamed metric yields no sample, and is named before any traffic moves."""
    assert ask(place) == []
    metrics = _metrics(place, requests='requets_total{environment="$environment",model="$model",cohort=~"$cohort"}')
    assert "requets_total{" in metrics.problem("production", "digits")
    place[1].scrape(START, counts(baseline=(9, 0, 0, 0)), instance="r")
    assert "requets_total{" in metrics.problem("production", "digits")
    assert _metrics(place).problem("production", "digits") == ""


def test_a_day_of_scrapes_is_thinned_alike_at_every_look(place) -> None:
    """A long rollout has some thousands of samples, and an earlier look had a beginning of the same."""
    every = [(START + 5 * number, number) for number in range(6000)]
    for at, number in every:
        place[1].scrape(at, counts(canary=(number, 0, 0, 0), baseline=(number, 0, 0, 0)), instance="r")
    found = ask(place)
    assert len(found) < 2 * 4000
    place[1].series = {key: values[:4000] for key, values in place[1].series.items()}
    earlier = ask(place)
    assert earlier == found[: len(earlier)]
    assert math.isclose(earlier[-1].at.timestamp(), every[3999][0], abs_tol=60)
