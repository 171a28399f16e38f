"""The tool's own time from a push to production: without training, waiting at a step, and the start of model servers.

    python benchmarks/own_time.py [--quick] [--rounds N]

A real engine on this machine takes pushes as in the demo; the trainer writes a small matrix, and the evaluation answers
at once. What goes on is looked at every 50 ms and is booked on the tool unless a training runs, a model server starts,
or a canary's time at its step is not over. So noticing, deciding, committing and applying are the tool's, and so are
its pauses between two looks. The first push needs no canary; the second meets one step. The aim is 3 s for each.

A row tells the seconds of each stage, the median of the rounds. `--quick` walks once.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mlgitops.app.context import look  # noqa: E402 - found from any folder
from mlgitops.core.errors import MlgitopsError  # noqa: E402
from mlgitops.core.manifest.fields import MAIN, TRAINING  # noqa: E402
from mlgitops.core.release import ReleasePhase  # noqa: E402
from mlgitops.core.rollout import Rollout, RolloutPhase  # noqa: E402
from mlgitops.local import wiring  # noqa: E402
from mlgitops.ports.cluster import JobPhase  # noqa: E402
from mlgitops.ports.repository import Change  # noqa: E402
from tests.e2e.test_walk import MODEL, PLAN, Machine  # noqa: E402
from tests.support.git_server import HERMETIC  # noqa: E402

AIM_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.05
STEP_SECONDS: Final = 12.0
PATIENCE_SECONDS: Final = 120.0
QUICK_PLAN: Final = PLAN.replace("seconds: 2}", f"seconds: {STEP_SECONDS:g}}}").replace(
    "- {kind: labels, effect: 3}", "- {kind: errors, effect: 50, margin: 5}"
)
"""One step that ends with its time: the requests it needs came before."""


@dataclass(frozen=True)
class Stage:
    """What is going on."""

    name: str
    own: bool
    """Whether the tool is at work, or should be."""


PUSH: Final = Stage("push taken, image built", own=True)
QUEUE: Final = Stage("until training starts", own=True)
TRAIN: Final = Stage("training", own=False)
RESULT: Final = Stage("result, gates", own=True)
PROPOSAL: Final = Stage("until the canary is asked for", own=True)
SERVER: Final = Stage("model servers start", own=False)
TRAFFIC: Final = Stage("weights decided and applied", own=True)
WAIT: Final = Stage("waiting at the step", own=False)
JUDGE: Final = Stage("step over, until judged", own=True)
FINISH: Final = Stage("champion replaced", own=True)
STAGES: Final = (PUSH, QUEUE, TRAIN, RESULT, PROPOSAL, SERVER, TRAFFIC, WAIT, JUDGE, FINISH)


class Watch:
    """Looks at a machine and books what passed."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._world = machine, wiring.world(machine.home, machine.context)

    def push(self, name: str) -> dict[Stage, float]:
        """Push, and return the seconds of each stage until the release serves."""
        booked: dict[Stage, float] = defaultdict(float)
        self._machine.push(name)
        before = started = time.perf_counter()
        while (stage := self._stage(name)) is not None:
            time.sleep(LOOK_SECONDS)
            now = time.perf_counter()
            booked[stage] += now - before
            before = now
            if now - started > PATIENCE_SECONDS:
                raise TimeoutError(f"{name}: {stage.name}; said: {self._machine.said[-20:]}")
        return booked

    def _stage(self, name: str) -> Stage | None:
        ledger = look(self._machine.context).ledger
        release = self._machine.release(name)
        if release is None:
            return PUSH
        if release.phase is not ReleasePhase.CANDIDATE:
            return self._of_training(release.name, release.phase)
        rollouts = ledger.state("production", MODEL).rollouts.values()
        found = [one for one in rollouts if one.release == release.name]
        return self._of_rollout(found[-1]) if found else PROPOSAL

    def _of_training(self, release: str, phase: ReleasePhase) -> Stage:
        if phase not in (ReleasePhase.SUBMITTED, ReleasePhase.QUEUED, ReleasePhase.TRAINING):
            return RESULT
        job = self._world.cluster.job(TRAINING, f"{MODEL}-{release}")
        if job is None:
            return QUEUE
        return TRAIN if job.phase in (JobPhase.PENDING, JobPhase.RUNNING) else RESULT

    def _of_rollout(self, rollout: Rollout) -> Stage | None:
        if rollout.phase is RolloutPhase.LIVE:
            return None
        if rollout.phase is RolloutPhase.ANALYSING:
            passed = datetime.now(UTC) - rollout.history[-1].at
            return WAIT if passed.total_seconds() < STEP_SECONDS else JUDGE
        if self._starting():
            return SERVER
        stages = {RolloutPhase.PROPOSED: PROPOSAL, RolloutPhase.COMPLETING: FINISH}
        return stages.get(rollout.phase, TRAFFIC)

    def _starting(self) -> bool:
        """Say whether a model server is asked for that does not answer yet."""
        try:
            seen = self._world.serving.observe("production", MODEL)
        except MlgitopsError:
            return False
        return any(one is not None and not one.ready for one in (seen.baseline, seen.canary))


@contextmanager
def _machine(folder: Path) -> Iterator[Machine]:
    machine, made = Machine(folder), threading.Event()
    repository = machine.context.repository
    plan = Change(message="a plan that needs few requests", files={"environments.yaml": QUICK_PLAN.encode()})
    repository.update(MAIN, repository.snapshot(MAIN).revision, [plan])
    thread = threading.Thread(target=machine.run, args=(made,))
    thread.start()
    try:
        if not made.wait(30):
            raise TimeoutError("the engine did not start")
        yield machine
    finally:
        machine.leave()
        machine.engine.stop()
        thread.join(60)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: bytecode is kept
    os.environ.update(HERMETIC)
    print(f"{rounds} rounds, medians; load {os.getloadavg()[0]:.1f}\n")
    walks: list[tuple[dict[Stage, float], dict[Stage, float]]] = []
    bare: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="mlgitops-own-") as home, _machine(Path(home)) as machine:
            watch = Watch(machine)
            first = watch.push("fair")
            machine.users()
            walks.append((first, watch.push("better")))
            bare.append(_bare_seconds())
    _print(walks)
    milliseconds = statistics.median(bare) * 1000
    print(f"aim: {AIM_SECONDS:g} s of the tool's own, on a calm machine; `python -c pass` took {milliseconds:.0f} ms")
    return 0


def _bare_seconds() -> float:
    """Return what an empty Python takes, between the pushes of the engine that runs."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - started


def _print(walks: list[tuple[dict[Stage, float], dict[Stage, float]]]) -> None:
    print(f"{'':<32}{'first push':>12}{'second push':>13}")
    for own, title in ((True, "the tool's own"), (False, "beside it")):
        for stage in (one for one in STAGES if one.own is own):
            print(f"{stage.name:<32}" + _cells(walks, (stage,)))
        print(f"{title:<32}" + _cells(walks, tuple(one for one in STAGES if one.own is own)) + "\n")


def _cells(walks: list[tuple[dict[Stage, float], dict[Stage, float]]], stages: tuple[Stage, ...]) -> str:
    sums = [[sum(walk.get(stage, 0.0) for stage in stages) for walk in column] for column in zip(*walks, strict=True)]
    medians = [statistics.median(one) for one in sums]
    return f"{medians[0]:>10.2f} s{medians[1]:>11.2f} s"


if __name__ == "__main__":
    sys.exit(main())
