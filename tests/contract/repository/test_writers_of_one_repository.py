"""Many writers of one branch: processes of the tool and plain git clients, each deciding again when it lost a race."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlgitops.ports.repository import Change
from tests.support.git_server import USER, run_git

MAIN = "refs/heads/main"
PATIENCE_SECONDS = 240


@pytest.mark.parametrize(
    ("place", "tools", "people", "count"),
    [
        ("path", 5, 3, 3),
        ("http", 5, 3, 1),
        ("ssh", 2, 1, 2),
        pytest.param("path", 11, 5, 6, marks=pytest.mark.long),
        pytest.param("http", 11, 5, 2, marks=pytest.mark.long),
        pytest.param("ssh", 11, 5, 2, marks=pytest.mark.long),
    ],
    indirect=["place"],
)
def test_every_commit_of_many_writers_lands_once(place, tmp_path, tools, people, count):
    """Whoever else writes, each commit lands once, on top of the one it was decided on, and undoes nothing."""
    seed = Change(message="begin", files={"lines": b"begin\n"})
    place.open("seed").create({MAIN: seed})
    running = [_tool(place, tmp_path, f"tool{number}", count) for number in range(tools)]
    names = [f"person{number}" for number in range(people)]
    try:
        with ThreadPoolExecutor(people) as pool:
            list(pool.map(lambda name: _person(place, tmp_path, name, count), names))
        assert [one.wait(timeout=PATIENCE_SECONDS) for one in running] == [0] * tools
    finally:
        for one in running:
            one.kill()
            one.wait()
    names += [f"tool{number}" for number in range(tools)]
    _check(place, {f"{name}-{number}" for name in names for number in range(count)})


def _tool(place, folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """Start a process that writes with the tool's `update`."""
    opens = {}
    if given := place.credentials:
        opens = {"token": given.token, "key": given.key, "known_hosts": given.known_hosts}
    script, words = Path(__file__).with_name("writer.py"), json.dumps(opens, default=str)
    return subprocess.Popen([sys.executable, script, place.location, folder / f"cache-{name}", name, str(count), words])


def _person(place, folder: Path, name: str, count: int) -> None:
    """Clone, commit and push with git alone, by the same way as the tool."""
    location, settings = place.location, []
    if place.credentials and place.credentials.token:
        location = location.replace("://", f"://{USER}:{place.credentials.token}@")
    elif place.credentials:
        known = f"-o UserKnownHostsFile={place.credentials.known_hosts} -o StrictHostKeyChecking=yes"
        ssh = f"ssh -F none -o IdentitiesOnly=yes -i {place.credentials.key} {known}"
        settings = ["-c", f"core.sshCommand={ssh}"]
    run_git(*settings, "clone", "--quiet", location, name, folder=folder)
    clone = folder / name
    for number in range(count):
        line = f"{name}-{number}"
        while True:
            run_git(*settings, "fetch", "--quiet", "origin", "main", folder=clone)
            run_git("reset", "--quiet", "--hard", "FETCH_HEAD", folder=clone)
            with (clone / "lines").open("a") as lines:
                lines.write(line + "\n")
            (clone / "own").mkdir(exist_ok=True)
            (clone / "own" / line).write_text("x")
            run_git("add", ".", folder=clone)
            run_git("commit", "--quiet", "-m", line, folder=clone)
            try:
                run_git(*settings, "push", "--quiet", "origin", "HEAD:main", folder=clone)
            except RuntimeError:
                continue
            break


def _check(place, expected: set[str]) -> None:
    """Compare the whole history with what was written: a line for each commit, in the order of the commits."""
    history = [line.split(" ") for line in place.git("log", "--reverse", "--format=%s %P", MAIN).splitlines()]
    landed = [subject for subject, *_ in history]
    assert sorted(landed) == sorted([*expected, "begin"])
    assert [len(parents) for _, *parents in history[1:]] == [1] * len(expected)
    assert place.git("show", f"{MAIN}:lines").splitlines() == landed
    changed = place.git("log", "--format=", "--numstat", MAIN, "--", "lines").splitlines()
    assert changed == ["1\t0\tlines"] * len(history)
    assert set(place.git("ls-tree", "-r", "--name-only", f"{MAIN}:own").splitlines()) == expected
    assert place.git("fsck", "--strict", "--no-dangling") == ""
