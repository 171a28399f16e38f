"""What every source of counts promises: a real Prometheus, the loopback one, a command, and the embedded scraper.

A real server needs the program `prometheus`; without it those tests are skipped by name.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlgitops.adapters.loopback import call
from mlgitops.adapters.metrics.command import CommandMetrics
from mlgitops.adapters.metrics.embedded import EmbeddedMetrics
from mlgitops.adapters.metrics.prometheus import PrometheusMetrics
from mlgitops.adapters.metrics.scraper import Scraper
from mlgitops.core.analysis.counts import check_samples
from mlgitops.core.configuration import PrometheusSource
from mlgitops.core.errors import Unavailable
from mlgitops.ports.metrics import Arm, Counts, Sample
from tests.support.prometheus import prometheus

Totals = Mapping[str, tuple[int, int, int, int]]
"""(total, failed, labelled, incorrect) by `<cohort> <arm>`, or by `<cohort> <arm> <slice>`.

Half of the requests took at most 0.1 s.
"""
EPOCH = "one"


class Place:
    """A source, and the way in which a router's counts reach it."""

    def __init__(self, counts: Counts, show: Callable[[str, Totals], None]) -> None:
        self.counts, self._show = counts, show

    def show(self, epoch: str = EPOCH, **totals: tuple[int, int, int, int]) -> None:
        """Let the router tell counts, named like `r4_1_canary`, and wait until they are scraped."""
        self._show(epoch, {name[1:].replace("_", "-", 1).replace("_", " "): one for name, one in totals.items()})

    def samples(self, rollout: int = 4) -> list[Sample]:
        found = list(self.counts.samples("production", "digits", rollout))
        check_samples(found)
        return found

    def last(self, rollout: int = 4) -> dict[str, tuple[int, int, int, int]]:
        return {
            f"{one.cohort} {one.arm}": (one.total, one.failed, one.labelled, one.incorrect)
            for one in self.samples(rollout)
        }


def exposition(epoch: str, totals: Totals) -> str:
    """Return what the router tells."""
    lines = [f'mlgitops_router_info{{epoch="{epoch}"}} 1']
    for name, (total, failed, labelled, incorrect) in totals.items():
        cohort, arm, *of = name.split()
        labels = f'environment="production",model="digits",cohort="{cohort}",arm="{arm}",release="0123456789ab"'
        labels, begins = (f'{labels},slice="{of[0]}"', "mlgitops_slice") if of else (labels, "mlgitops")
        lines += [
            f'{begins}_requests_total{{{labels},outcome="ok"}} {total - failed}',
            f'{begins}_requests_total{{{labels},outcome="failed"}} {failed}',
            f'{begins}_labelled_total{{{labels},outcome="correct"}} {labelled - incorrect}',
            f'{begins}_labelled_total{{{labels},outcome="incorrect"}} {incorrect}',
            f'{begins}_request_seconds_bucket{{{labels},le="0.1"}} {total // 2}',
            f'{begins}_request_seconds_bucket{{{labels},le="1.0"}} {total}',
            f'{begins}_request_seconds_bucket{{{labels},le="+Inf"}} {total}',
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def embedded(folder: Path) -> Iterator[Place]:
    class Time:
        at = datetime(2026, 11, 30, tzinfo=UTC)

        def now(self) -> datetime:
            self.at += timedelta(seconds=15)
            return self.at

    scraper = Scraper(folder, lambda: None, Time())
    yield Place(EmbeddedMetrics(folder), lambda epoch, totals: scraper.take(exposition(epoch, totals)))


@contextmanager
def loopback(folder: Path) -> Iterator[Place]:
    del folder
    with prometheus() as (address, scrapes):

        def show(epoch: str, totals: Totals) -> None:
            at = 1_800_000_000 + 15 * len(scrapes.asked) + len(next(iter(scrapes.series.values()), ()))
            told = dict(line.rsplit(" ", 1) for line in exposition(epoch, totals).splitlines())
            scrapes.scrape(at, told, instance="router:80")

        yield Place(PrometheusMetrics(address, PrometheusSource()), show)


@contextmanager
def command(folder: Path) -> Iterator[Place]:
    """A table of counts, as somebody's own store would have it, and a command that reads it."""
    table, told = folder / "table", folder / "told.py"
    table.write_text("")
    told.write_text(
        "import json, sys\n"
        "for line in open(sys.argv[1]):\n"
        "    if sys.argv[4] in ('0', json.loads(line)['cohort'].split('-')[0]): print(line, end='')\n"
    )
    moments = iter(range(1, 1000))
    base: dict[str, tuple[int, ...]] = {}
    last: dict[str, tuple[int, ...]] = {}
    epochs = [EPOCH]

    def show(epoch: str, totals: Totals) -> None:
        at = datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=next(moments))
        if epoch != epochs[-1]:
            base.update(
                {name: tuple(map(sum, zip(base.get(name, (0,) * 4), one, strict=True))) for name, one in last.items()}
            )
            epochs.append(epoch)
        last.update(totals)
        with table.open("a") as file:
            counts = {
                tuple(name.split()): _told(*map(sum, zip(base.get(name, (0,) * 4), one, strict=True)))
                for name, one in totals.items()
            }
            for (cohort, arm, *of), one in counts.items():
                slices = [
                    {"name": key[2], **own} for key, own in counts.items() if key[:2] == (cohort, arm) and key[2:]
                ]
                line = {"at": at.isoformat(), "cohort": cohort, "arm": arm, **one, "slices": slices}
                if not of:
                    file.write(json.dumps(line) + "\n")

    yield Place(CommandMetrics([sys.executable, str(told), str(table)]), show)


def _told(total: int, failed: int, labelled: int, incorrect: int) -> dict[str, object]:
    counts = {"total": total, "failed": failed, "labelled": labelled, "incorrect": incorrect}
    return {**counts, "latency": [[0.1, total // 2], [1.0, total]]}


@contextmanager
def real(folder: Path) -> Iterator[Place]:
    """A Prometheus that scrapes an exposition five times a second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("the program prometheus is not installed")
    with ExitStack() as stack:
        port, text, scraped = _exposing(stack)
        own = _free_port()
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
            f"scrape_configs: [{{job_name: router, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
        )
        words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{own}"]
        server = subprocess.Popen([program, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(server.wait)
        stack.callback(server.kill)
        _until(lambda: _ready(own))

        def show(epoch: str, totals: Totals) -> None:
            text[0] = exposition(epoch, totals)
            seen = scraped[0]
            _until(lambda: scraped[0] >= seen + 3)  # the scrape after the one that may have begun is done

        yield Place(PrometheusMetrics(f"http://127.0.0.1:{own}", PrometheusSource()), show)


def _exposing(stack: ExitStack) -> tuple[int, list[str], list[int]]:
    text, scraped = [""], [0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text[0].encode())
            scraped[0] += 1

        def log_message(self, *_: object) -> None:
            return

    server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return server.server_port, text, scraped


def _ready(port: int) -> bool:
    try:
        return call(port, "GET", "/-/ready", service="prometheus").status == 200
    except Unavailable:
        return False


def _free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


def _until(reached: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.05)


@pytest.fixture(params=[embedded, loopback, command, real], ids=lambda one: one.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with request.param(tmp_path) as found:
        yield found


def test_nothing_was_counted_yet(place: Place) -> None:
    """A rollout that nobody met has no samples, and that is no error."""
    assert place.samples() == []


def test_the_counts_of_one_rollout_are_told_in_order(place: Place) -> None:
    """Samples come in the order of time, of one rollout alone, and the newest holds what the router counted last."""
    place.show(r4_1_canary=(10, 1, 0, 0), r4_1_baseline=(90, 1, 0, 0), r3_3_canary=(5, 5, 0, 0))
    place.show(r4_1_canary=(30, 1, 4, 2), r4_1_baseline=(270, 3, 9, 1), r3_3_canary=(5, 5, 0, 0))
    found = place.samples()
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert place.last() == {"4-1 canary": (30, 1, 4, 2), "4-1 baseline": (270, 3, 9, 1)}
    assert {one.cohort for one in place.samples(3)} == {"3-3"}
    newest = {one.arm: one for one in found}
    assert newest[Arm.CANARY].latency == ((0.1, 15), (1.0, 30))
    assert newest[Arm.CANARY].at == newest[Arm.BASELINE].at


def test_steps_are_cohorts_of_their_own(place: Place) -> None:
    """Requests of a step stay in its cohort, however late their labels come."""
    place.show(r4_1_canary=(10, 0, 0, 0), r4_1_baseline=(90, 0, 0, 0))
    place.show(
        r4_1_canary=(10, 0, 5, 1), r4_1_baseline=(90, 0, 0, 0), r4_2_canary=(50, 2, 0, 0), r4_2_baseline=(50, 1, 0, 0)
    )
    assert place.last()["4-1 canary"] == (10, 0, 5, 1)
    assert place.last()["4-2 canary"] == (50, 2, 0, 0)


def test_no_count_ever_falls(place: Place) -> None:
    """A router that starts to count anew loses nothing of what it had counted, not even when it is ahead at once."""
    place.show(r4_1_canary=(10, 1, 0, 0), r4_1_baseline=(90, 1, 0, 0))
    place.show("two", r4_1_canary=(4, 0, 0, 0), r4_1_baseline=(200, 2, 0, 0))
    assert place.last() == {"4-1 canary": (14, 1, 0, 0), "4-1 baseline": (290, 3, 0, 0)}


def test_a_source_that_works_has_no_problem(place: Place) -> None:
    """What serves now is counted, so a canary beside it could be judged."""
    place.show(r3_3_canary=(10, 1, 0, 0), r3_3_baseline=(90, 1, 0, 0))
    assert place.counts.problem("production", "digits") == ""


def test_slices_are_told_beside_all_requests(place: Place) -> None:
    """Each slice has counts of its own, over restarts too, and what is counted in slices adds nothing to the whole."""
    place.show(
        r4_1_canary=(10, 1, 4, 1),
        r4_1_canary_mobile=(4, 1, 2, 1),
        r4_1_canary_eu=(9, 0, 0, 0),
        r4_1_baseline=(9, 1, 0, 0),
    )
    place.show(
        "two",
        r4_1_canary=(6, 1, 0, 0),
        r4_1_canary_mobile=(6, 1, 0, 0),
        r4_1_canary_eu=(0, 0, 0, 0),
        r4_1_baseline=(20, 2, 0, 0),
    )
    newest = {one.arm: one for one in place.samples()}
    canary = newest[Arm.CANARY]
    assert (canary.total, canary.failed, canary.labelled, canary.incorrect) == (16, 2, 4, 1)
    mobile, eu = canary.of("mobile"), canary.of("eu")
    assert (mobile.total, mobile.failed, mobile.labelled, mobile.incorrect) == (10, 2, 2, 1)
    assert mobile.latency == ((0.1, 5), (1.0, 10))
    assert (eu.total, eu.failed, eu.labelled) == (9, 0, 0)
    assert newest[Arm.BASELINE].of("mobile").total == 0
