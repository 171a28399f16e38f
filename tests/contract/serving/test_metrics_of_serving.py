"""What the router counts arrives as samples of the rollout."""

import os
import signal
from pathlib import Path

from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.metrics.embedded import EmbeddedMetrics
from mlgitops.adapters.metrics.scraper import Scraper
from mlgitops.ports.serving import Arm
from tests.contract.serving.serving_kit import Engine, route, service


def test_samples_are_what_users_met_also_across_a_killed_router(engine: Engine, tmp_path: Path) -> None:
    """Requests, failures and labels of each side reach the samples exactly once, whatever dies in between."""
    home = tmp_path / "metrics"
    one, other = engine.model(favours=0), engine.model(favours=1, fails_above=10)
    objects = [service("digits", *one, "a" * 12), service("digits-canary", *other, "b" * 12)]
    engine.apply("production", *objects, route("digits", 50, 50, "6-1"))
    engine.until_ready("production", Arm.BASELINE, Arm.CANARY)
    scraper = Scraper(home, lambda: engine.controller.router_port, SystemClock(), interval_seconds=0)

    ids = [f"r{number}" for number in range(30)]
    canary = sum(headers["X-Mlgitops-Release"] == "b" * 12 for _, headers in engine.send("production", ids))
    scraper.tick()
    engine.send("production", ids, b'{"instances": [[11, 1]]}')
    engine.labels("production", [(one, 0) for one in ids])
    [router] = engine.controller._router.children()
    os.kill(router.pid, signal.SIGKILL)
    engine.until(lambda: engine.controller._router.children() not in ([], [router]))
    engine.until_ready("production", Arm.BASELINE, Arm.CANARY)
    engine.send("production", ids)
    scraper.tick()

    last = {sample.arm: sample for sample in EmbeddedMetrics(home).samples("production", "digits", 6)}
    seen = {arm: (one.total, one.failed, one.labelled, one.incorrect) for arm, one in last.items()}
    baseline = 30 - canary
    assert seen == {
        Arm.CANARY: (3 * canary, canary, canary, canary),
        Arm.BASELINE: (3 * baseline, 0, baseline, 0),
    }
    assert all(one.latency[-1] == (10.0, one.total) for one in last.values())


def test_slices_that_clients_name_reach_the_samples(engine: Engine, tmp_path: Path) -> None:
    """Requests and labels are counted in each slice that the request named; names that no plan could have are not."""
    home = tmp_path / "metrics"
    one = engine.model(favours=0)
    engine.apply("production", service("digits", *one, "a" * 12), route("digits", 100, 0, "6-1"))
    engine.until_ready("production", Arm.BASELINE)
    scraper = Scraper(home, lambda: engine.controller.router_port, SystemClock(), interval_seconds=0)
    ids = [f"r{number}" for number in range(12)]
    engine.send("production", ids[:4], slices='mobile, eu,,mobile,"x",UPPER')
    engine.send("production", ids[4:10], slices="mobile")
    engine.send("production", ids[10:])
    engine.labels("production", [(one, int(one == "r0")) for one in ids])
    scraper.tick()
    [sample] = EmbeddedMetrics(home).samples("production", "digits", 6)
    assert {one.name: (one.total, one.failed, one.labelled, one.incorrect) for one in sample.slices} == {
        "eu": (4, 0, 4, 1),
        "mobile": (10, 0, 10, 1),
    }
    assert (sample.total, sample.labelled, sample.incorrect) == (12, 12, 1)
    assert sample.of("mobile").latency[-1] == (10.0, 10)
