"""Pull-request mode: a promotion is proposed by a pull request, and merging it is the promotion.

Everything is found out anew at every pass, from `main`, from the branches and from the forge; nothing about pull
requests is remembered. A branch is named after what it changes (the former `rollout.yaml` and the new one), is created
once and never moved or deleted: what people put on it stays. Where `main` moved so that the content would be another
one, another branch is another pull request, and the former one is closed with a comment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final

from mlgitops.app.absorbing import FORCE_TRAILER, pending, proposal_of, refused
from mlgitops.app.context import Context, View, World, by, look
from mlgitops.app.describing import described
from mlgitops.app.evaluating import Judged, judged_in
from mlgitops.app.moves import Move, now, put
from mlgitops.app.promoting import next_promotion
from mlgitops.app.rolling import folder_of
from mlgitops.app.writing import write
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import Environment
from mlgitops.core.errors import Conflict, Denied, InvalidInput, MlgitopsError, Problem
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.loading import ENVIRONMENTS_FILE
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.fields import MAIN, PROPOSALS
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.rollout import Rollout
from mlgitops.ports.forge import Forge, PullRequest, PullRequestState, Status, StatusState
from mlgitops.ports.repository import Change, Commit

HEADS: Final = "refs/heads/"
BASE: Final = MAIN.removeprefix(HEADS)
PROPOSAL_TRAILER: Final = "Mlgitops-Proposal"
"""Marks the commit that a proposal's branch was made with."""
CHECK: Final = "mlgitops/proposal"
"""The status that a protection rule can require."""
ABOUT: Final = "about"
"""Topic of the comment on a pull request that people changed."""
ENDED: Final = "ended"
"""Topic of the comment that says why the tool closed one."""
LOOK_BACK: Final = 50
"""Commits on a branch among which the tool's own is looked for."""
_MARK: Final = "<!-- mlgitops: written by the tool, and again as long as nobody edits it; "


@dataclass(frozen=True)
class Place:
    """One model in one environment, at one look."""

    view: View
    environment: Environment
    folder: Folder
    state: EnvironmentState

    @property
    def path(self) -> str:
        """Where `rollout.yaml` is."""
        return self.folder.path(names.ROLLOUT_FILE)

    @property
    def prefix(self) -> str:
        """What the branches of its proposals begin with, without `refs/heads/`."""
        return f"{PROPOSALS.removeprefix(HEADS)}{self.state.environment}/{self.state.model}/"

    @property
    def where(self) -> str:
        """Its name for people."""
        return f"{self.state.model} in {self.state.environment}"

    def branch(self, change: Change) -> str:
        """Return the branch that proposes a change: the same change to the same file has the same name."""
        forced = change.trailers.get(FORCE_TRAILER, "")
        parts = [self.view.main.read(self.path) or b"", change.files[self.path] or b"", forced.encode()]
        content = b"".join(sha256(one).digest() for one in parts)
        return f"{self.prefix}{sha256(content).hexdigest()[:12]}"


def place_of(view: View, environment: Environment, model: str) -> Place:
    """Return one model's place in an environment."""
    return Place(view, environment, folder_of(view, environment, model), view.ledger.state(environment.name, model))


@dataclass(frozen=True)
class Seen:
    """An open pull request, with what its branch really asks for."""

    pull: PullRequest
    revision: str | None
    """What the branch is at; None where it was deleted."""
    asked: RolloutFields | None
    own: Commit | None
    """The tool's commit that it still is; None once people changed what it asks for."""
    change: Change | None
    """That commit's change."""

    @property
    def automatic(self) -> bool:
        """Whether automation proposed it, and nobody took it up."""
        return self.own is not None and self.own.author == self.own.committer

    @property
    def forced(self) -> str:
        """Reason for bringing back what was rolled back."""
        return self.own.trailers.get(FORCE_TRAILER, "") if self.own else ""


def propose(world: World, models: Sequence[str]) -> tuple[int, list[MlgitopsError]]:
    """Bring the pull requests of all places to what is wanted now; returns the moves, and what could not be done.

    An environment without pull-request mode costs nothing: the forge is not asked.
    """
    view = look(world)
    units = [one for one in view.configuration.environments if one.by_pull_request]
    if not units or view.problem is not None:
        return 0, []
    moves, problems = 0, list[MlgitopsError]()
    try:
        forge = forge_of(world, units[0].name)
        pulls = forge.opened(BASE, PROPOSALS.removeprefix(HEADS))
    except MlgitopsError as error:
        return 0, [error]
    for unit in units:
        for model in models:
            try:
                moved = _settle(world, forge, place_of(view, unit, model), pulls)
            except MlgitopsError as error:
                problems.append(error)
                continue
            moves += moved
            view = look(world) if moved else view
    return moves, problems


def forge_of(context: Context, environment: str) -> Forge:
    """Return the forge.

    Raises:
        InvalidInput: None is known.
    """
    if context.forge is None:
        message = f"{environment} takes promotions by pull request, and no forge is known"
        mend = "set MLGITOPS_FORGE to the repository's address in the forge's API, and MLGITOPS_FORGE_TOKEN"
        raise InvalidInput([Problem(message=message, path=ENVIRONMENTS_FILE, mend=mend)])
    return context.forge()


def ask(context: Context, place: Place, change: Change) -> tuple[PullRequest, bool]:
    """Propose what a person wants; returns the pull request, and whether it is a new one.

    What automation proposed instead is closed. What people proposed, or changed, is theirs.

    Raises:
        Denied: Another proposal of a person is open, or what is asked for was merged and is not on `main`.
    """
    forge = forge_of(context, place.environment.name)
    branch = place.branch(change)
    seen = [_seen(place, one) for one in forge.opened(BASE, place.prefix)]
    others = [one for one in seen if one.pull.branch != branch]
    theirs = next((one for one in others if not one.automatic and not _stale(place, one)), None)
    if theirs is not None:
        reason = f"pull request #{theirs.pull.number} proposes something else; merge or close it first"
        raise Denied("proposing", place.where, reason)
    newest = next(iter(forge.of_branch(branch)), None)
    if newest is not None and newest.state is PullRequestState.MERGED:
        reason = f"pull request #{newest.number} was merged; `mlgitops reconcile` takes it up, or what became of it"
        raise Denied("proposing", place.where, reason)
    if newest is not None and newest.state is PullRequestState.OPEN:
        pull, new = newest, False
    else:
        pull, new = _opened(context, forge, place, change, None)
    _supersede(forge, others, pull)
    return pull, new


def _settle(world: World, forge: Forge, place: Place, pulls: Sequence[PullRequest]) -> int:
    """Bring the pull requests of one place to what is wanted now; returns 1 where the ledger moved."""
    if pending(place.view, place.folder, place.state) is not None:
        return 0  # one was merged just now: what it leads to is decided first
    kept: list[Seen] = []
    for one in (_seen(place, pull) for pull in pulls if pull.branch.startswith(place.prefix)):
        why = _stale(place, one) if one.own is not None else ""
        if why:
            _close(forge, one.pull, f"Closed by mlgitops: {why}.")
        else:
            kept.append(one)
    wanted = next(iter(next_promotion(world, place.view, place.environment, place.folder, place.state)), None)
    if wanted is not None and all(one.automatic for one in kept):
        moved, pull = _want(world, forge, place, wanted)
        if moved:
            return 1
        if pull is not None:
            _supersede(forge, [one for one in kept if one.pull.branch != pull.branch], pull)
            kept = [_seen(place, pull)]
    for one in kept:
        _tell(world, forge, place, one)
    return 0


def _want(world: World, forge: Forge, place: Place, change: Change) -> tuple[bool, PullRequest | None]:
    """Propose what automation wants, unless people said no to it; returns whether that was recorded."""
    branch = place.branch(change)
    newest = next(iter(forge.of_branch(branch)), None)
    opened = newest is not None and newest.state is PullRequestState.OPEN
    if newest is not None and not opened:
        merged = newest.state is PullRequestState.MERGED
        if merged and world.repository.snapshot(MAIN).revision != place.view.main.revision:
            return False, None  # merged after `main` was read: the next pass sees it there
        if merged or ENDED not in forge.comments(newest.number):
            return _withdraw(world, forge, place, branch, newest), None
    result = _judged(world, place, _asked(place, change).release)
    if result is None:
        return False, None  # what a reviewer wants to know is not known yet
    return False, newest if opened else _opened(world, forge, place, change, result)[0]


def _asked(place: Place, change: Change) -> RolloutFields:
    data = change.files[place.path]
    found = folders.rollout(lambda _: data, place.folder)
    assert found is not None
    return found


def _opened(
    context: Context, forge: Forge, place: Place, change: Change, result: Judged | None
) -> tuple[PullRequest, bool]:
    """Open the pull request of a change, whatever part of it is there already; returns whether it is a new one."""
    branch, base = place.branch(change), place.view.main.revision
    assert base is not None
    found = context.repository.snapshot(f"{HEADS}{branch}")
    if found.revision is None:
        marked = replace(change, trailers={**change.trailers, PROPOSAL_TRAILER: branch.rpartition("/")[2]})
        context.repository.branch(f"{HEADS}{branch}", base, marked)
    elif found.read(place.path) != change.files[place.path]:
        reason = f"people changed the branch {branch}, which no open pull request shows; delete it"
        raise Denied("proposing", place.where, reason)
    author = change.author or context.person
    title = change.message.partition("\n")[0]
    body = _body(place, change, by(author), result, now(context))
    try:
        return forge.open(branch=branch, base=BASE, title=title, body=body), True
    except Conflict:
        newest = next(iter(forge.of_branch(branch)), None)
        if newest is None:
            raise
        return newest, False


def _seen(place: Place, pull: PullRequest) -> Seen:
    tip = place.view.repository.snapshot(f"{HEADS}{pull.branch}")
    if tip.revision is None:
        return Seen(pull, None, None, None, None)
    data, asked = tip.read(place.path), folders.rollout(tip.read, place.folder)
    commits = list(islice(place.view.repository.history(tip.revision, until=place.view.main.revision), LOOK_BACK))
    position = next((n for n, one in enumerate(commits) if PROPOSAL_TRAILER in one.trailers), None)
    # Merges of `main` into the branch, as the forge's button makes them, change nothing that is asked for.
    if position is None or data is None or any(len(one.parents) < 2 for one in commits[:position]):
        return Seen(pull, tip.revision, asked, None, None)
    own = commits[position]
    if place.view.repository.at(own.revision).read(place.path) != data:
        return Seen(pull, tip.revision, asked, None, None)
    change = Change(message=own.message, files={place.path: data}, author=own.author, trailers=own.trailers)
    return Seen(pull, tip.revision, asked, own, change)


def _stale(place: Place, one: Seen) -> str:
    """Say why what a pull request asks for can no longer be taken up; empty where it can."""
    asked = one.asked
    if asked is None:
        return "its branch asks for no rollout" if one.revision else ""
    if asked.number != place.state.last_number + 1:
        return f"rollout {asked.number} was taken up or withdrawn meanwhile"
    if one.own is not None and one.change is not None and place.branch(one.change) != one.pull.branch:
        return "rollout.yaml on main was changed meanwhile"
    return refused(place.view, place.environment, place.state, asked, forced=one.forced)


def _supersede(forge: Forge, others: Sequence[Seen], pull: PullRequest) -> None:
    for one in others:
        if one.automatic:
            _close(forge, one.pull, f"Closed by mlgitops: superseded by #{pull.number}.")


def _close(forge: Forge, pull: PullRequest, why: str) -> None:
    """Close a pull request; said first, so that nobody takes it for a person's no when this ends in between."""
    forge.comment(pull.number, ENDED, f"{why} Its branch stays as it is.")
    forge.close(pull.number)


def _withdraw(world: World, forge: Forge, place: Place, branch: str, pull: PullRequest) -> bool:
    """Record that people said no: automation never proposes that release here again.

    A pull request that was merged and is not on `main` was reverted before anybody took it up, or merged elsewhere.
    """
    closer = forge.closed_by(pull.number) or "somebody"
    merged = pull.state is PullRequestState.MERGED
    told = "was merged, and main does not ask for it" if merged else "was closed"
    at = now(world)

    def decide(view: View) -> str | None:
        here = place_of(view, place.environment, place.state.model)
        change = next(iter(next_promotion(world, view, here.environment, here.folder, here.state)), None)
        if change is None or here.branch(change) != branch:
            return None
        proposal = proposal_of(
            here.environment,
            here.state,
            _asked(here, change),
            by=by(world.person),
            revision=pull.head,
            at=at,
            forced="",
        )
        event = machine.Withdrawn(at=at, by=closer, reason=f"pull request #{pull.number} {told}")
        rollout = machine.advance(Rollout(proposal=proposal), event)
        return put(view, Move.of(here.state.with_rollout(rollout), rollout))

    return write(world, decide, lambda _: ())


def _judged(world: World, place: Place, name: str) -> Judged | None:
    release = place.view.ledger.release(place.state.model, name)
    return judged_in(world, place.view, place.environment, place.state, release)


def _tell(world: World, forge: Forge, place: Place, one: Seen) -> None:
    """Say in a status, and in the text as long as nobody edited it, what merging would lead to."""
    if one.revision is None:
        return
    if one.own is None or one.change is None or one.asked is None:
        words = (
            "People changed what this pull request asks for, so mlgitops leaves it as it is: it is neither closed nor "
            "written over, and nothing else is proposed here while it is open. What is merged counts."
        )
        forge.comment(one.pull.number, ABOUT, words)
        result = None
    else:
        result = _judged(world, place, one.asked.release)
        body = _body(place, one.change, by(one.own.author), result, one.own.committed_at)
        if body != one.pull.body.rstrip() and _is_untouched(one.pull.body):
            forge.update(one.pull.number, title=one.pull.title, body=body)
    forge.set_status(one.revision, _status(world, place, one, result))


def _status(world: World, place: Place, one: Seen, result: Judged | None) -> Status:
    frozen = next((each.name for each in place.environment.freeze_windows if each.covers(now(world))), None)
    said, state = f"merging it proposes rollout {place.state.last_number + 1}", StatusState.SUCCESS
    if why := _stale(place, one):
        said, state = why, StatusState.FAILURE
    elif one.own is not None and result is not None and (result.error or result.refusals):
        said, state = result.error or "; ".join(result.refusals), StatusState.FAILURE
    elif place.state.hold is not None:
        said, state = f"on hold: {place.state.hold.reason}", StatusState.PENDING
    elif frozen is not None:
        said, state = f"frozen by {frozen}", StatusState.PENDING
    elif one.own is not None and result is None:
        said, state = "it is being evaluated", StatusState.PENDING
    return Status(context=CHECK, state=state, description=said)


def _body(place: Place, change: Change, author: str, result: Judged | None, at: datetime) -> str:
    """Return the text for reviewers, with a mark that tells whether somebody edited it since."""
    proposal = proposal_of(
        place.environment,
        place.state,
        _asked(place, change),
        by=author,
        revision="",
        at=at,
        forced=change.trailers.get(FORCE_TRAILER, ""),
    )
    text = described(place.view, place.environment, place.folder, place.state, proposal, change, result).rstrip()
    return f"{text}\n\n{_mark(text)}"


def _mark(text: str) -> str:
    return f"{_MARK}{sha256(text.encode()).hexdigest()[:16]} -->"


def _is_untouched(body: str) -> bool:
    text, found, _ = body.rpartition(f"\n\n{_MARK}")
    return bool(found) and body.rstrip() == f"{text}\n\n{_mark(text)}"
