"""The engine of one machine: applies the environment repository, trains, serves, reconciles, and takes pushes.

One thread applies and supervises, one reconciles, one takes pushes; each goes on when another meets trouble. Everything
that matters is in git and on disk before it is acted on, so an engine may be killed and started again at any moment.
"""

import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.atomic import write_atomically
from mlgitops.adapters.builder.content import ImageContent, image_content
from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.cluster import kustomize
from mlgitops.adapters.cluster.controller import ClusterController
from mlgitops.adapters.metrics.scraper import Scraper
from mlgitops.adapters.repository.bare import head
from mlgitops.adapters.serving.controller import ServingController
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app.context import ENVIRONMENTS_FILE, World
from mlgitops.app.reconciling import reconcile
from mlgitops.core.errors import InvalidInput, MlgitopsError
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN, TRAINING
from mlgitops.core.names import ImageReference
from mlgitops.local import wiring
from mlgitops.local.setup import MODEL_REPOSITORY, branch
from mlgitops.ports.observer import Observer
from mlgitops.ports.repository import Snapshot

TICK_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.5
RECONCILE_SECONDS: Final = 0.5
PUSHED: Final = "pushed.json"
AGAIN: Final = (4, 5, 130)
"""Exit codes after which the same push is tried again: somebody was faster, something was unavailable, interrupted."""
TROUBLE_SECONDS: Final = 5.0


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
    ) -> None:
        """Take over a home that `setup.prepare` made.

        Args:
            home: Folder of everything.
            world: The ports that reconcile uses.
            observer: Told what happens.
            router_port: Port of the one address that answers predictions; 0 for a free one.
            loader: Loader of the model servers, for models that are no SavedModels; None for SavedModels.
            variables: Environment variables of the model servers.

        Raises:
            Conflict: Another engine runs on this home.
        """
        self._home, self._world, self._observer = home, world, observer
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
        self._built: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._seen: dict[str, str | None] = {}
        self._told: set[str] = set()
        self._stop = threading.Event()
        self._taking: subprocess.Popen[str] | None = None
        store.root.mkdir(parents=True, exist_ok=True)

    def _image(self, reference: str) -> ImageContent:
        return image_content(self._home / wiring.REGISTRY, ImageReference.parse(reference), self._home / wiring.IMAGES)

    def stop(self) -> None:
        """Ask `run` to end; a push that is being taken is taken again next time."""
        self._stop.set()
        taking = self._taking
        if taking is not None:
            taking.terminate()

    def run(self) -> None:
        """Run until `stop`; what trains is drained and goes on next time, what serves ends."""
        others = [threading.Thread(target=one) for one in (self._reconciling, self._pushes)]
        for one in others:
            one.start()
        try:
            self._supervising()
        finally:
            self.stop()
            for one in others:
                one.join()
            self._serving.close()
            self._cluster.close()

    # --- applying and supervising -------------------------------------------------------------------------------------

    def _supervising(self) -> None:
        due = 0.0
        while not self._stop.wait(TICK_SECONDS):
            due -= TICK_SECONDS
            if due <= 0 or self._cluster.take_sync():
                due = LOOK_SECONDS
                self._tell(self._apply)
            for tick in (self._cluster.tick, self._serving.tick, self._scraper.tick):
                self._tell(tick)

    def _apply(self) -> None:
        """Apply what `main` says, if it moved."""
        main = self._world.repository.snapshot(MAIN)
        if main.revision is None or main.revision == self._seen.get(MAIN):
            return
        self._diary(MAIN, main)
        environments = load_environments(main.read(ENVIRONMENTS_FILE) or b"", ENVIRONMENTS_FILE)
        namespaces = {one.name: one.namespace for one in environments.environments}
        for name, namespace in {TRAINING: environments.training_namespace, **namespaces}.items():
            self._apply_environment(main, name, namespace)

    def _apply_environment(self, main: Snapshot, environment: str, namespace: str) -> None:
        assert main.revision is not None
        problems = []
        folders = kustomize.folders(main.paths(f"environments/{environment}"), environment)
        for folder in folders:
            try:
                self._built[folder] = kustomize.build(main.read, folder, namespace=namespace)
            except InvalidInput as error:
                problems += list(error.problems)
        objects = [one for folder in folders for one in self._built.get(folder, ())]
        if environment == TRAINING:
            self._tell(lambda: self._cluster.apply(environment, main.revision or "", objects, prune=not problems))
        else:
            self._serving.apply(environment, main.revision, objects)
        trouble = str(InvalidInput(problems)) if problems else ""
        if environment != TRAINING or trouble:
            self._cluster.record_applied(environment, main.revision, trouble)
        if trouble:
            self._note(trouble)

    # --- reconciling --------------------------------------------------------------------------------------------------

    def _reconciling(self) -> None:
        while not self._stop.wait(RECONCILE_SECONDS):
            self._tell(self._pass)

    def _pass(self) -> None:
        done = reconcile(self._world)
        for problem in done.problems:
            self._note(str(problem))
        ledger = self._world.repository.snapshot(LEDGER)
        if ledger.revision != self._seen.get(LEDGER):
            self._diary(LEDGER, ledger)

    # --- pushes -------------------------------------------------------------------------------------------------------

    def _pushes(self) -> None:
        repository = self._home / MODEL_REPOSITORY
        reference = f"refs/heads/{branch(self._home)}"
        while not self._stop.wait(LOOK_SECONDS):
            self._tell(lambda: self._look_for_push(repository, reference))

    def _look_for_push(self, repository: Path, reference: str) -> None:
        revision = head(repository, reference)
        if revision is not None and revision != self._pushed():
            self._take(repository, revision)

    def _take(self, repository: Path, revision: str) -> None:
        """Do what the `train` workflow does; a push that failed is not tried again until the next one."""
        self._observer.note(f"push     {revision[:12]} arrived")
        words = ["train", "--home", str(self._home), "--repository", str(repository), "--revision", revision]
        command = [sys.executable, "-m", "mlgitops", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._taking = process
        if self._stop.is_set():
            process.terminate()
        assert process.stdout is not None
        for line in process.stdout:
            self._observer.note(f"train    {line.rstrip()}")
        code = process.wait()
        self._taking = None
        if code in AGAIN and not self._stop.wait(TROUBLE_SECONDS):
            return
        if code >= 0:  # a killed command is tried again
            write_atomically(self._home / PUSHED, json.dumps({"revision": revision, "code": code}).encode())

    def _pushed(self) -> str | None:
        try:
            found: str = json.loads((self._home / PUSHED).read_bytes())["revision"]
        except (OSError, ValueError, KeyError):
            return None
        return found

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self, work: Callable[[], None]) -> None:
        """Do something; what it meets is told once, and the engine goes on: what serves must not stop for a bug."""
        try:
            work()
        except MlgitopsError as error:
            self._note(str(error))
        except Exception as error:  # noqa: BLE001 - told as the bug it is, with the trace in a file
            trace = self._home / "bug.txt"
            write_atomically(trace, traceback.format_exc().encode())
            self._note(f"this is a bug in mlgitops: {type(error).__name__}: {error}; please report it with {trace}")

    def _note(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._observer.note(f"problem  {words}")

    def _diary(self, ref: str, snapshot: Snapshot) -> None:
        """Tell the commits that a branch got since it was last seen."""
        before, self._seen[ref] = self._seen.get(ref), snapshot.revision
        if before is None or snapshot.revision is None:
            return
        name = "main" if ref == MAIN else "ledger"
        fresh = list(self._world.repository.history(snapshot.revision, until=before))
        for commit in reversed(fresh):
            self._observer.note(f"{name:8} {commit.message.splitlines()[0]}")
