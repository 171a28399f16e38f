"""Promotions: one commit on `main` that touches `rollout.yaml` alone, by automation or by a person."""

from collections.abc import Sequence

from mlgitops.app.absorbing import FORCE_TRAILER, pending
from mlgitops.app.context import Context, View
from mlgitops.core.configuration import Environment
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.ports.repository import Change, Person


def promotion(
    view: View,
    environment: Environment,
    folder: Folder,
    state: EnvironmentState,
    release: str,
    *,
    author: Person | None = None,
    reason: str = "",
    force: bool = False,
) -> Change:
    """Return the commit that asks for a rollout of `release`."""
    number = state.last_number + 1
    wanted = RolloutFields(
        number=number, release=release, plan=environment.plan.name, plan_digest=str(environment.plan.digest)
    )
    subject = f"promote({state.model}): release {release} → {environment.name} (rollout {number})"
    return Change(
        message=f"{subject}\n\n{reason}\n" if reason else subject,
        files={folder.path(names.ROLLOUT_FILE): folders.rollout_file(view.main.read, folder, wanted)},
        author=author,
        trailers={FORCE_TRAILER: reason} if force else {},
    )


def automatic_promotion(
    context: Context, view: View, environment: Environment, folder: Folder, state: EnvironmentState
) -> Sequence[Change]:
    """Return the promotion that automation writes now; none where it is proposed by a pull request instead."""
    return () if environment.by_pull_request else next_promotion(context, view, environment, folder, state)


def next_promotion(
    context: Context, view: View, environment: Environment, folder: Folder, state: EnvironmentState
) -> Sequence[Change]:
    """Return the promotion that automation wants now; none where a person decides or something is in the way."""
    blocked = view.problem is not None or state.open is not None or state.hold is not None or state.foreign is not None
    frozen = any(window.covers(context.clock.now()) for window in environment.freeze_windows)
    if not environment.automatic or blocked or frozen or pending(view, folder, state) is not None:
        return ()
    release = next_release(view, environment, state)
    return () if release is None else (promotion(view, environment, folder, state, release.name),)


def next_release(view: View, environment: Environment, state: EnvironmentState) -> Release | None:
    """Return the newest candidate that automation may bring here: never one tried here before, nor an older one."""
    releases = view.ledger.releases(state.model)
    tried = {one.release for one in state.rollouts.values()}
    newest = max((one.submission.sequence for one in releases if one.name in tried), default=0)
    before = view.configuration.before(environment.name)
    ready = [
        one
        for one in releases
        if one.phase is ReleasePhase.CANDIDATE
        and not one.collected
        and one.submission.sequence > newest
        and (before is None or trusted_in(view, before.name, state.model, one.name))
    ]
    return ready[-1] if ready else None


def trusted_in(view: View, environment: str, model: str, release: str) -> bool:
    """Say whether a release passed probation in an environment and was not rolled back there."""
    tried = view.ledger.state(environment, model).tried(release)
    return any(one.trusted and one.rollback is None for one in tried)
