"""A user's metric command: it reads the repository, is marked, and can write no result but its own numbers."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mlgitops.adapters.evaluator.command import run_command
from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
from mlgitops.adapters.evaluator.processes import start_time
from mlgitops.core.configuration import Gate
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest

WAIT_SECONDS = 60.0
WORKER = """
import json, pathlib, sys
import numpy
from mlgitops.adapters.evaluator.command import run_command
file = pathlib.Path(sys.argv[1])
request = json.loads(file.read_text())
own = run_command(
    request["specification"]["command"], source=pathlib.Path(request["source"]), data=file,
    predictions=numpy.ones(3), labels=numpy.ones(3), scratch=pathlib.Path.cwd(),
)
report = {"candidate": {"metrics": {}, "slices": {}}, "champion": None, "comparison": None, "selfReported": own}
(file.parent / "result.json").write_text(json.dumps({"report": report, "error": "", "refused": []}))
"""
FORGE = """
import json, os, pathlib, time
forged = json.dumps({"report": {"forged": True}, "error": "", "refused": []})
home = pathlib.Path.cwd().parents[1]
def write():
    (home / "result.json").write_text(forged)
    (home.parent / "outcome.json").write_text(forged)
write()
if os.fork() == 0:
    os.setsid()
    os.close(1)
    if os.fork():
        os._exit(0)
    pathlib.Path(PID).write_text(str(os.getpid()))
    while True:
        write()
        time.sleep(0.001)
while not pathlib.Path(PID).exists():
    time.sleep(0.01)
print(json.dumps({"profit": 1}))
"""


def evaluated(folder: Path, script: str) -> EvaluationOutcome:
    source = folder / "source"
    source.mkdir()
    (source / "evaluate.py").write_text(script)
    (source / "threshold.txt").write_text("7")
    (folder / "worker.py").write_text(WORKER)
    one = EmbeddedEvaluator(folder / "home", Path, worker=(sys.executable, str(folder / "worker.py")), probe=False)
    asked = EvaluationRequest(
        key="k",
        candidate_uri="/candidate",
        candidate_digest=None,
        champion_uri=None,
        champion_digest=None,
        data_uri="/data.npz",
        specification={"task": "classification", "command": ["python", "evaluate.py"]},
        source_uri=str(source),
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if outcome := one.evaluate(asked):
            return outcome
        time.sleep(0.02)
    pytest.fail("no outcome in time")


def test_a_command_reads_the_repository_and_its_metric_can_be_a_gate(tmp_path: Path) -> None:
    """The inputs of the release are where the command runs; what it reports is marked, and gates judge it."""
    script = "import json; print(json.dumps({'profit': int(open('threshold.txt').read())}))"
    report = evaluated(tmp_path, script).report
    assert report is not None
    assert report["selfReported"]["metrics"] == {"profit": 7.0}
    enough, more = judge_gates(report, [Gate(metric="profit", minimum=7), Gate(metric="profit", minimum=8)])
    assert (enough.passed, enough.self_reported, more.passed) == (True, True, False)


def test_a_command_cannot_write_the_result(tmp_path: Path) -> None:
    """Whatever a command, or what it leaves running, writes in the result's place, the worker's result counts."""
    outcome = evaluated(tmp_path, FORGE.replace("PID", repr(str(tmp_path / "pid"))))
    assert outcome.report is not None
    assert "forged" not in outcome.report
    assert outcome.report["selfReported"]["metrics"] == {"profit": 1.0}


def test_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    """What a command started in a session of its own has ended when its metrics are known; other processes go on."""
    script = f"""
import json, os, time
if os.fork() == 0:
    os.setsid()
    os.close(1)
    if os.fork():
        os._exit(0)
    open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
    time.sleep(600)
while not (os.path.exists({str(tmp_path / "pid")!r}) and open({str(tmp_path / "pid")!r}).read()):
    time.sleep(0.01)
print(json.dumps({{"a": 1}}))
"""
    other = os.posix_spawn(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ))
    try:
        answers = np.ones(3)
        found = run_command(
            ["python", "-c", script], source=None, data=tmp_path, predictions=answers, labels=answers, scratch=tmp_path
        )
        assert found["metrics"] == {"a": 1.0}, json.dumps(found)
        assert start_time(int((tmp_path / "pid").read_text())) is None
        assert start_time(other) is not None
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)
