"""How much the ledger grows over 200 rollouts of two hours, and what repacking leaves of it.

`python -m benchmarks.ledger [--quick]`: a model goes through rollouts with three judged steps of 40 minutes each, its
metrics read every ten seconds; everything that was decided, with its evidence, is kept. Told is the size of the bare
repository (both branches) as it was written, and after what the engine's housekeeping does. To reach: below 10 MB.
Exit code 1 when it is missed.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import pygit2

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.app.context import World
from mlgitops.core import ledger as ledgers
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.local.housekeeping import GIT_SETTINGS
from mlgitops.ports.repository import Change
from tests.support import world as support

MEGABYTES = 10.0
STEP_SECONDS, READ_SECONDS = 2400, 10
REQUESTS = 20.0
"""Requests per second."""
PLAN = support.ENVIRONMENTS.replace("seconds: 10}", f"seconds: {STEP_SECONDS}}}").replace(
    "probationSeconds: 60", "probationSeconds: 600"
)


class Busy(support.Engine):
    """Counts requests as they come, read every ten seconds, for as long as a step goes on."""

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        """Return what was read until now."""
        state = self._state(environment, model)
        one = state.rollouts[rollout]
        if one.proposal.champion is None:
            return super().samples(environment, model, rollout)
        found: list[Sample] = []
        begun = one.authorised_at or self.clock.now()
        for step, weight in enumerate(one.proposal.weights[: one.step + 1]):
            start = begun + timedelta(seconds=step * (STEP_SECONDS + 60))
            end = min(self.clock.now(), start + timedelta(seconds=STEP_SECONDS + 60))
            found += self._step(f"{rollout}-{step + 1}", weight, start, (end - start).total_seconds())
        return found

    def _step(self, cohort: str, weight: int, start: datetime, seconds: float) -> list[Sample]:
        end = start + timedelta(seconds=seconds)
        return [one for one in course(cohort, weight, start) if one.at <= end]


@lru_cache(maxsize=8)
def course(cohort: str, weight: int, start: datetime) -> list[Sample]:
    """Return what a whole step counts."""
    draw = random.Random(cohort)
    counts = {arm: [0, 0, 0] for arm in Arm}
    found = []
    for number in range(1, (STEP_SECONDS + 60) // READ_SECONDS + 1):
        at = start + timedelta(seconds=number * READ_SECONDS)
        for arm, share in ((Arm.CANARY, weight), (Arm.BASELINE, 100 - weight)):
            total = int(REQUESTS * READ_SECONDS * share / 100)
            own = counts[arm]
            own[0] += total
            own[1] += sum(draw.random() < 0.002 for _ in range(total))
            own[2] += sum(draw.random() < 0.05 for _ in range(total))
            values = {"total": own[0], "failed": own[1], "labelled": own[0], "incorrect": own[2]}
            found.append(Sample(at=at, cohort=cohort, arm=arm, **values))
    return found


def rolled_out(world: World, engine: Busy, number: int) -> None:
    """Bring one more release all the way."""
    release = support.push(world, f"code {number}", quality=support.Quality(0.95 + number * 1e-6), engine=engine)
    for _ in range(12):
        engine.clock.pass_seconds(STEP_SECONDS / 2 + 30)
        support.settle(world, engine, 1, passes=4)
        if support.state_of(world).champion == release.name:
            return
    raise AssertionError(support.state_of(world).rollouts[number + 1])


def size(repository: Path) -> float:
    """Return the size of a folder in megabytes."""
    return sum(file.stat().st_size for file in repository.rglob("*") if file.is_file()) / 1e6


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rollouts, no goal")
    rollouts = 8 if parser.parse_args().quick else 200
    with tempfile.TemporaryDirectory(prefix="mlgitops-ledger-") as folder:
        place = Path(folder) / "environment.git"
        init_bare(place)
        pygit2.Repository(str(place)).config["gc.auto"] = 0  # packed below, by the engine's housekeeping alone
        repository = open_repository(str(place), identity=support.IDENTITY, cache=Path(folder))
        files = {MAIN: {"environments.yaml": PLAN.encode()}, LEDGER: ledgers.first_files()}
        repository.create({ref: Change(message="init", files=one) for ref, one in files.items()})
        engine = Busy(repository=repository, clock=support.Clock())
        world = support.seen_by(engine, repository)
        support.live(world, engine, "first", support.Quality())
        print(f"{'rollouts':>9}{'commits':>9}{'written MB':>12}{'packed MB':>11}{'s':>7}")
        packed, start = 0.0, time.monotonic()
        for number in range(1, rollouts + 1):
            rolled_out(world, engine, number)
            if number in {rollouts // 4, rollouts // 2, rollouts}:
                written = size(place)
                words = [word for one in GIT_SETTINGS for word in ("-c", one)]
                subprocess.run(["git", *words, "-C", str(place), "gc", "--auto", "--quiet"], check=True)
                packed = size(place)
                count = subprocess.run(
                    ["git", "-C", str(place), "rev-list", "--count", "--all"],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.strip()
                print(
                    f"{number:>9}{count:>9}{written:>12.1f}{packed:>11.1f}{time.monotonic() - start:>7.0f}", flush=True
                )
    return int(rollouts > 8 and packed > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
