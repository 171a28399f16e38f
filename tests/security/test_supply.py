"""What the project takes from others is fixed by its bytes, and is asked about."""

import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
PINNED = r"[\w./-]+@[0-9a-f]{40}"
TOOL = "./.mlgitops-tool/.github/actions/mlgitops"
"""The action of the commit that a called workflow is of."""
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
            assert "uses" not in step or step["uses"] == TOOL or re.fullmatch(PINNED, step["uses"])
            assert "${{" not in step.get("run", "")
            assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_the_action_is_pinned() -> None:
    """The action that installs the tool names the actions it uses by their commits, and scripts read no expression."""
    steps = yaml.safe_load((ROOT / ".github" / "actions" / "mlgitops" / "action.yml").read_text())["runs"]["steps"]
    assert all(re.fullmatch(PINNED, step["uses"]) for step in steps if "uses" in step)
    assert not [step for step in steps if "${{" in step.get("run", "")]


def test_workflows_install_what_is_locked_for_tests() -> None:
    """What the action installs is what the tests ran with: the same versions, with every dependency of the project."""
    tested, installed = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements-dev.txt", "requirements.txt")
    )
    assert {name: tested.get(name) for name in installed} == installed
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[^\w-]", one)[0] for one in wanted} <= set(installed)


@pytest.mark.parametrize(("name", "least"), [("requirements-dev.txt", 50), ("requirements.txt", 20)])
def test_every_locked_package_has_its_hashes(name: str, least: int) -> None:
    """The lock names each package by version and digest, so that no index can slip in another one."""
    blocks = re.split(r"\n(?=\S)", (ROOT / name).read_text())
    locked = [block for block in blocks if "==" in block.split("\n")[0]]
    assert len(locked) > least
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
