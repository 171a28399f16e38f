"""Evaluations as processes: run once, bounded, without credentials, whatever becomes of the caller."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
from mlgitops.adapters.evaluator.processes import start_time
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.ports.evaluator import EvaluationRequest

GOOD = """
    import json, pathlib, sys
    request = pathlib.Path(sys.argv[1])
    report = {"seen": json.loads(request.read_text())["key"]}
    def answer(**more):
        result = {"report": report, "error": "", "refused": [], **more}
        (request.parent / "result.json").write_text(json.dumps(result))
"""
WAIT_SECONDS = 60.0
ROOT = Path(__file__).parents[3]
"""Where a process finds this module."""


def evaluator(folder: Path, script, **options):
    """An evaluator whose worker is a script that may use `request`, `report` and `answer`."""
    worker = folder / "worker.py"
    worker.write_text(textwrap.dedent(GOOD) + textwrap.dedent(script).replace("OUTSIDE", repr(str(folder))))
    return EmbeddedEvaluator(
        folder / "home", lambda uri: Path(uri.removeprefix("file://")), worker=(sys.executable, str(worker)), **options
    )


def request(key: str = "first", **specification):
    return EvaluationRequest(
        key=key,
        candidate_uri="file:///candidate",
        candidate_digest=None,
        champion_uri=None,
        champion_digest=None,
        data_uri="file:///data.npz",
        specification={"task": "classification", **specification},
    )


def wait(one, asked):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if outcome := one.evaluate(asked):
            return outcome
        time.sleep(0.05)
    pytest.fail("no outcome in time")


def until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_asked_twice_runs_once(tmp_path: Path) -> None:
    """However often and from wherever one asks, a key is evaluated once; another key anew."""
    one = evaluator(tmp_path, "open(OUTSIDE + '/runs', 'a').write('x'); answer()")
    assert one.evaluate(request()) is None
    assert wait(one, request()).report == {"seen": "first"}
    assert wait(one, request("second")).report == {"seen": "second"}
    other = evaluator(tmp_path, "raise SystemExit(1)")
    assert other.evaluate(request()).report == {"seen": "first"}
    assert (tmp_path / "runs").read_text() == "xx"


def test_callers_at_once_start_one(tmp_path: Path) -> None:
    """Several processes that ask at the same moment start one evaluation."""
    evaluator(tmp_path, "import time; open(OUTSIDE + '/runs', 'a').write('x'); time.sleep(1); answer()")
    code = textwrap.dedent(
        f"""
        import pathlib
        from tests.adapters.evaluator.test_embedded_evaluator import EmbeddedEvaluator, request
        one = EmbeddedEvaluator(
            pathlib.Path({str(tmp_path)!r}) / "home", pathlib.Path,
            worker=({sys.executable!r}, {str(tmp_path / "worker.py")!r}),
        )
        assert one.evaluate(request()) is None
        """
    )
    callers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(3)]
    assert [caller.wait(WAIT_SECONDS) for caller in callers] == [0, 0, 0]
    one = EmbeddedEvaluator(tmp_path / "home", Path)
    # The callers have ended; the evaluation has not, and ends well.
    assert wait(one, request()).report == {"seen": "first"}
    assert (tmp_path / "runs").read_text() == "x"


def test_no_credentials_get_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker sees none of the caller's variables, a home of its own, and works in a folder that goes away."""
    for name in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "MLGITOPS_TOKEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret-value")
    one = evaluator(tmp_path, "import os; report.update(dict(os.environ), cwd=os.getcwd()); answer()")
    report = wait(one, request()).report
    assert "secret-value" not in json.dumps(report)
    assert report["HOME"] != os.environ["HOME"]
    assert report["HOME"] == report["cwd"]
    assert not Path(report["cwd"]).exists()


def test_time_limit_ends_everything_that_was_started(tmp_path: Path) -> None:
    """An evaluation that takes too long is ended with all its descendants, also those in sessions of their own."""
    one = evaluator(
        tmp_path,
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                if os.fork():
                    os._exit(0)
                open(OUTSIDE + f'/{os.getpid()}.child', 'w').close()
                time.sleep(600)
        time.sleep(600)
        """,
    )
    outcome = wait(one, request(timeoutSeconds=2))
    assert "longer than 2 seconds" in outcome.error
    assert outcome.report is None
    children = [int(path.stem) for path in tmp_path.glob("*.child")]
    assert len(children) == 2
    assert [pid for pid in children if start_time(pid) is not None] == []


def test_memory_limit_holds(tmp_path: Path) -> None:
    """An evaluation that takes more memory than allowed is ended and not tried again."""
    one = evaluator(
        tmp_path,
        """
        import time
        open(OUTSIDE + '/runs', 'a').write('x')
        held = [bytearray(b'x' * (8 << 20)) for _ in range(40)]
        time.sleep(600)
        """,
    )
    assert "more than 256 megabytes" in wait(one, request(memoryMegabytes=256)).error
    assert (tmp_path / "runs").read_text() == "x"


def test_file_limit_holds(tmp_path: Path) -> None:
    """No file grows beyond the limit, so that nothing fills the disk."""
    one = evaluator(
        tmp_path,
        """
        import resource
        report['limits'] = [resource.getrlimit(one) for one in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)]
        answer()
        """,
    )
    assert wait(one, request()).report["limits"] == [[1 << 30, 1 << 30], [0, 0]]


def test_crash_is_tried_once_more(tmp_path: Path) -> None:
    """A crash that does not come again costs nothing."""
    one = evaluator(
        tmp_path,
        """
        import os, signal
        open(OUTSIDE + '/runs', 'a').write('x')
        if open(OUTSIDE + '/runs').read() == 'x':
            os.kill(os.getpid(), signal.SIGSEGV)
        answer()
        """,
    )
    outcome = wait(one, request())
    assert (outcome.report, outcome.error) == ({"seen": "first"}, "")


def test_crash_that_comes_again_is_no_answer(tmp_path: Path) -> None:
    """After two crashes there is an error with signal or status and the end of the log, and no third run."""
    one = evaluator(tmp_path, "open(OUTSIDE + '/runs', 'a').write('x'); raise RuntimeError('lost my way')")
    outcome = wait(one, request())
    assert outcome.report is None
    assert "ended with status 1" in outcome.error
    assert "lost my way" in outcome.error
    assert (tmp_path / "runs").read_text() == "xx"
    assert "lost my way" in one.log("first")


def test_killed_supervisor_is_replaced_once(tmp_path: Path) -> None:
    """When the watcher itself is killed its worker ends too; it is started once more, then there is an error."""
    one = evaluator(tmp_path, "import os, time; open(OUTSIDE + f'/{os.getpid()}.worker', 'w').close(); time.sleep(600)")
    for count in (1, 2):
        assert one.evaluate(request()) is None
        until(lambda expected=count: len(list(tmp_path.glob("*.worker"))) == expected)
        os.kill(json.loads((one.folder("first") / "process.json").read_text())["pid"], signal.SIGKILL)
        until(lambda: all(start_time(int(path.stem)) is None for path in tmp_path.glob("*.worker")))
    outcome = wait(one, request())
    assert outcome.error == "the evaluation was ended from outside 2 times"


def test_someone_elses_pid_is_not_taken_for_the_evaluation(tmp_path: Path) -> None:
    """A recorded pid that now belongs to another process does not count as running."""
    one = evaluator(tmp_path, "answer()")
    folder = one.folder("first")
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": os.getpid(), "startTime": 1, "starts": 1}))
    assert wait(one, request()).report == {"seen": "first"}


def test_refusals_arrive(tmp_path: Path) -> None:
    """Why a model is refused reaches the caller in the worker's words."""
    one = evaluator(tmp_path, "answer(report=None, refused=['it has operations', 'its probe failed'])")
    outcome = wait(one, request())
    assert outcome.refused == ("it has operations", "its probe failed")
    assert outcome.report is None


@pytest.mark.parametrize(
    "specification", [{"task": "poetry"}, {"timeoutSeconds": 0}, {"memoryMegabytes": "much"}, {"timeoutSeconds": True}]
)
def test_bad_specifications_start_nothing(tmp_path: Path, specification) -> None:
    """A specification without a known task or with limits that are no numbers is refused at once."""
    one = evaluator(tmp_path, "answer()")
    with pytest.raises(InvalidInput, match=r"evaluation\."):
        one.evaluate(request(**specification))
    assert not (one.folder("first") / "process.json").exists()


def test_missing_model_is_told_at_once(tmp_path: Path) -> None:
    """What the store does not have is the caller's error, not an evaluation's."""

    def nothing(uri):
        raise NotFound("artifact", uri)

    with pytest.raises(NotFound):
        EmbeddedEvaluator(tmp_path, nothing).evaluate(request())
