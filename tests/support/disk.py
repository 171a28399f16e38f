"""The loop on disk, with a trainer that takes no time: everything that a process leaves is there for the next one."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.adapters.source.checkout import Checkout
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app import rollbacks
from mlgitops.app.context import World
from mlgitops.app.submitting import Workshop, submit
from mlgitops.core.ledger import Ledger
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER
from mlgitops.core.names import Digest, ImageReference
from mlgitops.ports.builder import BuildRequest
from mlgitops.ports.cluster import JobPhase
from mlgitops.ports.repository import Repository
from mlgitops.ports.source import SourceCommit
from tests.support.memory import Interposed
from tests.support.walk import QUICK, Walk, outcome
from tests.support.world import CONFIGURATION, MODEL, START, Clock, Engine, Quality, seen_by, settle, world_of

QUALITIES = {"one": Quality(accuracy=0.95, wrong=0.05), "two": Quality(accuracy=0.97, wrong=0.03)}
STEPS = ("push one", "settle", "push two", "settle", "roll back", "settle")
"""What a person does, and what the tool does after it; who is killed goes on at the step it was at."""


class SavedClock(Clock):
    """Time that goes on where the process before ended."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            self.time = START + timedelta(seconds=float(path.read_text()))

    def pass_seconds(self, seconds: float) -> None:
        super().pass_seconds(seconds)
        self._path.write_text(str((self.time - START).total_seconds()))


@dataclass
class DiskEngine(Engine):
    """Trains at once into a real store, and knows after a restart what it trained."""

    folder: Path = Path()
    wrote: Callable[[str], None] = lambda _: None
    """Called around everything that is written."""

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder / "store", "mlgitops-store")

    def quality(self, release: str) -> Quality:
        snapshot = self.repository.snapshot(LEDGER)
        found = Ledger(snapshot.read, snapshot.paths, snapshot.revision).release(MODEL, release)
        return QUALITIES[found.submission.subject]

    def started(self) -> list[str]:
        """Return the trainings that were ever started, in order."""
        path = self.folder / "trained"
        return path.read_text().split() if path.exists() else []

    def _start(self, fields: owned.TrainingFields) -> None:
        if fields.release not in self.started():
            self.wrote("training starts")
            with (self.folder / "trained").open("a") as file:
                file.write(f"{fields.release}\n")
        model = self.folder / "store" / "models" / fields.model / fields.release / "1"
        if not (model / "model.json").exists():  # the same job, started again by its cluster
            self.wrote("training ends")
            model.mkdir(parents=True, exist_ok=True)
            (model / "model.json").write_text(json.dumps({"release": fields.release}))
        self.jobs[f"{fields.model}-{fields.release}"] = JobPhase.SUCCEEDED

    def put(self, source: Path, folder: str) -> tuple[str, Digest]:
        self.wrote("store")
        return self.store.put(source, folder)

    def uri(self, path: str) -> str:
        return self.store.uri(path)

    def path(self, uri: str) -> Path:
        return self.store.path(uri)

    def digest(self, uri: str) -> Digest:
        return self.store.digest(uri)


@dataclass
class Boundaries:
    """Counts writes, and kills this process before one of them, as `kill -9` does."""

    kill_before: int | None = None
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        if len(self.names) == self.kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)


@dataclass(frozen=True)
class KilledBuilder:
    """The builder, in whose way a kill may come."""

    below: EmbeddedBuilder
    wrote: Callable[[str], None]

    def build(self, request: BuildRequest) -> ImageReference:
        self.wrote("image")
        return self.below.build(request)


@dataclass
class Place:
    """One folder with everything in it, as a process finds it."""

    folder: Path
    boundaries: Boundaries

    def opened(self) -> tuple[World, DiskEngine, Repository]:
        """Open everything anew, as a process does that knows nothing."""
        world, _ = world_of(self.folder, environments=QUICK)
        engine = DiskEngine(
            repository=world.repository,
            clock=SavedClock(self.folder / "clock"),
            folder=self.folder,
            wrote=self.boundaries,
        )
        seen = Interposed(world.repository, before_write=lambda _, ref: self.boundaries(f"push {ref}"))
        return seen_by(engine, seen), engine, world.repository

    def go(self) -> None:
        """Make the steps that are left."""
        world, engine, _ = self.opened()
        at = self.folder / "at"
        while (step := int(at.read_text()) if at.exists() else 0) < len(STEPS):
            self._make(STEPS[step], world, engine)
            at.write_text(str(step + 1))

    def _make(self, step: str, world: World, engine: DiskEngine) -> None:
        if step == "settle":
            settle(world, engine, 15)
        elif step == "roll back":
            rollbacks.rollback(world, MODEL, None, reason="by hand")
        else:
            self._push(step.removeprefix("push "), world, engine)

    def _push(self, name: str, world: World, engine: DiskEngine) -> None:
        source = self.folder / f"source-{name}"
        files = {
            "mlgitops.yaml": CONFIGURATION,
            "train.py": f"print('{name}')\n",
            "requirements.txt": "",
            "data/train.npz": "data",
            "data/evaluation.npz": "evaluation",
        }
        for path, text in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_text(text)
        commit = SourceCommit(revision=Digest.of(name.encode()).hex[:40], author="Ada <ada@example.org>", subject=name)
        builder = KilledBuilder(EmbeddedBuilder(self.folder / "registry"), self.boundaries)
        submit(world, Workshop(source=Checkout(source, commit), builder=builder, store=engine))

    def left(self) -> Mapping[str, Any]:
        """Return everything that must be the same however often a process was killed on the way."""
        _, engine, repository = self.opened()
        engine.trained = engine.started()
        found = outcome(Walk(seen_by(engine, repository), engine))
        return {**found, "images": self._files("registry"), "store": self._files("store")}

    def _files(self, name: str) -> dict[str, str]:
        root = self.folder / name
        every = sorted(one for one in root.rglob("*") if one.is_file())
        return {str(one.relative_to(root)): Digest.of(one.read_bytes()).hex for one in every}


def begun(folder: Path) -> None:
    """Make the environment repository, before anybody is killed."""
    world_of(folder, environments=QUICK)
