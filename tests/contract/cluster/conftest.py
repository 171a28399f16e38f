"""An engine to hold to the cluster's contract: apply manifests, wait for observations, break things.

The suite speaks through `Engine` only. An engine on Kubernetes offers the same: images that run small Python programs,
`apply`, `wait`, the TFJob's `status`, and the ways to break a node.
"""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.cluster.controller import ClusterController
from mlgitops.adapters.cluster.embedded import EmbeddedCluster
from mlgitops.adapters.cluster.pods import Options
from mlgitops.core.errors import NotFound
from mlgitops.ports.cluster import JobObservation, JobPhase

REVISION = "1" * 40
OPTIONS = Options(grace_seconds=0.5, backoff_seconds=0.1, longest_backoff_seconds=0.2, log_bytes=64 << 10)


@dataclass(frozen=True, kw_only=True)
class Content:
    """An image's content, made of a folder."""

    root: Path
    working_directory: str = "/app"
    entrypoint: tuple[str, ...] = ("python", "-S", "train.py")
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def resolver(images: Path) -> Callable[[str], Content]:
    """Return what finds images in a folder, named by their digests."""

    def resolve(reference: str) -> Content:
        root = images / reference.partition("@sha256:")[2]
        if "@sha256:" not in reference or not root.is_dir():
            raise NotFound("image", reference)
        return Content(root=root)

    return resolve


SERVE = """
import sys, time
from pathlib import Path
from tests.contract.cluster.conftest import OPTIONS, resolver
from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.cluster.controller import ClusterController
home = Path(sys.argv[1])
engine = ClusterController(
    home / "cluster", image=resolver(home / "images"), clock=SystemClock(), claims={"store": home / "store"},
    options=OPTIONS)
while True:
    engine.tick()
    time.sleep(0.02)
"""


class Engine:
    """The embedded cluster, driven by the test."""

    def __init__(self, home: Path) -> None:
        self.home, self.store = home, home / "store"
        self.store.mkdir(parents=True)
        self.cluster = EmbeddedCluster(home / "cluster")
        self.applied: list[Mapping[str, Any]] = []
        self.controller: ClusterController | None = None
        self.start()

    def start(self) -> None:
        """Start an engine on what is there."""
        self.controller = ClusterController(
            self.home / "cluster",
            image=resolver(self.home / "images"),
            clock=SystemClock(),
            claims={"store": self.store},
            options=OPTIONS,
        )

    def stop(self, *, drain: bool) -> None:
        """Stop it in an orderly way."""
        assert self.controller is not None
        self.controller.close(drain=drain)
        self.controller = None

    def serve_until(self, met: Callable[[], bool], *, then_seconds: float = 0.0) -> None:
        """Run the engine in a process of its own until something is so, then kill that process with SIGKILL."""
        command = [sys.executable, "-c", SERVE, str(self.home)]
        process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
        try:
            until(met, 30)
            time.sleep(then_seconds)
        finally:
            process.kill()
            process.wait()

    def image(self, program: str, **files: str) -> str:
        """Make an image whose `train.py` is a program; returns its reference by digest."""
        digest = hashlib.sha256(json.dumps([program, files], sort_keys=True).encode()).hexdigest()
        folder = self.home / "images" / digest / "app"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"train": program, **files}.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        return f"registry.test/trainer@sha256:{digest}"

    def apply(self, *objects: Mapping[str, Any], revision: str = REVISION) -> None:
        """Make the training environment hold exactly these objects."""
        assert self.controller is not None
        self.controller.apply("training", revision, objects)

    def tick(self, seconds: float = 0.0) -> None:
        """Let the engine work for a while."""
        deadline = time.monotonic() + seconds
        while True:
            assert self.controller is not None
            self.controller.tick()
            if time.monotonic() >= deadline:
                return
            time.sleep(0.02)

    def job(self, name: str = "job") -> JobObservation:
        """Look at a job that must be there."""
        seen = self.cluster.job("training", name)
        assert seen is not None
        return seen

    def status(self, name: str = "job") -> dict[str, Any] | None:
        """Return a TFJob's `status`; None when there is no such object."""
        assert self.controller is not None
        return self.controller.status("training", name)

    def conditions(self, name: str = "job") -> dict[str, str]:
        """Return a job's conditions: status by type."""
        status = self.status(name)
        assert status is not None
        return {one["type"]: one["status"] for one in status["conditions"]}

    def wait(self, met: Callable[[], bool], seconds: float = 15) -> None:
        """Let the engine work until something is so."""

        def step() -> bool:
            self.tick()
            return met()

        until(step, seconds)

    def finish(self, name: str = "job", seconds: float = 15) -> JobObservation:
        """Let the engine work until a job has an outcome."""
        self.wait(lambda: self.job(name).phase in (JobPhase.SUCCEEDED, JobPhase.FAILED), seconds)
        return self.job(name)

    def log(self, pod: str = "job-worker-0") -> str:
        """Return what is kept of a pod's output."""
        return self.cluster.logs("training", pod.rsplit("-", 2)[0]).get(pod, b"").decode()

    def processes(self) -> list[int]:
        """Return the processes of containers that run now."""
        found = []
        for path in (self.home / "cluster").glob("jobs/*/*/*/pods/*/*/*/process.json"):
            pid = int(json.loads(path.read_text())["pid"])
            if Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
                found.append(pid)
        return found

    def shims(self) -> list[int]:
        """Return the processes that look after containers."""
        paths = (self.home / "cluster").glob("jobs/*/*/*/pods/*/*/*/shim.json")
        return [int(json.loads(path.read_text())["pid"]) for path in paths]


def until(met: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.02)


def replica(image: str, **more: Any) -> dict[str, Any]:
    """Return one entry of `tfReplicaSpecs`."""
    container = {
        "name": "tensorflow",
        "image": image,
        "volumeMounts": [{"name": "store", "mountPath": "/mnt/store"}],
        **more.pop("container", {}),
    }
    volumes = [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}]
    pod = {"containers": [container], "volumes": volumes, **more.pop("pod", {})}
    return {"template": {"spec": pod}, **more}


def tfjob(roles: Mapping[str, Any], name: str = "job", **spec: Any) -> dict[str, Any]:
    """Return a TFJob; `annotations` go to its metadata, everything else to its specification."""
    metadata: dict[str, Any] = {"name": name, "namespace": "training"}
    if "annotations" in spec:
        metadata["annotations"] = spec.pop("annotations")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"tfReplicaSpecs": dict(roles), **spec},
    }


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A running engine with nothing to do."""
    one = Engine(tmp_path / "engine")
    yield one
    if one.controller is not None:
        one.stop(drain=True)
    for pid in one.processes():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="replica")
def replica_fixture() -> Callable[..., dict[str, Any]]:
    """What makes one entry of `tfReplicaSpecs`."""
    return replica


@pytest.fixture(name="tfjob")
def tfjob_fixture() -> Callable[..., dict[str, Any]]:
    """What makes a TFJob."""
    return tfjob
