"""How long the command line takes to start, as multiples of `python -c pass` on the same machine in the same minute.

Run it on a calm machine: `python benchmarks/startup.py [rounds]`. Rounds are interleaved, so that a change of load
falls on every row; wall time is told beside processor time, which other processes disturb less. Limits: the help page
within 6 times; status within 12 times, also right after a decision was made on this machine. Status of a repository
that changed without any mlgitops of this machine is told without a limit. Exit code 1 when the median wall time of a
row with a limit exceeds it.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BARE = "python -c pass"


@dataclass
class Row:
    """One command and what it took."""

    command: list[str]
    before: list[list[str]] = field(default_factory=list)
    """Commands that run before it in turn, untimed."""
    limit: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, environment: dict[str, str]) -> None:
        """Run it once."""
        if self.before:
            first = self.before.pop(0)
            self.before.append(first)
            subprocess.run(first, env=environment | self.environment, stdout=subprocess.DEVNULL, check=True)
        start = time.perf_counter()
        process = subprocess.Popen(self.command, env=environment | self.environment, stdout=subprocess.DEVNULL)
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        assert process.returncode == 0, self.command
        self.wall.append(time.perf_counter() - start)
        self.processor.append(usage.ru_utime + usage.ru_stime)


def main() -> int:
    """Measure and print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory(prefix="mlgitops-startup-") as folder:
        home = Path(folder)
        rows = _rows(_repository(home))
        # As installed: bytecode is kept, where an interpreter started for tests may be told not to.
        environment = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
            "XDG_CACHE_HOME": str(home / "cache"),
        }
        for name in ("PYTHONDONTWRITEBYTECODE", "MLGITOPS_HOME", "MLGITOPS_ENVIRONMENT_REPOSITORY"):
            environment.pop(name, None)
        for one in range(rounds + 1):
            for row in rows.values():
                row.run(environment)
                if one == 0:  # fills the caches
                    row.wall.clear()
                    row.processor.clear()
    return _print(rows, rounds)


def _rows(repository: Path) -> dict[str, Row]:
    tool = [sys.executable, "-m", "mlgitops"]
    script = Path(sys.executable).parent / "mlgitops"
    tool = [str(script)] if script.exists() else tool
    status = [*tool, "status", "-R", str(repository)]
    changing = repository.with_name("changing.git")
    shutil.copytree(repository, changing)
    return {
        BARE: Row([sys.executable, "-c", "pass"]),
        "mlgitops --help": Row([*tool, "--help"], limit=6),
        "mlgitops status, nothing changed": Row(status, limit=12),
        "mlgitops status, after a decision": Row(
            [*tool, "status"],
            before=[[*tool, "hold", "--reason", "measured"], [*tool, "resume"]],
            limit=12,
            environment={"MLGITOPS_ENVIRONMENT_REPOSITORY": str(changing)},
        ),
        "mlgitops status, computed": Row(status, environment={"XDG_CACHE_HOME": "/dev/null"}),
        "mlgitops promote --help": Row([*tool, "promote", "--help"]),
        "import click, yaml, pygit2": Row([sys.executable, "-c", "import click, yaml, pygit2"]),
    }


def _repository(folder: Path) -> Path:
    """Make an environment repository in which three releases met production."""
    sys.path.insert(0, str(ROOT))
    from tests.support.world import Quality, push, settle, world_of

    world, engine = world_of(folder)
    for code, accuracy in (("one", 0.95), ("two", 0.97), ("three", 0.8)):
        push(world, code, quality=Quality(accuracy=accuracy), engine=engine)
        settle(world, engine, 40)
    return folder / "environment.git"


def _print(rows: dict[str, Row], rounds: int) -> int:
    bare = rows[BARE]
    print(f"median of {rounds} rounds; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'command':<34}{'wall s':>8}{'×':>7}{'cpu s':>8}{'×':>7}  limit")
    failed = 0
    for name, row in rows.items():
        wall, processor = statistics.median(row.wall), statistics.median(row.processor)
        times = statistics.median(one / other for one, other in zip(row.wall, bare.wall, strict=True))
        work = statistics.median(one / other for one, other in zip(row.processor, bare.processor, strict=True))
        over = row.limit is not None and times > row.limit
        failed |= over
        limit = "" if row.limit is None else f"{row.limit:g} ×{', exceeded' if over else ''}"
        print(f"{name:<34}{wall:>8.3f}{times:>7.1f}{processor:>8.3f}{work:>7.1f}  {limit}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
