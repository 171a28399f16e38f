"""The same traffic, judged by mlgitops and by the published rules of others.

    python -m benchmarks.canary [--quick] [--runs N] [--seed N] [--output FOLDER]

Prints the figures that mlgitops has to reach and what it reaches; with `--output` writes all tables (Markdown) and
plots (SVG) there. Exit code 1 when a figure is missed beyond what chance of the simulation allows. `--quick` takes
seconds: two effects at one rate, 100 rollouts each.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.canary import figures, tables
from benchmarks.canary.detection import Detection, detection
from benchmarks.canary.study import RATES, Result, scenarios, study
from benchmarks.canary.traffic import EFFECTS

SEED = 20261130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canary", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="two effects at one rate, 100 rollouts each")
    parser.add_argument("--runs", type=int, help="rollouts of a scenario (2,000)")
    parser.add_argument("--seed", type=int, default=SEED, help="the same seed gives the same figures")
    parser.add_argument("--output", type=Path, help="folder for tables and plots")
    given = parser.parse_args(arguments)
    runs = given.runs or (100 if given.quick else 2_000)
    if runs < 20:
        parser.error("fewer than 20 rollouts say nothing")
    detections, results = run(runs=runs, seed=given.seed, quick=given.quick)
    print(tables.summary(detections, results))
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        (given.output / "canary-results.md").write_text(tables.page(detections, results, runs, given.seed), "utf-8")
        for name, drawing in figures.drawings(detections, results).items():
            (given.output / f"{name}.svg").write_text(drawing, "utf-8")
    return int(bool(tables.missed(detections, results)))


def run(*, runs: int, seed: int, quick: bool) -> tuple[list[Detection], list[Result]]:
    """Let everything be judged; progress goes to stderr."""
    effects = [EFFECTS[2], EFFECTS[4]] if quick else EFFECTS
    started = time.monotonic()
    detections = [detection(one, np.random.default_rng([seed, 0, place]), runs) for place, one in enumerate(effects)]
    results, every = [], list(scenarios(effects, (10.0,) if quick else RATES))
    for place, scenario in enumerate(every):
        results.append(study(scenario, runs=runs, seed=[seed, 1, place]))
        print(f"{place + 1}/{len(every)} {time.monotonic() - started:4.0f} s  {scenario.name}", file=sys.stderr)
    return detections, results


if __name__ == "__main__":
    sys.exit(main())
