"""What every use case is given: the outside systems, and who asks."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from mlgitops.core.configuration import Environment, EnvironmentsConfiguration, ModelConfiguration
from mlgitops.core.errors import InvalidInput, MlgitopsError, NotFound
from mlgitops.core.ledger import Ledger
from mlgitops.core.loading import (
    ENVIRONMENTS_FILE,
    MODEL_FILE,
    load_environments,
    load_model,
    read_environment_names,
    read_promotion,
)
from mlgitops.core.manifest.fields import LEDGER, MAIN, ROLLOUT_FILE
from mlgitops.core.release import Release, Submission
from mlgitops.ports.clock import Clock
from mlgitops.ports.cluster import Cluster
from mlgitops.ports.evaluator import Evaluator
from mlgitops.ports.forge import Forge
from mlgitops.ports.metrics import Metrics
from mlgitops.ports.observer import Observer, Silent
from mlgitops.ports.repository import Person, Repository, Snapshot
from mlgitops.ports.serving import Serving
from mlgitops.ports.store import Store

LOOK_BACK = 500
"""Commits of one path in which something is looked for that can be read, or that was taken out since."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The outside world, as ports."""

    repository: Repository
    """The environment repository."""
    clock: Clock
    person: Person
    """Who asks; written into what a person decided."""
    sleep: Callable[[float], None]
    """Waits a number of seconds between attempts."""
    observer: Observer = field(default_factory=Silent)
    forge: Callable[[], Forge] | None = None
    """Opens the forge that hosts the environment repository; None where none is known."""


@dataclass(frozen=True, kw_only=True)
class World(Context):
    """The outside world with the engine, for what looks at jobs, traffic and models."""

    cluster: Cluster
    serving: Serving
    metrics: Metrics
    store: Store
    evaluator: Evaluator


@dataclass(frozen=True)
class View:
    """One reading of the environment repository: `main` first, then the ledger."""

    main: Snapshot
    ledger: Ledger
    repository: Repository

    @property
    def configuration(self) -> EnvironmentsConfiguration:
        """`environments.yaml` as it stands on `main`, or as it last was valid there.

        What serves must be watched and be taken back whatever somebody wrote into that file; only promotions ask
        `problem` first.
        """
        return valid_environments(self.repository, self.main)

    def environment(self, name: str) -> Environment | None:
        """Return an environment; one that was taken out of `environments.yaml` as it last stood there.

        What serves in one that was taken out is watched and can be rolled back; nothing is promoted there.
        """
        found = self.configuration.environment(name)
        return found or former_environment(self.repository, self.main, name)

    @property
    def problem(self) -> InvalidInput | None:
        """What is wrong with `environments.yaml` as it stands on `main`; None when nothing is."""
        try:
            load_environments(self._environments, ENVIRONMENTS_FILE)
        except InvalidInput as error:
            return error
        return None

    @property
    def environment_names(self) -> tuple[str, ...]:
        """The environments in the order of promotion, for what only looks: the file is not judged."""
        return read_environment_names(self._environments, ENVIRONMENTS_FILE)

    def promotion(self, environment: str, model: str) -> tuple[int, str] | None:
        """Return the number and the release of the rollout that `main` asks for, for what only looks; None for none."""
        return read_promotion(self.main.read(f"environments/{environment}/{model}/{ROLLOUT_FILE}") or b"")

    def left(self, models: Collection[str], environments: Collection[str]) -> list[tuple[str, str]]:
        """Return what still serves, or is under way, in an environment that was taken out of `environments.yaml`.

        Args:
            models: Those that are looked at.
            environments: Those that the file has.

        Returns:
            Environment and model of each. What cannot be read may serve, too: whoever looks at it next tells why not.
        """
        known = [one for one in self.ledger.environments() if one[0] not in environments and one[1] in models]
        return [one for one in known if self._may_serve(*one)]

    def _may_serve(self, environment: str, model: str) -> bool:
        with suppress(MlgitopsError):
            state = self.ledger.state(environment, model)
            return state.open is not None or state.live is not None
        return True

    @property
    def _environments(self) -> bytes:
        data = self.main.read(ENVIRONMENTS_FILE)
        if data is None:
            raise NotFound("file", ENVIRONMENTS_FILE)
        return data


def look(context: Context) -> View:
    """Read `main`, then the ledger; never the other way, or an old decision could overtake a new one.

    Raises:
        NotFound: There is no ledger; nothing may change without one.
    """
    main = context.repository.snapshot(MAIN)
    snapshot = context.repository.snapshot(LEDGER)
    ledger = Ledger(snapshot.read, snapshot.paths, snapshot.revision)
    if not ledger.exists:
        raise NotFound("ledger", LEDGER.removeprefix("refs/heads/"))
    return View(main, ledger, context.repository)


def valid_environments(repository: Repository, main: Snapshot) -> EnvironmentsConfiguration:
    """Return `environments.yaml` of the newest commit of `main` in which it is valid.

    Raises:
        NotFound: There never was one.
        InvalidInput: None ever was valid; the problems are those of the newest.
    """
    data = main.read(ENVIRONMENTS_FILE)
    if data is None or main.revision is None:
        raise NotFound("file", ENVIRONMENTS_FILE)
    try:
        return load_environments(data, ENVIRONMENTS_FILE)
    except InvalidInput:
        former = next(former_environments(repository, main), None)
        if former is None:
            raise
        return former


def former_environments(repository: Repository, main: Snapshot) -> Iterator[EnvironmentsConfiguration]:
    """Yield what `environments.yaml` says, newest first, of the last commits of `main` that change it: where valid."""
    if main.revision is None:
        return
    for commit in islice(repository.history(main.revision, path=ENVIRONMENTS_FILE), LOOK_BACK):
        data = repository.at(commit.revision).read(ENVIRONMENTS_FILE)
        with suppress(InvalidInput):
            if data is not None:
                yield load_environments(data, ENVIRONMENTS_FILE)


def former_environment(repository: Repository, main: Snapshot, name: str) -> Environment | None:
    """Return an environment of the newest commit of `main` that has it, without automation; None where none has."""
    every = (one.environment(name) for one in former_environments(repository, main))
    found = next((one for one in every if one is not None), None)
    return None if found is None else replace(found, automatic=False)


def configuration_of(submission: Submission) -> ModelConfiguration:
    """Return the `mlgitops.yaml` that a release was submitted with: it is judged and served by that for ever.

    Raises:
        InvalidInput: This version of the tool cannot read it any more.
    """
    return load_model(submission.configuration.encode(), MODEL_FILE)


def by(person: Person) -> str:
    """Return a person as text, as git writes it."""
    return f"{person.name} <{person.email}>"


def check_model(view: View, model: str) -> None:
    """Refuse a model that never submitted a release; `NotFound` names those that did."""
    known = view.ledger.models()
    if model not in known:
        raise NotFound("model", model, known)


def environment_of(view: View, name: str | None, model: str) -> Environment:
    """Return the environment of that name; without a name, the last one, which is production.

    Raises:
        NotFound: There is no such environment, or no such model.
    """
    check_model(view, model)
    configuration = view.configuration
    found = configuration.environments[-1] if name is None else view.environment(name)
    if found is None:
        raise NotFound("environment", name or "", [one.name for one in configuration.environments])
    return found


def find_release(view: View, model: str, name: str) -> Release:
    """Return the release whose name starts with `name`, which at least four digits must do.

    Raises:
        NotFound: There is none.
        InvalidInput: There are several.
    """
    known = view.ledger.release_names(model)
    found = [one for one in known if len(name) >= 4 and one.startswith(name)]
    if len(found) > 1:
        raise InvalidInput(f"release {name} is one of several: {', '.join(found)}")
    if not found:
        raise NotFound("release", name, known)
    return view.ledger.release(model, found[0])
