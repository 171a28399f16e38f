"""What the project takes from others is fixed by its bytes, and is asked about."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
STEPS = [path for path in WORKFLOWS if path.parent.name == "workflows"]


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name)
def test_workflows_are_pinned_and_minimal(path: Path) -> None:
    """Every action is named by its commit, no token may do more than a job needs, no untrusted text is in a script."""
    text = path.read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {}
    assert "pull_request_target" not in text
    for job in flow["jobs"].values():
        assert set(job["permissions"].values()) <= {"read"}, "a grant to write needs a reason, and this test a change"
        for step in job["steps"]:
            assert "uses" not in step or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            assert "${{" not in step.get("run", "")
            assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_every_locked_package_has_its_hashes() -> None:
    """The lock names each package by version and digest, so that no index can slip in another one."""
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements-dev.txt").read_text())
    locked = [block for block in blocks if "==" in block.split("\n")[0]]
    assert len(locked) > 50
    assert all("--hash=sha256:" in block for block in locked)
    assert not [block for block in blocks if block.startswith(("-", "git+", "http"))]


@pytest.fixture
def audit() -> ModuleType:
    found = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def done(code: int, out: object) -> "subprocess.CompletedProcess[str]":
    text = out if isinstance(out, str) else json.dumps({"dependencies": out})
    return subprocess.CompletedProcess([], code, text, "")


GOOD = {"name": "click", "version": "8.2", "vulns": []}
WEAK = {"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
UNKNOWN = {"name": "y", "skip_reason": "not found"}
CLEAN = done(0, "No findings to report. Good job!")


@pytest.mark.parametrize(
    ("packages", "workflows", "code", "said"),
    [
        (done(0, [GOOD]), CLEAN, 0, "1 of 1 were asked about"),
        (done(1, [GOOD, WEAK]), CLEAN, 1, "x 1: PYSEC-1, mended in 2"),
        (done(0, [UNKNOWN]), CLEAN, 0, "skipped: packages"),
        (done(1, "no route to host"), CLEAN, 0, "skipped: packages"),
        (None, None, 0, "skipped: workflows"),
        (done(0, [GOOD]), done(14, "error[unpinned-uses]: x\n1 findings: 1 high"), 1, "unpinned-uses"),
    ],
)
def test_the_audit_finds_tells_and_skips(audit, monkeypatch, capsys, packages, workflows, code: int, said: str) -> None:
    """A known weakness fails the gate; where nobody can be asked that is told, and fails nothing."""
    monkeypatch.setattr(audit, "_run", lambda tool, *_: packages if tool.startswith("pip-audit") else workflows)
    assert audit.main() == code
    assert said in capsys.readouterr().out
