"""What one judgement of a rollout costs, by the number of intervals it rests on, with twelve latency buckets.

Run it on a calm machine: `python benchmarks/judge.py [intervals ...]`; by default 500, 2,000, 5,000 and 10,000, each
with three metrics and with ten. Processor time, the best of five. `replay` judges all from nothing; `look` adds one
interval to the evidence of all before, as a pass does; `reading` takes the samples from their file, and `unchanged`
asks for those of a file that did not grow, of which a pass judges nothing again.
"""

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.metrics.embedded import EmbeddedMetrics, samples_file
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.running import Running
from mlgitops.core.analysis.verdict import MetricVerdict, begin, judge_running
from mlgitops.core.configuration import MetricKind, MetricRule

SIZES: Final = (500, 2_000, 5_000, 10_000)
METRICS: Final = (3, 10)
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STEPS: Final = 3
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: Final[tuple[MetricKind, ...]] = ("errors", "latency", "labels")


def main() -> None:
    """Measure and print the table."""
    print(f"{'intervals':>9}  {'metrics':>7}  {'replay':>8}  {'look':>9}  {'reading':>8}  {'unchanged':>9}")
    for size in [int(one.replace(",", "")) for one in sys.argv[1:]] or SIZES:
        samples = world(2 * size)
        with tempfile.TemporaryDirectory(prefix="mlgitops-judge-") as home:
            _write(Path(home), samples)
            reading = _seconds(lambda home=home: EmbeddedMetrics(Path(home)).samples("production", "digits", 7))
            metrics = EmbeddedMetrics(Path(home))
            metrics.samples("production", "digits", 7)
            again = _seconds(lambda metrics=metrics: metrics.samples("production", "digits", 7))
        for count in METRICS:
            replay = _seconds(lambda samples=samples, count=count: judged(evidence(count), samples))
            known = evidence(count).after(samples[:-2])
            look = _seconds(lambda known=known, samples=samples: judged(known, samples[-2:]))
            times = f"{replay:>6.3f} s  {1000 * look:>6.2f} ms  {reading:>6.3f} s  {again:>7.4f} s"
            print(f"{size:>9,}  {count:>7}  {times}")


def evidence(count: int) -> Running:
    """Return the evidence of so many metrics before anything came."""
    kinds = itertools.islice(itertools.cycle(KINDS), count)
    return begin(
        [MetricRule(kind=kind, effect=3.0 + place, margin=1.0) for place, kind in enumerate(kinds)], dispersion=2.0
    )


def judged(running: Running, samples: list[Sample]) -> tuple[MetricVerdict, ...]:
    """Judge the last step by what is known and these samples."""
    return judge_running(running.after(samples), alpha=0.01, cohort=samples[-1].cohort)


def world(size: int) -> list[Sample]:
    """Return the samples of a healthy rollout of three steps, some failures and slow requests in both arms."""
    dice = random.Random(7)
    found: list[Sample] = []
    for place in range(size // 2):
        step = place * STEPS // (size // 2)
        if place == 0 or step != int(found[-1].cohort[-1]) - 1:
            counts = {arm: [0] * (3 + len(BOUNDS)) for arm in Arm}
        for arm, requests in ((Arm.CANARY, 4 * (step + 1)), (Arm.BASELINE, 40)):
            kept = counts[arm]
            for _ in range(requests):
                _request(dice, kept)
            total, failed, incorrect, *latency = kept
            found.append(
                Sample(
                    at=START + timedelta(seconds=place),
                    cohort=f"7-{step + 1}",
                    arm=arm,
                    total=total,
                    failed=failed,
                    labelled=total,
                    incorrect=incorrect,
                    latency=tuple(zip(BOUNDS, latency, strict=True)),
                )
            )
    return found


def _request(dice: random.Random, counts: list[int]) -> None:
    counts[0] += 1
    counts[1] += dice.random() < 0.002
    counts[2] += dice.random() < 0.03
    seconds = dice.lognormvariate(-4.0, 1.0)
    for place, bound in enumerate(BOUNDS):
        counts[3 + place] += seconds <= bound


def _write(home: Path, samples: list[Sample]) -> None:
    file = samples_file(home, "production", "digits", 7)
    file.parent.mkdir(parents=True)
    lines: list[dict[str, Any]] = [{"bounds": list(BOUNDS)}]
    for one in samples:
        names = ("total", "failed", "labelled", "incorrect")
        counts = {name: getattr(one, name) for name in names} | {"latency": [count for _, count in one.latency]}
        lines.append({"at": one.at.isoformat(), "cohort": one.cohort, "arm": str(one.arm), **counts})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _seconds(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


if __name__ == "__main__":
    main()
