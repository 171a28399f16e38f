"""The engine of one machine: applies the environment repository, trains, serves, reconciles, and takes pushes.

One thread applies and supervises, one reconciles, one takes pushes; each goes on when another meets trouble. Everything
that matters is in git and on disk before it is acted on, so an engine may be killed and started again at any moment.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mlgitops.adapters.builder.content import ImageContent, image_content
from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.cluster.controller import ClusterController
from mlgitops.adapters.metrics.scraper import Scraper
from mlgitops.adapters.serving.controller import ServingController
from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app.context import World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import ImageReference
from mlgitops.local import wiring
from mlgitops.local.applying import Applier
from mlgitops.local.housekeeping import Housekeeping
from mlgitops.local.labels import Labels
from mlgitops.local.pushes import END_SECONDS, Pushes
from mlgitops.local.setup import ENVIRONMENT_REPOSITORY
from mlgitops.local.telling import Problems, Seldom
from mlgitops.ports.observer import Observer
from mlgitops.ports.repository import Snapshot

TICK_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.5
RECONCILE_SECONDS: Final = 0.5
"""Longest pause between two passes; what jobs or services do ends it."""
LABELS_SECONDS: Final = 1.0
HOUSEKEEPING_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 60.0
"""After this time a message that could not be sent is tried again, where nothing new happened before."""


class Engine:
    """Runs everything for one home until it is told to stop."""

    def __init__(
        self,
        home: Path,
        world: World,
        observer: Observer,
        *,
        router_port: int = 0,
        loader: str | None = None,
        variables: Mapping[str, str] | None = None,
        after_pass: Callable[[], None] = lambda: None,
        tell: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Take over a home that `setup.prepare` made.

        Args:
            home: Folder of everything.
            world: The ports that reconcile uses.
            observer: Told what happens.
            router_port: Port of the one address that answers predictions; 0 for a free one.
            loader: Loader of the model servers, for models that are no SavedModels; None for SavedModels.
            variables: Environment variables of the model servers.
            after_pass: Called after each pass that reconciles.
            tell: Tells people what the ledger says by now, and returns why some could not be told; called beside the
                passes, which do not wait for it.

        Raises:
            Conflict: Another engine runs on this home.
        """
        self._home, self._observer, self._after_pass = home, observer, after_pass
        self._tell, self._news = tell, threading.Event()
        self._world = replace(world, observer=Seldom(world.observer))  # two passes a second would repeat its waiting
        store = FolderStore(home / wiring.STORE, wiring.CLAIM)
        clock = SystemClock()
        self._cluster = ClusterController(
            home / wiring.CLUSTER, image=self._image, clock=clock, claims={wiring.CLAIM: store.root}
        )
        try:
            self._serving = ServingController(
                home / wiring.SERVING, store.path, router_port=router_port, loader=loader, variables=variables
            )
        except MlgitopsError:
            self._cluster.close(drain=False)
            raise
        self._scraper = Scraper(home / wiring.METRICS, lambda: self._serving.router_port, clock, interval_seconds=0.5)
        self._problems = Problems(observer, home / "bug.txt")
        self._labels = Labels(home, store, EmbeddedServing(home / wiring.SERVING), Seldom(observer), self._problems)
        self._applier = Applier(world.repository, self._cluster, self._serving, self._problems)
        self._pushes = Pushes(home, observer)
        self._seen: dict[str, str | None] = {}
        self._stop, self._wake = threading.Event(), threading.Event()
        self._looked = (0, 0)
        store.root.mkdir(parents=True, exist_ok=True)

    def _image(self, reference: str) -> ImageContent:
        return image_content(self._home / wiring.REGISTRY, ImageReference.parse(reference), self._home / wiring.IMAGES)

    def stop(self) -> None:
        """Ask `run` to end; a push that is being taken is taken again next time."""
        self._stop.set()
        self._pushes.stop()

    def run(self) -> None:
        """Run until `stop`; what trains is drained and goes on next time, what serves ends."""
        work = (self._reconciling, self._taking, self._labelling, self._keeping, self._telling)
        others = [threading.Thread(target=one, name=one.__name__.strip("_")) for one in work]
        for one in others:
            one.start()
        try:
            self._supervising()
        finally:
            self.stop()
            self._wake.set()
            self._news.set()
            self._join(others)
            self._serving.close()
            self._cluster.close()

    def _join(self, others: Sequence[threading.Thread]) -> None:
        deadline = time.monotonic() + END_SECONDS
        for one in others:
            one.join(max(0.0, deadline - time.monotonic()))
        self._pushes.kill()
        for one in others:
            one.join()

    # --- applying and supervising -------------------------------------------------------------------------------------

    def _supervising(self) -> None:
        due = 0.0
        while not self._stop.wait(TICK_SECONDS):
            due -= TICK_SECONDS
            if due <= 0 or self._cluster.take_sync():
                due = LOOK_SECONDS
                self._problems.attempt("applying", self._apply)
            ticks = {"training": self._cluster.tick, "serving": self._serving.tick, "metrics": self._scraper.tick}
            for topic, tick in ticks.items():
                self._problems.attempt(topic, tick)
            seen = (self._cluster.changes, self._serving.changes)
            if seen != self._looked:  # what reconcile waits for may have come
                self._looked = seen
                self._wake.set()

    def _apply(self) -> None:
        self._diary(MAIN, self._applier.look())

    # --- reconciling --------------------------------------------------------------------------------------------------

    def _reconciling(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(RECONCILE_SECONDS)
            self._wake.clear()
            if self._stop.is_set():
                return
            self._problems.attempt("reconciling", self._pass)
            self._problems.attempt("status", self._after_pass)

    def _pass(self) -> None:
        done = reconcile(self._world)
        self._problems.are("reconcile", [str(problem) for problem in done.problems])
        before, ledger = self._seen.get(LEDGER), self._world.repository.snapshot(LEDGER)
        self._diary(LEDGER, ledger)
        if ledger.revision != before:
            self._news.set()

    # --- pushes -------------------------------------------------------------------------------------------------------

    def _taking(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            self._problems.attempt("pushes", self._pushes.look)

    # --- labels -------------------------------------------------------------------------------------------------------

    def _labelling(self) -> None:
        while not self._stop.wait(LABELS_SECONDS):
            self._problems.attempt("reading labels", self._labels.look)

    # --- housekeeping -------------------------------------------------------------------------------------------------

    def _keeping(self) -> None:
        housekeeping = Housekeeping(self._home / ENVIRONMENT_REPOSITORY)
        while not self._stop.wait(HOUSEKEEPING_SECONDS):
            self._problems.attempt("housekeeping", lambda: housekeeping.collect(self._stop))

    # --- notifications ------------------------------------------------------------------------------------------------

    def _telling(self) -> None:
        while not self._stop.is_set():
            self._news.wait(AGAIN_SECONDS)
            self._news.clear()
            if self._stop.is_set():
                return
            self._problems.attempt("telling", lambda: self._problems.are("notifications", self._tell()))

    # --- telling ------------------------------------------------------------------------------------------------------

    def _diary(self, ref: str, snapshot: Snapshot) -> None:
        """Tell the commits that a branch got since it was last seen."""
        before, self._seen[ref] = self._seen.get(ref), snapshot.revision
        if before is None or snapshot.revision in (None, before):
            return
        name = "main" if ref == MAIN else "ledger"
        fresh = list(self._world.repository.history(snapshot.revision, until=before))
        for commit in reversed(fresh):
            self._observer.note(f"{name:8} {commit.message.splitlines()[0]}")
