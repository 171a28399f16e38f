"""What one judgement of a rollout costs, by the number of samples it rests on; three metrics, twelve latency buckets.

Run it on a calm machine: `python benchmarks/judge.py [samples ...]`; by default 1,000, 4,000, 10,000. Processor time,
the best of three. `first` judges all, `reading` takes the samples from their file, and `unchanged` asks for those
of a file that did not grow, of which a pass judges nothing again. On a busy machine of two processors, `first` took
0.13 s, 0.70 s and 2.0 s, and 0.58 s, 2.7 s and 7.0 s when bets were taken anew for each step and bucket.
"""

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
from mlgitops.core.analysis.verdict import Verdict, judge
from mlgitops.core.configuration import MetricKind, MetricRule

SIZES: Final = (1_000, 4_000, 10_000)
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STEPS: Final = 3
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: Final[tuple[MetricKind, ...]] = ("errors", "latency", "labels")


def main() -> None:
    """Measure and print the table."""
    print(f"{'samples':>8}  {'first':>8}  {'reading':>8}  {'unchanged':>9}")
    for size in [int(one.replace(",", "")) for one in sys.argv[1:]] or SIZES:
        samples = world(size)
        first = _seconds(lambda samples=samples: judged(samples))
        with tempfile.TemporaryDirectory(prefix="mlgitops-judge-") as home:
            _write(Path(home), samples)
            reading = _seconds(lambda home=home: EmbeddedMetrics(Path(home)).samples("production", "digits", 7))
            metrics = EmbeddedMetrics(Path(home))
            metrics.samples("production", "digits", 7)
            again = _seconds(lambda metrics=metrics: metrics.samples("production", "digits", 7))
        print(f"{size:>8,}  {first:>6.3f} s  {reading:>6.3f} s  {again:>7.4f} s")


def judged(samples: list[Sample]) -> Verdict:
    """Judge the last step with three metrics."""
    rules = [MetricRule(kind=kind, effect=3.0, margin=1.0) for kind in KINDS]
    cohort = samples[-1].cohort
    return judge(samples, rules, alpha=0.01, dispersion=2.0, cohort=cohort, elapsed_seconds=1.0, step_seconds=60.0)


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
    for _ in range(3):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


if __name__ == "__main__":
    main()
