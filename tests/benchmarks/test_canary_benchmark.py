"""The canary benchmark judges by the judge's own functions, and runs as it is documented."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from benchmarks.canary import figures, tables, twin
from benchmarks.canary.__main__ import main
from benchmarks.canary.detection import Detection, detection
from benchmarks.canary.study import OURS, RULES, Outcome, Result, Share, study
from benchmarks.canary.traffic import CAREFUL, EFFECTS, NOISE, USUAL, Effect, Scenario, traffic

ROOT = Path(__file__).parents[2]
BY_KIND = [EFFECTS[2], EFFECTS[4], EFFECTS[5]]


@pytest.mark.parametrize("worse", [False, True])
@pytest.mark.parametrize("effect", BY_KIND, ids=[one.kind for one in BY_KIND])
@pytest.mark.parametrize("requests", [0.1, 20])
def test_the_twin_says_what_the_judge_says(effect: Effect, requests: float, *, worse: bool) -> None:
    """In arrays or one by one, with silent arms, bursts, late labels and four steps: the same evidence and outcome."""
    late = 5.0 if effect.kind == "labels" else 0.0
    scenario = Scenario(effect=effect, requests_per_second=requests, noise=NOISE, label_delay_minutes=late)
    counts = traffic(scenario, np.random.default_rng(7), 12, worse=worse)
    dispersion = np.linspace(1, 4, 12)
    path = twin.courses(counts, effect, [dispersion])[0]
    assert np.ptp(path.max(axis=1)) > 0
    twin.agrees(counts, scenario, dispersion, path, range(12))


def test_a_twin_that_differs_ends_the_benchmark() -> None:
    """Evidence that the judge does not find is not published."""
    scenario = Scenario(effect=EFFECTS[2], requests_per_second=10)
    counts = traffic(scenario, np.random.default_rng(7), 2, worse=True)
    path = twin.courses(counts, scenario.effect, [np.ones(1)])[0]
    with pytest.raises(AssertionError, match="the judge says"):
        twin.agrees(counts, scenario, np.ones(2), path * 1.001, [0])


def test_the_arms_of_an_equal_canary_are_alike() -> None:
    """Requests, rates and delays of both arms come from the same distribution; a worse canary's rate is higher."""
    scenario = Scenario(effect=EFFECTS[4], requests_per_second=50, plan=replace(USUAL, steps=((0.5, 20),)))
    for late in (0.0, 5.0):
        equal, worse = (
            traffic(replace(scenario, label_delay_minutes=late), np.random.default_rng(3), 400, worse=one)
            for one in (False, True)
        )
        known, other = equal.canary.sum(), equal.baseline.sum()
        assert known == pytest.approx(other, rel=0.01)
        assert equal.canary_bad.sum() / known == pytest.approx(0.08, rel=0.02)
        assert equal.baseline_bad.sum() / other == pytest.approx(0.08, rel=0.02)
        assert worse.canary_bad.sum() / worse.canary.sum() == pytest.approx(0.15, rel=0.02)
        seconds = 20 * 60
        assert known / (400 * 25 * seconds) == pytest.approx(1 if not late else 0.754, rel=0.01)  # 1 − (1 − e⁻⁴)/4


def test_bursts_have_the_noise_that_they_are_said_to_have() -> None:
    """Per minute, rates vary by 0.3 of their mean, and are correlated by 0.7 with those of the minute before."""
    scenario = Scenario(
        effect=EFFECTS[3], requests_per_second=1e5, plan=replace(USUAL, steps=((0.5, 60),)), noise=NOISE
    )
    canary, bad, _, _ = traffic(scenario, np.random.default_rng(3), 500, worse=False).series(0)
    rates = bad / canary
    assert rates.std() / rates.mean() == pytest.approx(NOISE, rel=0.05)
    deviation = rates - rates.mean()
    assert (deviation[:, 1:] * deviation[:, :-1]).mean() / deviation.var() == pytest.approx(0.7, abs=0.03)


def test_a_study_gives_the_same_twice() -> None:
    """The seed settles everything, and every rule is asked."""
    scenario = Scenario(effect=EFFECTS[2], requests_per_second=10, plan=CAREFUL)
    one, other = (study(scenario, runs=40, seed=[1, 2]) for _ in range(2))
    assert one == other
    assert set(one.outcomes) == set(RULES)
    assert one.outcomes[OURS].detected.count > 30


def test_detection_takes_few_more_requests_than_the_oracle() -> None:
    """With the effect named, within 1.25 × the oracle's requests on average; no test is quicker than the bound."""
    found = detection(EFFECTS[2], np.random.default_rng(5), 300)
    assert found.bound == pytest.approx(409, abs=1)
    assert found.oracle.mean() > 0.95 * found.bound
    assert 1 < found.ratio[0] < tables.MEAN_RATIO


def test_the_page_tells_of_every_rule() -> None:
    """Tables and drawings hold every rule, stand alone and can be read."""
    scenarios = [Scenario(effect=EFFECTS[2], requests_per_second=10, noise=noise) for noise in (0.0, NOISE)]
    results = [study(one, runs=20, seed=[1, 2]) for one in scenarios]
    detections = [detection(EFFECTS[2], np.random.default_rng(5), 20)]
    page = tables.page(detections, results, 20, 1)
    assert all(f"| {rule} |" in page for rule in RULES)
    drawings = figures.drawings(detections, results)
    assert set(drawings) == {"canary-false-rollbacks", "canary-detected", "canary-requests"}
    assert all(ET.fromstring(one).tag == "{http://www.w3.org/2000/svg}svg" for one in drawings.values())


def test_a_missed_figure_is_told() -> None:
    """More false rollbacks than chance explains, or too many requests, are named; without any nothing is."""
    scenario = Scenario(effect=EFFECTS[2], requests_per_second=10)
    share = Share(count=0, runs=2_000)
    fine = Outcome(false_rollbacks=share, detected=share, median_minutes=None)
    bad = replace(fine, false_rollbacks=Share(count=40, runs=2_000))
    quick = detection(EFFECTS[2], np.random.default_rng(5), 50)
    slow = replace(quick, named=quick.oracle * 2)

    def found(outcome: Outcome, one: Detection) -> list[str]:
        result = Result(scenario=scenario, dispersion=1.0, outcomes=dict.fromkeys(RULES, outcome))
        return tables.missed([one], [result])

    assert found(fine, quick) == []
    assert found(bad, quick) == [f"{scenario.name}: 2.00 % (1.47–2.71) false rollbacks"]
    assert found(fine, slow) == ["requests to detection on average", EFFECTS[2].name]


@pytest.mark.long
def test_the_quick_benchmark_writes_its_page_and_plots(tmp_path: Path) -> None:
    """One command prints what is to be reached, and writes tables and drawings."""
    command = [sys.executable, "-m", "benchmarks.canary", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "× the oracle's" in done.stdout
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".md", ".svg", ".svg", ".svg"]


def test_few_rollouts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A share of a handful of rollouts would be read as a figure."""
    with pytest.raises(SystemExit, match="2"):
        main(["--runs", "5", "--output", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()
    assert "fewer than 20 rollouts say nothing" in capsys.readouterr().err
