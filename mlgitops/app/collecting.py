"""What `gc` deletes: whatever old releases left that no rollback, training or evaluation can need any more."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mlgitops.app.absorbing import pending
from mlgitops.app.context import Context, View, look
from mlgitops.app.promoting import next_release
from mlgitops.app.rolling import folder_of
from mlgitops.app.writing import write
from mlgitops.core import release as machine
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.names import job_name
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.ports.keeper import Keeper, Kept
from mlgitops.ports.store import Store

ROLLBACKS = 2
"""Rollbacks in a row that find their model whatever was collected: the second is for a last-good that was none."""
OF_KIND = {"image": "images", "log": "logs", "evaluation": "evaluations", "samples": "samples"}
"""The retention that counts for what a keeper keeps."""
Users = Mapping[str, AbstractSet[tuple[str, str]]]
"""Model and name of the releases that a thing is of, by what it is called."""


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """One thing that goes."""

    kind: str
    """`model`, `checkpoints`, `data`, `evaluation-set`, `source`, `image`, `log`, `evaluation` or `samples`."""
    model: str
    """Of which model; empty for an image that no release names."""
    release: str | None
    """The newest release it is of; None for what no release names."""
    uri: str
    """Where it is."""
    size_bytes: int
    """Bytes freed, or that would be."""
    reason: str
    """Why it may go, in words."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Which releases keep what, by one view of the ledger."""

    view: View
    keep: int | None
    """Newest releases kept per model, of everything; None for what `environments.yaml` says."""
    _needed: dict[str, set[str]] = field(default_factory=dict, init=False)

    def newest(self, kind: str) -> int:
        """Return how many of the newest releases of each model keep a kind of thing."""
        if self.keep is not None:
            return self.keep
        return self.view.configuration.keep.get(kind, self.view.configuration.keep_releases)

    def keepers(self, model: str, kind: str = "models") -> set[str]:
        """Return the releases of a model that keep a kind of thing: those in need of it, and the newest."""
        releases = self.view.ledger.releases(model)
        newest = self.newest(kind)
        kept = {one.name for one in releases if one.phase in machine.OPEN}
        return kept | {one.name for one in (releases[-newest:] if newest else ())} | self._needed_of(model)

    def _needed_of(self, model: str) -> set[str]:
        """Return what is needed whatever its kind: every kind asks."""
        if model not in self._needed:
            self._needed[model] = needed(self.view, model)
        return self._needed[model]

    def every(self, kind: str = "models") -> set[tuple[str, str]]:
        """Return the releases of all models that keep a kind of thing."""
        return {(model, name) for model in self.view.ledger.models() for name in self.keepers(model, kind)}


def collect(
    context: Context, store: Store, keepers: Sequence[Keeper] = (), *, keep: int | None, dry_run: bool
) -> list[Garbage]:
    """Delete by policy what old releases left; never what one needs that serves, is tried, is last-good, or moves.

    Killed at any moment and run again, it goes on: what may go is found out anew from the ledger and what is there.

    Args:
        context: The outside world.
        store: Where models, data and checkpoints are.
        keepers: What keeps images, logs, evaluations and samples.
        keep: Newest releases kept per model beside those; None for what `environments.yaml` says, kind by kind.
        dry_run: Say what would go, delete nothing.
    """
    gone = _models(context, store, keep, dry_run=dry_run)
    retention = Retention(view=look(context), keep=keep)  # only now: a model that had to stay keeps the rest, too
    unused = context.clock.now() - timedelta(seconds=retention.view.configuration.unused_seconds)
    if not dry_run:
        store.sweep(unless_used_since=unused)
    for found in _stored(retention, store):
        size = store.size_bytes(found.uri) if dry_run else store.delete(found.uri, unless_used_since=unused)
        gone += [replace(found, size_bytes=size)] if size or not dry_run else []
    for keeper in keepers:
        if not dry_run:
            keeper.sweep(unless_used_since=unused)
        for found, name in _kept(retention, keeper):
            freed = found.size_bytes if dry_run else keeper.delete(name, unless_used_since=unused)
            gone.append(replace(found, size_bytes=freed))
    return [one for one in gone if one.size_bytes or one.kind == "model"]


# --- models -----------------------------------------------------------------------------------------------------------


def _models(context: Context, store: Store, keep: int | None, *, dry_run: bool) -> list[Garbage]:
    retention = Retention(view=look(context), keep=keep)
    gone = []
    for model in retention.view.ledger.models():
        kept, there = retention.keepers(model), {*store.paths(f"models/{model}")}
        for release in retention.view.ledger.releases(model):
            uri = release.submission.artifact_uri
            if release.name in kept or uri not in there:
                continue
            size = store.size_bytes(uri)
            if dry_run or _forgotten(context, store, model, release, keep):
                reason = f"older than the newest {retention.newest('models')} releases, and no rollback could need it"
                gone.append(_garbage("model", release, uri, size, reason))
    return gone


def _garbage(kind: str, release: Release, uri: str, size_bytes: int, reason: str) -> Garbage:
    model = release.submission.model
    return Garbage(kind=kind, model=model, release=release.name, uri=uri, size_bytes=size_bytes, reason=reason)


def _forgotten(context: Context, store: Store, model: str, release: Release, keep: int | None) -> bool:
    """Record that a model goes, and delete it; False when it has come to be needed since it was found."""
    # The ledger first: a release whose model is gone must not be rolled out, whenever this is killed.
    chosen: list[bool] = []

    def decide(view: View) -> str | None:
        chosen[:] = [release.name not in Retention(view=view, keep=keep).keepers(model)]
        return _marked(context, view, model, release.name) if chosen[0] else None

    write(context, decide, lambda _: ())
    if chosen[0]:
        store.delete(release.submission.artifact_uri)
    return chosen[0]


def _marked(context: Context, view: View, model: str, name: str) -> str:
    release = view.ledger.release(model, name)
    if release.phase is ReleasePhase.CANDIDATE and not release.collected:
        release = machine.advance(release, machine.Collected(at=context.clock.now()))
        view.ledger.put_release(release)
    return f"gc({model}): the model of release {name} goes"


# --- what is beside a model -------------------------------------------------------------------------------------------


def _stored(retention: Retention, store: Store) -> Iterator[Garbage]:
    """Find checkpoints, data, evaluation sets and sources that no release keeps; several may share a digest."""
    for model in retention.view.ledger.models():
        releases = retention.view.ledger.releases(model)
        named = {one.name: one for one in releases}
        kept = retention.keepers(model, "checkpoints")
        for uri in store.paths(f"checkpoints/{model}"):
            found = named.get(uri.rpartition("/")[2])
            if found is not None and found.name not in kept:
                yield _garbage("checkpoints", found, uri, 0, "its training is over, and can go on from nothing")
        # A model that can be rolled out is evaluated again: its evaluation set and command stay with it.
        of_models = retention.keepers(model)
        for kind, folder, keepers in (
            ("data", "data", retention.keepers(model, "data")),
            ("evaluation-set", "evaluation", of_models),
            ("source", "source", of_models),
        ):
            users = _users_below(releases, store.uri(f"{folder}/{model}"))
            for uri in store.paths(f"{folder}/{model}"):
                of = users.get(uri, [])
                if keepers & {one.name for one in of}:
                    continue
                if of:
                    yield _garbage(kind, of[-1], uri, 0, _unused(len(of)))
                else:
                    reason = "no release uses it: its push was never submitted"
                    yield Garbage(kind=kind, model=model, release=None, uri=uri, size_bytes=0, reason=reason)


def _unused(count: int) -> str:
    return "no release that is kept uses it" + (f"; {count} did" if count > 1 else "")


def _users_below(releases: Sequence[Release], folder: str) -> Mapping[str, list[Release]]:
    """Return the releases that name something in a folder of the store, oldest first, by the URI right below it."""
    users: dict[str, list[Release]] = {}
    for one in releases:
        judging = {uri for of in (one.submission, one.judged_by) for uri in (of.evaluation_uri, of.source_uri)}
        for uri in {*one.submission.variables.values(), *judging}:
            if uri.startswith(f"{folder}/"):
                users.setdefault(f"{folder}/{uri[len(folder) + 1 :].partition('/')[0]}", []).append(one)
    return users


def _kept(retention: Retention, keeper: Keeper) -> list[tuple[Garbage, str]]:
    """Find what a keeper keeps and no release does: as garbage with what deleting it frees, and by its name."""
    users, keepers = _users(retention.view, keeper.kind), retention.every(OF_KIND[keeper.kind])
    going: list[tuple[Kept, AbstractSet[tuple[str, str]]]] = []
    staying: set[str] = set()
    for one in keeper.kept():
        # An evaluation's key begins with the release that it is of.
        of = users.get(one.name.partition("-")[0] if keeper.kind == "evaluation" else one.name, set())
        # Whatever a ledger does not know may be another ledger's; but images are made by pushes that came to nothing.
        if of & keepers or (not of and keeper.kind != "image"):
            staying |= {*one.parts}
        else:
            going.append((one, of))
    found = []
    for one, of in going:
        size = sum(part for name, part in one.parts.items() if name not in staying)
        staying |= {*one.parts}  # a part of several is freed once
        found.append((_of_keeper(retention.view, keeper.kind, one, of, size), one.name))
    return found


def _of_keeper(view: View, kind: str, one: Kept, of: AbstractSet[tuple[str, str]], size_bytes: int) -> Garbage:
    if not of:
        reason = "no release uses it: its push was never submitted"
        return Garbage(kind=kind, model="", release=None, uri=one.place, size_bytes=size_bytes, reason=reason)
    releases = sorted((view.ledger.release(*user) for user in of), key=lambda one: one.submission.submitted_at)
    return _garbage(kind, releases[-1], one.place, size_bytes, _unused(len(of)))


def _users(view: View, kind: str) -> Users:
    """Return whose the things of a keeper are."""
    found: dict[str, set[tuple[str, str]]] = {}
    for model in view.ledger.models():
        for release in view.ledger.releases(model):
            user = (model, release.name)
            names = {"image": release.submission.image, "log": job_name(*user), "evaluation": release.name}
            name = names.get(kind)
            if name is not None:
                found.setdefault(name, set()).add(user)
    if kind == "samples":
        for environment, model in view.ledger.environments():
            for number, rollout in view.ledger.state(environment, model).rollouts.items():
                found[f"{environment}/{model}/{number}"] = {(model, rollout.release)}
    return found


# --- what is needed ---------------------------------------------------------------------------------------------------


def needed(view: View, model: str) -> set[str]:
    """Return the releases that serve, are being tried or are next, or that a rollback could return to.

    In every environment, also in one that was taken out of `environments.yaml` while something served there.
    """
    found = set()
    for environment in view.configuration.environments:
        state = view.ledger.state(environment.name, model)
        asked = pending(view, folder_of(view, environment, model), state)
        following = next_release(view, environment, state)
        found |= {asked.release} if asked else set()
        found |= {following.name} if following else set()
    for name in {*view.environment_names, *(one for one, of in view.ledger.environments() if of == model)}:
        found |= _needed_in(view.ledger.state(name, model))
    return found


def _needed_in(state: EnvironmentState) -> set[str]:
    found = set()
    for rollout in state.rollouts.values():
        if rollout.is_open or rollout is state.live:
            found.add(rollout.release)
            target = rollout.rollback.target if rollout.is_open and rollout.rollback else None
            found |= {state.rollouts[target].release} if target is not None else set()
    number = state.live.number if state.live else state.last_number + 1
    for _ in range(ROLLBACKS):
        good = state.last_good(number)
        if good is None:
            break
        found.add(good.release)
        number = good.number
    return found
