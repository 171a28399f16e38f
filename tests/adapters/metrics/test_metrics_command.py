"""Counts from an operator's command: bounded, without credentials, and checked line by line."""

import json
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.metrics.chosen import ChosenMetrics, Sources
from mlgitops.adapters.metrics.command import CommandMetrics
from mlgitops.adapters.metrics.embedded import EmbeddedMetrics
from mlgitops.core.analysis.counts import check_samples
from mlgitops.core.configuration import MetricsSource
from mlgitops.core.errors import Unavailable
from mlgitops.core.schemas import schema
from mlgitops.ports.metrics import Arm

LINE = schema("sample")["examples"][0]


def command(folder: Path, program: str, *, seconds: float = 20.0) -> CommandMetrics:
    file = folder / "counts.py"
    file.write_text(f"import json, os, sys, time\n{program}\n")
    return CommandMetrics([sys.executable, str(file)], seconds=seconds)


def test_lines_become_samples_in_order(tmp_path: Path) -> None:
    """Each line is a sample, whatever the order, with its time in UTC; the command is told what it is about."""
    later = {**LINE, "at": "2026-01-31T11:00:05+02:00", "total": 12_001, "arm": "baseline"}
    program = f"""
assert sys.argv[1:] == ["production", "digits", "7"]
print({json.dumps(json.dumps(later))}); print(); print({json.dumps(json.dumps(LINE))})
"""
    found = command(tmp_path, program).samples("production", "digits", 7)
    assert [(one.at.isoformat(), one.arm, one.total) for one in found] == [
        ("2026-01-31T09:00:00+00:00", Arm.CANARY, 12_000),
        ("2026-01-31T09:00:05+00:00", Arm.BASELINE, 12_001),
    ]
    assert found[0].latency == ((0.05, 11_000), (0.1, 11_900))
    check_samples(found)


BAD_LINES = {
    "no JSON": "x",
    "NaN": json.dumps({**LINE, "total": float("nan")}),
    "a share": json.dumps({**LINE, "failed": 0.5}),
    "negative": json.dumps({**LINE, "failed": -1}),
    "another key": json.dumps({**LINE, "fialed": 1}),
    "no arm": json.dumps({key: value for key, value in LINE.items() if key != "arm"}),
    "a time without an offset": json.dumps({**LINE, "at": "2026-01-31T09:00:00"}),
    "no time": json.dumps({**LINE, "at": "yesterday"}),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_line_that_is_no_sample_decides_nothing(tmp_path: Path, case: str) -> None:
    """One bad line makes the whole answer unavailable, and the message names it."""
    (tmp_path / "out").write_text(json.dumps(LINE) + "\n" + BAD_LINES[case] + "\n")
    with pytest.raises(Unavailable, match="line 2 of its output is no sample"):
        command(tmp_path, f"print(open({str(tmp_path / 'out')!r}).read())").samples("production", "digits", 7)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("sys.stderr.write('no such table'); sys.exit(3)", "exit code 3: no such table"),
        ("time.sleep(60)", "takes too long"),
        ("os.close(1); os.close(2); time.sleep(60)", "takes too long"),
        ("while True: print('x' * 1_000_000)", "prints more than|takes too long"),
    ],
)
def test_a_command_that_fails_or_hangs_is_unavailable_in_time(tmp_path: Path, program: str, told: str) -> None:
    """No command can delay a pass beyond its time, fill the memory, or have its failure taken for no data."""
    start = time.monotonic()
    with pytest.raises(Unavailable, match=told):
        command(tmp_path, program, seconds=1.5).samples("production", "digits", 7)
    assert time.monotonic() - start < 10


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    """A process that the command left behind is ended."""
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(1.0); open({str(mark)!r}, 'w')"
    program = f"import subprocess; subprocess.Popen([sys.executable, '-c', {child!r}], stdout=2, stderr=2)"
    with pytest.raises(Unavailable):
        command(tmp_path, f"{program}\ntime.sleep(60)", seconds=0.4).samples("production", "digits", 7)
    time.sleep(1.2)
    assert not mark.exists()


def test_a_command_gets_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool's token and passphrase are not in the command's environment; the rest is."""
    monkeypatch.setenv("MLGITOPS_TOKEN", "planted-secret")
    monkeypatch.setenv("COUNTS_TABLE", "answers")
    program = "assert 'planted-secret' not in os.environ.values() and os.environ['COUNTS_TABLE'] == 'answers'"
    assert command(tmp_path, program).samples("production", "digits", 7) == ()


def test_a_command_is_tried_on_what_serves_now(tmp_path: Path) -> None:
    """A command that tells nothing of rollout 0 is named before any traffic moves."""
    assert "tells nothing" in command(tmp_path, "").problem("production", "digits")
    assert command(tmp_path, "print('{}')").problem("production", "digits") == ""


def test_no_file_in_a_repository_names_what_runs(tmp_path: Path) -> None:
    """`environments.yaml` chooses a kind of source alone; without the operator's settings it is unavailable."""
    chosen = ChosenMetrics(EmbeddedMetrics(tmp_path), Sources())
    assert chosen.samples("production", "digits", 1) == ()
    for kind, variable in (("prometheus", "MLGITOPS_PROMETHEUS"), ("command", "MLGITOPS_METRICS_COMMAND")):
        with pytest.raises(Unavailable, match=variable):
            chosen.using(MetricsSource(source=kind)).samples("production", "digits", 1)  # type: ignore[arg-type]
