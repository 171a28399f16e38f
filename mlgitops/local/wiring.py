"""The one place that picks implementations."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlgitops.adapters.clock import SystemClock
from mlgitops.adapters.forge.address import hosted_repository
from mlgitops.adapters.metrics.chosen import ChosenMetrics, Sources
from mlgitops.adapters.redacting import redactor
from mlgitops.adapters.repository.commits import Signing
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.app.confining import confined
from mlgitops.app.context import Context, World
from mlgitops.app.redacting import Redacting
from mlgitops.core.errors import NotFound
from mlgitops.core.manifest.fields import LEDGER
from mlgitops.core.redaction import NOTIFY
from mlgitops.ports.forge import Forge
from mlgitops.ports.keeper import Keeper
from mlgitops.ports.observer import Observer, Silent
from mlgitops.ports.repository import Person

if TYPE_CHECKING:
    from mlgitops.app.notifying import Told

TOOL: Final = Person(name="mlgitops", email="mlgitops@localhost")
"""Who commits what nobody in particular decided."""
CLAIM: Final = "mlgitops-store"
"""Volume claim of the embedded engine."""
STORE, REGISTRY, CLUSTER, SERVING = "store", "registry", "cluster", "serving"
METRICS, EVALUATIONS, IMAGES, BUILDS = "metrics", "evaluations", "images", "builds"
NOTIFIED: Final = "notified.json"
"""How far each address was told of the ledger, in an engine's folder."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """What opens the environment repository, and how commits to it are signed."""

    credentials: Credentials | None = None
    """None: what the location holds, or the ssh agent."""
    signing: Signing | None = None
    """None: commits are not signed."""
    forge: str | None = None
    """The environment repository's address in the API of its forge; None where its location does not tell it either."""
    forge_token: str | None = field(default=None, repr=False)
    """Opens the forge; None: what opens the repository, where its location tells the forge."""
    only_model: str | None = None
    """The only model whose files may be written; None: every model's."""


def context(
    location: str, cache: Path, person: Person, observer: Observer | None = None, *, access: Access | None = None
) -> Context:
    """Return the outside world without an engine: the environment repository is enough for most commands."""
    given = access or Access()
    opened = open_repository(location, identity=TOOL, cache=cache, credentials=given.credentials, signing=given.signing)
    basis = Context(
        repository=Redacting(opened, redactor()),
        clock=SystemClock(),
        person=person,
        sleep=time.sleep,
        observer=observer or Silent(),
        forge=_forge(location, given),
    )
    return basis if given.only_model is None else confined(basis, given.only_model)


def _forge(location: str, access: Access) -> Callable[[], Forge] | None:
    """Return what opens the forge when it is asked for: most commands never do, and its client takes time to load."""
    hosted = hosted_repository(location)
    address = access.forge or hosted
    if address is None:
        return None
    beside = access.credentials.token if access.credentials and address == hosted else None
    token = access.forge_token or beside

    @cache
    def opened() -> Forge:
        from mlgitops.adapters.forge.github import GitHub

        return GitHub(address, token, redact=redactor(token))

    return opened


def world(home: Path | None, basis: Context, sources: Sources | None = None) -> World:
    """Return the outside world with the embedded engine of `home`.

    Args:
        home: Folder of the engine.
        basis: The outside world without it.
        sources: Where else counts can come from, if `environments.yaml` says so.

    Raises:
        NotFound: There is no engine here.
    """
    if home is None:
        raise NotFound("engine", "local")
    from mlgitops.adapters.cluster.embedded import EmbeddedCluster
    from mlgitops.adapters.evaluator.embedded import EmbeddedEvaluator
    from mlgitops.adapters.metrics.embedded import EmbeddedMetrics
    from mlgitops.adapters.serving.embedded import EmbeddedServing
    from mlgitops.adapters.store.folder import FolderStore

    store = FolderStore(home / STORE, CLAIM)
    return World(
        repository=basis.repository,
        clock=basis.clock,
        person=basis.person,
        sleep=basis.sleep,
        observer=basis.observer,
        forge=basis.forge,
        cluster=EmbeddedCluster(home / CLUSTER),
        serving=EmbeddedServing(home / SERVING, store.path),
        metrics=ChosenMetrics(EmbeddedMetrics(home / METRICS), sources or Sources()),
        store=store,
        evaluator=EmbeddedEvaluator(home / EVALUATIONS, store.path),
    )


def teller(
    home: Path | None, location: str, cache: Path, basis: Context, variables: Mapping[str, str]
) -> "Callable[[], Told] | None":
    """Return what tells people what the ledger says from now on, or since they were told last; None for no addresses.

    Args:
        home: Folder of the engine, where it is remembered what was told; None for the cache.
        location: The environment repository.
        cache: Folder of what can be lost.
        basis: The outside world; where the ledger is now is read at once.
        variables: Environment variables, some of which may hold addresses.

    Raises:
        Unavailable: The repository cannot be reached.
    """
    if not any(name.startswith(NOTIFY) for name in variables):
        return None
    from mlgitops.adapters.notifier.apprise import AppriseNotifier
    from mlgitops.adapters.notifier.marks import FileMarks
    from mlgitops.app.notifying import notify

    notifier, since = AppriseNotifier(variables), basis.repository.snapshot(LEDGER).revision
    apart = cache / f"notified-{hashlib.sha256(location.encode()).hexdigest()[:16]}.json"
    marks = FileMarks(apart if home is None else home / NOTIFIED)
    return lambda: notify(basis, notifier, marks, since=since)


def keepers(home: Path | None) -> Sequence[Keeper]:
    """Return what the embedded engine of `home` keeps beside its store.

    Raises:
        NotFound: There is no engine here.
    """
    if home is None:
        raise NotFound("engine", "local")
    from mlgitops.adapters.builder.keeping import ImageKeeper
    from mlgitops.adapters.cluster.keeping import JobKeeper
    from mlgitops.adapters.evaluator.keeping import EvaluationKeeper
    from mlgitops.adapters.metrics.keeping import SampleKeeper

    return (
        ImageKeeper(home / REGISTRY, home / IMAGES),
        JobKeeper(home / CLUSTER),
        EvaluationKeeper(home / EVALUATIONS),
        SampleKeeper(home / METRICS),
    )
