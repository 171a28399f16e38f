"""What `gc` deletes: artifacts that no rollback can need any more."""

from dataclasses import dataclass

from mlgitops.app.absorbing import pending
from mlgitops.app.context import Context, View, look
from mlgitops.app.promoting import next_release
from mlgitops.app.rolling import folder_of
from mlgitops.app.writing import write
from mlgitops.core import release as machine
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.ports.store import Store

ROLLBACKS = 2
"""Rollbacks in a row that find their model whatever was collected: the second is for a last-good that was none."""


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """One artifact that may go."""

    model: str
    release: str
    uri: str
    size_bytes: int
    """Bytes freed; 0 in a dry run."""


def collect(context: Context, store: Store, *, keep: int | None, dry_run: bool) -> list[Garbage]:
    """Delete the models of old releases by policy; never one that serves, is tried, is last-good, or still moves.

    Args:
        context: The outside world.
        store: Where artifacts are.
        keep: Newest releases kept per model beside those; None for what `environments.yaml` says.
        dry_run: Say what would go, delete nothing.
    """
    view = look(context)
    newest = view.configuration.keep_releases if keep is None else keep
    garbage = []
    for model in view.ledger.models():
        releases = view.ledger.releases(model)
        old = releases[: max(0, len(releases) - newest)]
        needed = _needed(view, model)
        for release in old:
            if release.name not in needed and release.phase not in machine.OPEN:
                garbage += _one(context, store, model, release, dry_run=dry_run)
    return garbage


def _one(context: Context, store: Store, model: str, release: Release, *, dry_run: bool) -> list[Garbage]:
    uri = release.submission.artifact_uri
    if uri not in store.paths(f"models/{model}"):
        return []
    if dry_run:
        return [Garbage(model=model, release=release.name, uri=uri, size_bytes=0)]
    # The ledger first: a release whose model is gone must not be rolled out, whenever this is killed.
    chosen: list[bool] = []

    def decide(view: View) -> str | None:
        chosen[:] = [release.name not in _needed(view, model)]
        return _marked(context, view, model, release.name) if chosen[0] else None

    write(context, decide, lambda _: ())
    if not chosen[0]:  # it has come to be needed since it was found
        return []
    return [Garbage(model=model, release=release.name, uri=uri, size_bytes=store.delete(uri))]


def _marked(context: Context, view: View, model: str, name: str) -> str:
    """Record that a model goes."""
    release = view.ledger.release(model, name)
    if release.phase is ReleasePhase.CANDIDATE and not release.collected:
        release = machine.advance(release, machine.Collected(at=context.clock.now()))
        view.ledger.put_release(release)
    return f"gc({model}): the model of release {name} goes"


def _needed(view: View, model: str) -> set[str]:
    """Return the releases that serve, are being tried, or that a rollback could return to."""
    needed = set()
    for environment in view.configuration.environments:
        state = view.ledger.state(environment.name, model)
        asked = pending(view, folder_of(view, environment, model), state)
        needed |= {asked.release} if asked else set()
        following = next_release(view, environment, state)
        needed |= {following.name} if following else set()
        for rollout in state.rollouts.values():
            if rollout.is_open or rollout is state.live:
                needed.add(rollout.release)
                target = rollout.rollback.target if rollout.is_open and rollout.rollback else None
                needed |= {state.rollouts[target].release} if target is not None else set()
        number = state.live.number if state.live else state.last_number + 1
        for _ in range(ROLLBACKS):
            good = state.last_good(number)
            if good is None:
                break
            needed.add(good.release)
            number = good.number
    return needed
