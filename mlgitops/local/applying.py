"""Applies the environment repository to the cluster and to serving, as a GitOps engine does.

What cannot be read at the tip of `main` is taken from the newest commit where it can be: whatever somebody wrote, and
however often the engine starts, what served goes on serving.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from mlgitops.adapters.cluster import kustomize
from mlgitops.adapters.cluster.objects import identity
from mlgitops.adapters.serving.objects import parse_route, parse_service
from mlgitops.app.context import LOOK_BACK, former_environment, former_environments, valid_environments
from mlgitops.core.configuration import EnvironmentsConfiguration
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.loading import ENVIRONMENTS_FILE, load_environments
from mlgitops.core.manifest.fields import MAIN, TRAINING
from mlgitops.local.telling import Problems
from mlgitops.ports.repository import Repository, Snapshot

Objects = Sequence[Mapping[str, Any]]


class Cluster(Protocol):
    """Where training jobs go, and where it is noted what is applied."""

    def apply(self, environment: str, revision: str, objects: Objects, *, prune: bool = True) -> None:
        """Make the cluster know exactly these objects; without `prune`, also those it knows."""

    def record_applied(self, environment: str, revision: str, error: str = "") -> None:
        """Say that an environment is at a commit, or why not."""


class Serving(Protocol):
    """Where services and routes go."""

    def apply(self, environment: str, revision: str, objects: Objects) -> None:
        """Serve exactly these objects."""


class Applier:
    """Keeps every environment at the tip of `main`; one that could not be applied is tried again at every look."""

    def __init__(self, repository: Repository, cluster: Cluster, serving: Serving, problems: Problems) -> None:
        """Apply what `repository` says."""
        self._repository, self._cluster, self._serving, self._problems = repository, cluster, serving, problems
        self._applied: dict[str, str] = {}
        """Commit by environment; nothing is noted before all of it is applied."""
        self._done: str | None = None
        """The commit that all environments are at."""
        self._built: dict[str, Objects] = {}
        """Objects by folder, as they last could be built."""

    def look(self) -> Snapshot:
        """Apply what `main` says where that is not done yet; returns what was looked at.

        Raises:
            MlgitopsError: There never was a valid `environments.yaml`, or the repository cannot be read.
        """
        main = self._repository.snapshot(MAIN)
        if main.revision is None or self._done == main.revision:
            return main
        environments = self._environments(main)
        names = {one.name: one.namespace for one in environments.environments}
        names = {TRAINING: environments.training_namespace, **self._left(main, names), **names}
        self._applied = {name: done for name, done in self._applied.items() if name in names}
        done = [self._guarded(main, name, namespace) for name, namespace in names.items()]
        if all(done):
            self._done = main.revision
        return main

    def _left(self, main: Snapshot, names: Mapping[str, str]) -> dict[str, str]:
        """Return environments that `environments.yaml` has no more and `main` still has files of: they go on."""
        folders = {path.split("/")[1] for path in main.paths("environments")} - {TRAINING, *names}
        found = {name: former_environment(self._repository, main, name) for name in sorted(folders)}
        return {name: one.namespace for name, one in found.items() if one is not None}

    def _guarded(self, main: Snapshot, name: str, namespace: str) -> bool:
        """Apply one environment unless that is done; what it meets is told and holds up no other."""
        assert main.revision is not None
        if self._applied.get(name) == main.revision:
            return True
        done = self._problems.attempt(f"applying {name}", lambda: self._apply(main, name, namespace))
        if done:
            self._applied[name] = main.revision
        return done

    def _environments(self, main: Snapshot) -> EnvironmentsConfiguration:
        """Return `environments.yaml`, as it last was valid; what is wrong with it now is told."""
        try:
            found = load_environments(main.read(ENVIRONMENTS_FILE) or b"", ENVIRONMENTS_FILE)
        except InvalidInput as error:
            former = self._former_environments(main)
            self._problems.are(ENVIRONMENTS_FILE, [f"{error}; what was valid before stays in force"])
            return former
        self._problems.are(ENVIRONMENTS_FILE, [])
        return found

    def _former_environments(self, main: Snapshot) -> EnvironmentsConfiguration:
        with suppress(NotFound):
            return valid_environments(self._repository, main)
        former = next(former_environments(self._repository, main), None)  # the file was deleted
        if former is None:
            raise NotFound("file", ENVIRONMENTS_FILE)
        return former

    def _apply(self, main: Snapshot, environment: str, namespace: str) -> None:
        """Apply one environment; a folder that cannot be built keeps what it had, and is told."""
        assert main.revision is not None
        folders = kustomize.folders(main.paths(f"environments/{environment}"), environment)
        build = self._build_jobs if environment == TRAINING else self._build_services
        problems = [one for folder in folders for one in build(main, folder, namespace)]
        trouble = str(InvalidInput(problems)) if problems else ""
        objects = [one for folder in folders for one in self._built.get(folder, ())]
        if environment == TRAINING:
            trouble = self._train(main.revision, objects, trouble)
        else:
            self._serving.apply(environment, main.revision, objects)
            self._cluster.record_applied(environment, main.revision, trouble)
        self._problems.are(f"building {environment}", [trouble] if trouble else [])

    def _train(self, revision: str, objects: Objects, trouble: str) -> str:
        """Apply jobs; returns everything that was refused, which is settled until `main` moves."""
        try:
            self._cluster.apply(TRAINING, revision, objects, prune=not trouble)
        except InvalidInput as error:
            trouble = "\n".join(filter(None, (trouble, str(error))))
        if trouble:
            self._cluster.record_applied(TRAINING, revision, trouble)
        return trouble

    def _build_jobs(self, main: Snapshot, folder: str, namespace: str) -> Sequence[Problem]:
        """Build a folder of jobs; returns why it cannot be built.

        It is never taken from a former commit: the cluster keeps its jobs, and would run deleted ones again.
        """
        try:
            self._built[folder] = kustomize.build(main.read, folder, namespace=namespace)
        except InvalidInput as error:
            return error.problems
        return ()

    def _build_services(self, main: Snapshot, folder: str, namespace: str) -> Sequence[Problem]:
        """Build a folder of what serves; returns why it cannot be built, or after a start, why it is refused."""
        try:
            objects = kustomize.build(main.read, folder, namespace=namespace)
        except InvalidInput as error:
            self._restore(main, folder, namespace)
            return error.problems
        # Later, serving itself keeps what it had of a refused object; after a start it has nothing.
        problems = () if folder in self._built else _refusals(objects, folder)
        if problems:
            self._restore(main, folder, namespace)
        if not problems or folder not in self._built:
            self._built[folder] = objects
        return problems

    def _restore(self, main: Snapshot, folder: str, namespace: str) -> None:
        """Build a folder from the newest commit where it is accepted, when nothing else is known of it."""
        if folder in self._built or main.revision is None:
            return
        for commit in islice(self._repository.history(main.revision, path=folder), LOOK_BACK):
            with suppress(InvalidInput):
                objects = kustomize.build(self._repository.at(commit.revision).read, folder, namespace=namespace)
                if not _refusals(objects, folder):
                    self._built[folder] = objects
                    return


def _refusals(objects: Objects, folder: str) -> Sequence[Problem]:
    """Return why serving would refuse one of these objects."""
    found = []
    for one in objects:
        kind, name = identity(one)
        try:
            (parse_service if kind == "InferenceService" else parse_route)(one)
        except InvalidInput as error:
            found.append(Problem(message=f"{kind} {name} is refused: {error}", path=folder))
    return found
