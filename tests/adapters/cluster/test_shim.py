"""The program that looks after one container."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlgitops.adapters.cluster import shim
from mlgitops.adapters.cluster.objects import quantity
from mlgitops.adapters.cluster.pods import start_shim
from mlgitops.adapters.cluster.state import Lock, held


@pytest.fixture
def run(tmp_path: Path):
    """A run of a container that leaves a mark when it runs."""
    folder, source = tmp_path / "run", tmp_path / "source"
    folder.mkdir()
    source.mkdir()
    values = {
        "command": [sys.executable, "-c", f"open({str(tmp_path / 'mark')!r}, 'a').write('x')"],
        "environment": {"MLGITOPS_TERMINATION_LOG": str(folder / "termination-log")},
        "source": str(source),
        "log": str(tmp_path / "log"),
        "log_bytes": 4096,
        "grace_seconds": 1,
        "memory_bytes": 0,
        "number": 0,
    }
    (folder / "run.json").write_text(json.dumps(values))
    return folder


def test_a_run_happens_once_however_many_shims_are_started(run) -> None:
    """Two shims started for one run run its container once."""
    processes = [start_shim(run) for _ in range(3)]
    assert sorted(process.wait(20) for process in processes) == [0, 1, 1]
    assert (run.parent / "mark").read_text() == "x"


def test_a_run_that_was_given_up_never_starts(run) -> None:
    """A shim that comes to life after its run was declared lost starts nothing."""
    (run / "status.json").write_text("{}")
    assert start_shim(run).wait(20) == 1
    assert not (run.parent / "mark").exists()


def test_the_shim_needs_nothing_but_the_standard_library() -> None:
    """The shim starts without site packages, so that nothing installed can slow it or break it."""
    code = f"import runpy; runpy.run_path({shim.__file__!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=20)


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """A lock is held until it is released, is seen by others, and cannot be taken twice."""
    path = tmp_path / "lock"
    first, second = Lock(path), Lock(path)
    assert not held(path)
    assert first.take()
    assert held(path)
    assert not second.take()
    first.release()
    assert second.take()


def test_a_process_is_known_by_when_it_started() -> None:
    """The start time tells a process from a later one with the same number."""
    assert shim.start_time(os.getpid()) == shim.start_time(os.getpid())
    assert shim.start_time(2**22 + 1) is None


@pytest.mark.parametrize(
    ("written", "size"),
    [("2Gi", 2 << 30), ("500M", 500_000_000), ("1.5G", 1_500_000_000), (1024, 1024), ("0", None), ("lots", None),
     ("-1Gi", None), ("nan", None), (True, None), ("1e400", None), ("1Zi", None)],
)  # fmt: skip
def test_amounts_of_memory(written: bool | int | str, size: int | None) -> None:
    """Kubernetes quantities are read as it reads them, and nonsense is none."""
    assert quantity(written) == size


def test_parts_of_a_full_disk_do_not_stop_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that cannot be written is lost, and nothing is raised."""
    log = shim.Log(tmp_path / "log", 1024)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.write(b"x" * 100)
    monkeypatch.undo()
    assert Path(tmp_path / "log" / "head").read_bytes() == b""
