"""The very workflows of this repository, called by those that `init` writes, run on a real runner program.

They work on a real engine and a git server that asks for a token. The runner, `act`, takes actions of others from
folders: here a checkout that copies trees, and nothing for Python and the cache, which the machine has. It refuses
`queue`, which forges know, so that line alone is left out.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlgitops.app.calling import initialise_workflows
from mlgitops.app.deciding import resume
from mlgitops.core.rollout import RolloutPhase
from tests.contract.serving.linear_model import ROOT
from tests.e2e.test_walk import Machine, machine
from tests.support.git_server import TOKEN, USER, http_server, run_git
from tests.support.world import MODEL

__all__ = ["machine"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
TOOL = "example/mlgitops@11bd71901bbe5b1630ceea73d27597364c9af683"
CHECKOUT = """\
name: checkout
inputs:
  repository: {default: ""}
  ref: {default: ""}
  path: {default: "."}
  persist-credentials: {default: ""}
  fetch-depth: {default: ""}
runs:
  using: composite
  steps:
    - shell: bash
      env: {TARGET: "${{ inputs.path }}"}
      run: |
        if [ "$TARGET" = . ]; then git clone -q "$CALLER_TREE" .; else cp -r "$TOOL_TREE" "$TARGET"; fi
"""
NOTHING = """\
name: nothing
inputs: {python-version: {default: ""}, path: {default: ""}, key: {default: ""}}
runs: {using: composite, steps: [{shell: bash, run: "true"}]}
"""


@dataclass
class Runner:
    """Runs workflows of a folder as a forge would."""

    machine: Machine
    folder: Path
    cache: Path
    location: str
    program: str
    token: str = TOKEN

    def run(self, place: Path, event: str, workflow: str, payload: Mapping[str, object]) -> tuple[int, str]:
        """Run one workflow; returns its exit code and what was said."""
        (self.folder / "event.json").write_text(json.dumps(payload))
        (self.folder / "variables").write_text(
            f"MLGITOPS_ENVIRONMENT_REPOSITORY={self.location}\nMLGITOPS_HOME={self.machine.home}\n"
            'MLGITOPS_RUNS_ON=["ubuntu-24.04"]\n'
        )
        words = [self.program, event, "-W", f".github/workflows/{workflow}.yml", "-P", "ubuntu-24.04=-self-hosted"]
        words += ["--no-cache-server", "--github-instance", "localhost", "-e", str(self.folder / "event.json")]
        words += ["--var-file", str(self.folder / "variables"), "-s", "MLGITOPS_TOKEN", "--local-repository"]
        words += [f"{TOOL}={self.folder / 'tool'}", *self._actions()]
        shown = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_PAGER": "cat",
            "CALLER_TREE": place,
            "TOOL_TREE": self.folder / "tool",
        }
        words += [word for name, value in shown.items() for word in ("--env", f"{name}={value}")]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "MLGITOPS_TOKEN": self.token}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        done = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        said = done.stdout + done.stderr
        assert self.token not in said
        return done.returncode, said

    def _actions(self) -> Iterator[str]:
        used = {
            line.split("uses:")[1].split("#")[0].strip()
            for path in (ROOT / ".github").rglob("*.yml")
            for line in path.read_text().splitlines()
            if "uses: actions/" in line
        }
        for action in sorted(used):
            name = "checkout" if "/checkout@" in action else "nothing"
            yield from ("--local-repository", f"{action}={self.folder / name}")


def tool(target: Path) -> None:
    """Copy what a checkout of this repository would have."""
    listed = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT)
    for name in filter(None, listed.split("\0")):
        if name.startswith((".github/", "mlgitops/", "schemas/", "environments/", "requirements.txt")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    for path in (target / ".github" / "workflows").iterdir():
        path.write_text("".join(line for line in path.read_text().splitlines(True) if line.strip() != "queue: max"))


@pytest.fixture
def runner(machine: Machine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    program = shutil.which("act")
    if program is None:
        pytest.skip("there is no `act`; `go install github.com/nektos/act@v0.2.89` makes one")
    for name, text in {"checkout": CHECKOUT, "nothing": NOTHING}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "action.yml").write_text(text)
    tool(tmp_path / "tool")
    with http_server(machine.home) as server:
        location = f"http://127.0.0.1:{server.server_address[1]}/environment.git"
        yield Runner(machine, tmp_path, tmp_path_factory.getbasetemp() / "runner", location, program)


def released(runner: Runner, name: str) -> tuple[int, str]:
    """Commit in the model repository, and run what a push starts."""
    place = runner.machine.place
    if not (place / ".github").exists():
        initialise_workflows(place, TOOL)
    runner.machine.commit(name)
    return runner.run(place, "push", "train", {"ref": "refs/heads/main"})


def checkout(runner: Runner) -> Path:
    """Return a clone of the environment repository with its workflows."""
    place = runner.folder / "clone"
    address = runner.location.replace("://", f"://{USER}:{TOKEN}@")
    run_git("clone", "-q", address, place, folder=runner.folder)
    initialise_workflows(place, TOOL)
    run_git("add", "-A", folder=place)
    run_git("commit", "-qm", "workflows", folder=place)
    run_git("push", "-q", "origin", "main", folder=place)
    return place


def test_a_push_ends_in_production_and_people_go_back_and_forth(runner: Runner) -> None:
    """A push's workflow makes a release that goes to production; then rollback and promotion are one dispatch each."""
    machine = runner.machine
    code, said = released(runner, "fair")
    assert code == 0, said
    release = machine.release("fair")
    assert release is not None
    machine.until("the first release serves", lambda: machine.phase("fair") is RolloutPhase.LIVE)

    place = checkout(runner)
    dispatch = {"inputs": {"reason": "users complain"}, "ref": "refs/heads/main"}
    code, said = runner.run(place, "workflow_dispatch", "rollback", dispatch)
    assert code == 0, said
    machine.until("it is taken back", lambda: machine.phase("fair") is RolloutPhase.ROLLED_BACK)
    hold = machine.state().hold
    assert hold is not None
    assert "nektos/act" in hold.by, "whoever asked is the author"

    refused = {"inputs": {"release": release.name}, "ref": "refs/heads/main"}
    code, said = runner.run(place, "workflow_dispatch", "promote", refused)
    assert code != 0
    assert "on hold by" in said
    assert machine.state().last_number == 1

    resume(machine.context, MODEL, None)
    forced = {"inputs": {"release": release.name, "force": "true", "reason": "it was the client"}}
    code, said = runner.run(place, "workflow_dispatch", "promote", forced)
    assert code == 0, said
    machine.until("it serves again", lambda: machine.state().live is not None and machine.state().last_number == 2)


def test_a_push_that_fails_its_tests_or_may_not_write_makes_nothing(runner: Runner) -> None:
    """The workflow fails and says why; no release is there, and the token that was refused is nowhere."""
    machine = runner.machine
    configuration = (machine.place / "mlgitops.yaml").read_text()
    test = "test: {command: [python, -c, \"raise SystemExit('the test says no')\"]}\n"
    (machine.place / "mlgitops.yaml").write_text(configuration + test)
    code, said = released(runner, "fair")
    assert code != 0
    assert "the test says no" in said
    (machine.place / "mlgitops.yaml").write_text(configuration)
    runner.token = "another-t0ken-that-opens-nothing"
    code, said = released(runner, "better")
    assert code != 0
    assert "::error::" in said
    assert machine.release("fair") is None
    assert machine.release("better") is None


def test_a_change_that_breaks_a_rule_fails_its_review(runner: Runner) -> None:
    """A pull request's workflow tells broken rules at their lines, and passes what breaks none."""
    place = checkout(runner)
    pull = {"pull_request": {"base": {"ref": "main"}, "head": {"ref": "change"}}}
    run_git("switch", "-qc", "change", folder=place)
    code, said = runner.run(place, "pull_request", "review", pull)
    assert code == 0, said
    text = (place / "environments.yaml").read_text()
    (place / "environments.yaml").write_text(text.replace("alpha: 0.01", "alpha: 7"))
    run_git("commit", "-qam", "more", folder=place)
    code, said = runner.run(place, "pull_request", "review", pull)
    assert code != 0
    assert "environments.yaml" in said
