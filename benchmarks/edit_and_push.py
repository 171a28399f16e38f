"""One edit of a manifest, pushed over http while another writer commits: the tool beside the git command line.

    python benchmarks/edit_and_push.py [--quick] [--rounds N] [--writer-seconds S]

Both are whole processes on one server, git's own http backend on loopback. The tool has its clone of the last time; git
makes a shallow clone with a checkout, as common updaters of manifests do, edits, commits, pushes, and rebases where it
was beaten. Rounds are interleaved, so that a change of load falls on both; a row tells medians, and the ratio is the
median of the rounds' own. `first` is the tool's first run, which makes its clone. Everything lies in memory where the
machine has /dev/shm (`--folder` says otherwise): a checkout of 100,000 files on a disk measures the disk.

Limits: git takes at least 2 times as long at 10,000 files and 10 times at 100,000; the tool stays below 80 MB, and what
it takes at the most files is at most 2 times what it takes at the fewest; 90 edits as 90 pushes take at least 4 times
what they take as one. Exit code 1 when one is missed; `--quick` judges nothing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mlgitops.adapters.repository.bare import init_bare  # noqa: E402 - found from any folder
from mlgitops.adapters.repository.git import open_repository  # noqa: E402
from mlgitops.core.errors import Conflict  # noqa: E402
from mlgitops.core.manifest.fields import MAIN  # noqa: E402
from mlgitops.ports.repository import Change, Person  # noqa: E402
from tests.support.git_server import HERMETIC, TOKEN, USER, http_server, run_git  # noqa: E402

SIZES: Final = (1_000, 10_000, 100_000)
FASTER: Final = {10_000: 2.0, 100_000: 10.0}
"""How many times as long git must take, by number of files."""
GROWTH: Final = 2.0
PEAK_MEGABYTES: Final = 80
PENDING: Final = 90
PENDING_FILES: Final = 10_000
TOGETHER: Final = 4.0
"""How many times as long as one push as many pushes must take."""
WRITER_SECONDS: Final = 3.0
"""Pause between two commits of the other writer; with half a second, git never got through at 100,000 files."""
ENVIRONMENTS: Final = 10
MEMORY: Final = "/dev/shm"
SERVICE: Final = (ROOT / "tests" / "golden" / "inferenceservice.yaml").read_text(encoding="utf-8")
# Started from a small process, for the kernel counts the memory of the one that forks as the child's.
MEASURE: Final = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
wall = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""
GIT: Final = """
set -eu
git clone -q --depth 1 "$1" work
cd work
sed -i "s/release: .*/release: \\"$3\\"/" "$2"
git commit -q -a -m "serve $3"
until git push -q origin HEAD:main 2> refused; do git pull -q --rebase origin main; done
"""


@dataclass(kw_only=True)
class Runs:
    """What the runs of one command took."""

    wall_seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    """Peak of the largest process of each run."""

    def run(self, command: list[str], folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", MEASURE, *command],
            cwd=folder,
            env=HERMETIC | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")},
            stdout=subprocess.PIPE,
            check=True,
        )
        wall, processor, peak = json.loads(done.stdout)
        self.wall_seconds.append(wall)
        self.processor_seconds.append(processor)
        self.megabytes.append(peak)

    @property
    def seconds(self) -> float:
        return statistics.median(self.wall_seconds)


class Place:
    """A repository of many manifests behind a server, and a folder to work in."""

    def __init__(self, folder: Path, port: int, files: int) -> None:
        self.folder, self.bare, self.files = folder, folder / f"{files}.git", files
        self.location = f"http://{USER}:{TOKEN}@127.0.0.1:{port}/{files}.git"
        self._release = 0
        init_bare(self.bare)
        run_git("config", "http.receivepack", "true", folder=self.bare)
        subprocess.run(
            ["git", "fast-import", "--quiet"],
            input=b"".join(_stream(files)),
            cwd=self.bare,
            env=HERMETIC,
            check=True,
        )

    def tool(self, runs: Runs, how: str, count: int = 1) -> None:
        """Edit `count` manifests, through the clone that is kept."""
        script, release = str(ROOT / "benchmarks" / "edit_once.py"), self._next()
        cache = str(self.folder / f"cache-{self.files}")
        paths = [_path(number, "inferenceservice.yaml") for number in range(count)]
        runs.run([sys.executable, script, self.location, cache, release, how, *paths], self.folder)
        self._check(release, paths)

    def git(self, runs: Runs) -> None:
        """Edit one manifest with the git command line."""
        path, release = _path(0, "inferenceservice.yaml"), self._next()
        try:
            runs.run(["sh", "-c", GIT, "sh", self.location, path, release], self.folder)
        finally:
            shutil.rmtree(self.folder / "work", ignore_errors=True)
        self._check(release, [path])

    @contextmanager
    def other_writer(self, pause_seconds: float) -> Iterator[None]:
        """Let another writer commit elsewhere in the repository."""
        stop = threading.Event()
        thread = threading.Thread(target=self._write, args=(stop, pause_seconds))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _write(self, stop: threading.Event, pause_seconds: float) -> None:
        person = Person(name="Ann", email="ann@example.org")
        repository = open_repository(str(self.bare), identity=person, cache=self.folder)
        path = _path(ENVIRONMENTS - 1, "kustomization.yaml")
        while not stop.wait(pause_seconds):
            change = Change(message="another", files={path: f"# {time.time()}\n".encode()})
            try:
                repository.update(MAIN, repository.snapshot(MAIN).revision, [change])
            except Conflict:
                continue

    def _next(self) -> str:
        self._release += 1
        return f"{self._release:012x}"

    def _check(self, release: str, paths: list[str]) -> None:
        for path in paths:
            assert f'release: "{release}"' in run_git("show", f"main:{path}", folder=self.bare), path


def _path(number: int, name: str) -> str:
    return f"environments/e{number % ENVIRONMENTS}/model-{number // ENVIRONMENTS:05d}/{name}"


def _stream(files: int) -> Iterator[bytes]:
    """Yield a commit of as many files for `git fast-import`: four for each model in each environment."""
    yield b"commit refs/heads/main\ncommitter Ann <ann@example.org> 1700000000 +0000\ndata 5\nbegin\n"
    for number in range(files // 4):
        model = f"model-{number // ENVIRONMENTS:05d}"
        contents = {
            "rollout.yaml": f"rollout: 1\nrelease: {number:012x}\n",
            "generation": "1\n",
            "kustomization.yaml": f"# {model}\nresources: [inferenceservice.yaml]\n",
            "inferenceservice.yaml": SERVICE.replace("digits", model).replace("3f2a9c1d07be", f"{number:012x}"),
        }
        for name, text in contents.items():
            data = text.encode()
            yield b"M 644 inline %s\ndata %d\n%s\n" % (_path(number, name).encode(), len(data), data)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one size of repository took."""

    files: int
    first: Runs
    tool: Runs
    git: Runs

    @property
    def ratio(self) -> float:
        """How many times as long git takes."""
        pairs = zip(self.git.wall_seconds, self.tool.wall_seconds, strict=True)
        return statistics.median(one / other for one, other in pairs)

    def missed(self) -> list[str]:
        """Tell which limits it exceeds."""
        found = []
        if self.ratio < FASTER.get(self.files, 0):
            found.append(f"{self.files:,} files: git takes {self.ratio:.1f} times as long, not {FASTER[self.files]:g}")
        if max(self.tool.megabytes) > PEAK_MEGABYTES:
            found.append(f"{self.files:,} files: {max(self.tool.megabytes):.0f} MB, more than {PEAK_MEGABYTES}")
        return found


def main() -> int:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small repositories, to see that it runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--writer-seconds", type=float, default=WRITER_SECONDS, help="pause of the other writer; 0: none"
    )
    parser.add_argument(
        "--folder", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, help="where to work"
    )
    options = parser.parse_args()
    sizes, pending = ((400, 2_000), 9) if options.quick else (SIZES, PENDING)
    rounds = 2 if options.quick else options.rounds
    print(f"{rounds} rounds, medians; load {os.getloadavg()[0]:.1f}\n")
    with (
        tempfile.TemporaryDirectory(prefix="mlgitops-edit-", dir=options.folder) as home,
        http_server(Path(home)) as server,
    ):
        places = {files: Place(Path(home), server.server_port, files) for files in sizes}
        rows = [_measure(place, rounds, options.writer_seconds) for place in places.values()]
        missed = _print(rows)
        missed += _pending(places[sizes[-1] if options.quick else PENDING_FILES], pending)
    if options.quick:
        return 0
    for one in missed:
        print(f"missed: {one}")
    return int(bool(missed))


def _measure(place: Place, rounds: int, writer_seconds: float) -> Row:
    row = Row(files=place.files, first=Runs(), tool=Runs(), git=Runs())
    with place.other_writer(writer_seconds) if writer_seconds else nullcontext():
        place.tool(row.first, "together")
        for _ in range(rounds):
            place.tool(row.tool, "together")
            place.git(row.git)
    return row


def _print(rows: list[Row]) -> list[str]:
    names = ("files", "first s", "tool s", "cpu s", "MB", "git s", "cpu s", "MB", "git / tool")
    print("".join(f"{name:>11}" for name in names))
    for row in rows:
        cells = [f"{row.files:,}", f"{row.first.seconds:.2f}"]
        for runs in (row.tool, row.git):
            processor = statistics.median(runs.processor_seconds)
            cells += [f"{runs.seconds:.2f}", f"{processor:.2f}", f"{max(runs.megabytes):.0f}"]
        print("".join(f"{cell:>11}" for cell in [*cells, f"{row.ratio:.1f}"]))
    growth = rows[-1].tool.seconds / rows[0].tool.seconds
    print(f"\nthe tool at {rows[-1].files:,} files takes {growth:.2f} times what it takes at {rows[0].files:,}\n")
    missed = [one for row in rows for one in row.missed()]
    return [*missed, f"the cost grows {growth:.1f} times with the files"] if growth > GROWTH else missed


def _pending(place: Place, count: int) -> list[str]:
    """Compare many edits as one push with as many pushes."""
    together, apart = Runs(), Runs()
    place.tool(together, "together", count)
    place.tool(apart, "apart", count)
    ratio = apart.seconds / together.seconds
    print(f"{count} edits as one push {together.seconds:.2f} s, as {count} pushes {apart.seconds:.2f} s")
    print(f"processor time {together.processor_seconds[0]:.2f} s and {apart.processor_seconds[0]:.2f} s")
    print(f"one push is {ratio:.1f} times as fast")
    return [f"{count} edits as one push: only {ratio:.1f} times as fast"] if ratio < TOGETHER else []


if __name__ == "__main__":
    sys.exit(main())
