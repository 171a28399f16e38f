"""What every use case is given: the outside systems, and who asks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mlgitops.core.configuration import EnvironmentsConfiguration
from mlgitops.core.errors import NotFound
from mlgitops.core.ledger import Ledger
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.ports.clock import Clock
from mlgitops.ports.cluster import Cluster
from mlgitops.ports.evaluator import Evaluator
from mlgitops.ports.metrics import Metrics
from mlgitops.ports.observer import Observer, Silent
from mlgitops.ports.repository import Person, Repository, Snapshot
from mlgitops.ports.serving import Serving
from mlgitops.ports.store import Store

ENVIRONMENTS_FILE = "environments.yaml"


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

    @property
    def configuration(self) -> EnvironmentsConfiguration:
        """`environments.yaml` as it stands on `main`."""
        data = self.main.read(ENVIRONMENTS_FILE)
        if data is None:
            raise NotFound("file", ENVIRONMENTS_FILE)
        return load_environments(data, ENVIRONMENTS_FILE)


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
    return View(main, ledger)


def by(person: Person) -> str:
    """Return a person as text, as git writes it."""
    return f"{person.name} <{person.email}>"
