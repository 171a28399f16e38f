"""Dry runs: the same use case over a repository that keeps in memory what would be written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mlgitops.app.context import Context, World
from mlgitops.core.errors import Conflict
from mlgitops.core.names import Digest
from mlgitops.ports.clock import Clock
from mlgitops.ports.cluster import Applied, Cluster, JobObservation, LogPart
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest
from mlgitops.ports.forge import Forge, PullRequest, PullRequestState, Status
from mlgitops.ports.observer import Observer
from mlgitops.ports.repository import Change, Commit, Person, Repository, Snapshot

REVISION_DIGITS = 40
C = TypeVar("C", bound=Context)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """One commit that would be made."""

    ref: str
    """The reference it would be made on, like `refs/heads/main`."""
    subject: str
    """First line of its message."""
    paths: tuple[str, ...]
    """Files it would change, sorted."""


@dataclass(frozen=True)
class _Draft:
    """A tree that exists only here."""

    revision: str
    below: Snapshot
    files: Mapping[str, bytes | None]
    commit: Commit

    def read(self, path: str) -> bytes | None:
        """Return a file's content."""
        return self.files[path] if path in self.files else self.below.read(path)

    def paths(self, prefix: str = "") -> tuple[str, ...]:
        """Return the paths below a folder."""
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        known = {path for path in self.below.paths(prefix) if path not in self.files}
        added = {path for path, data in self.files.items() if data is not None and path.startswith(folder)}
        return tuple(sorted(known | added))


class Rehearsal:
    """Implements `ports.repository.Repository` over another one that it never writes."""

    def __init__(self, repository: Repository, identity: Person, clock: Clock) -> None:
        """Read from `repository`; commits are made in memory."""
        self._repository, self._identity, self._clock = repository, identity, clock
        self._tips: dict[str, Snapshot] = {}
        self._drafts: dict[str, _Draft] = {}
        self.intents: list[Intent] = []

    def snapshot(self, ref: str) -> Snapshot:
        """Return the tree that `ref` would have by now; what is read once stays as it was read."""
        if ref not in self._tips:
            self._tips[ref] = self._repository.snapshot(ref)
        return self._tips[ref]

    def at(self, revision: str) -> Snapshot:
        """Return the tree of a revision, drafts included."""
        return self._drafts.get(revision) or self._repository.at(revision)

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        """Keep what would be written."""
        tip = self.snapshot(ref)
        if tip.revision != expected:
            raise Conflict(ref, expected, tip.revision)
        for change in changes:
            self._put(ref, change)
        return self.snapshot(ref).revision

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        """Keep what would be created."""
        for ref, change in changes.items():
            self._put(ref, change)
        return {ref: self.snapshot(ref).revision or "" for ref in changes}

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Return the paths of files that differ between two revisions, drafts included."""
        one, other = self.at(before), self.at(after)
        paths = {*one.paths(), *other.paths()}
        return tuple(sorted(path for path in paths if one.read(path) != other.read(path)))

    def branch(self, ref: str, base: str, change: Change) -> str:
        """Keep what would be proposed."""
        found = self.snapshot(ref)
        if found.revision is not None:
            raise Conflict(ref, None, found.revision)
        self._tips[ref] = self.at(base)
        self._put(ref, change)
        return self.snapshot(ref).revision or ""

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        """Walk the drafts first, then what is really there."""
        at: str | None = revision
        while at is not None and at != until and at in self._drafts:
            draft = self._drafts[at]
            if path is None or any(one == path or one.startswith(f"{path}/") for one in draft.files):
                yield draft.commit
            at = draft.commit.parents[0] if draft.commit.parents else None
        if at is not None and at != until:
            yield from self._repository.history(at, until=until, path=path)

    def _put(self, ref: str, change: Change) -> None:
        below = self.snapshot(ref)
        files = {path: data for path, data in change.files.items() if data != below.read(path)}
        if not files:
            return
        revision = Digest.of(f"{ref} {below.revision} {len(self.intents)}".encode()).hex[:REVISION_DIGITS]
        commit = Commit(
            revision=revision,
            parents=(below.revision,) if below.revision else (),
            author=change.author or self._identity,
            committer=self._identity,
            committed_at=self._clock.now(),
            message=change.message,
            trailers=change.trailers,
        )
        draft = _Draft(revision, below, files, commit)
        self._drafts[revision] = self._tips[ref] = draft
        subject = change.message.partition("\n")[0]
        self.intents.append(Intent(ref=ref, subject=subject, paths=tuple(sorted(files))))


class _Watched:
    """A cluster that is looked at and never asked for anything."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def job(self, environment: str, name: str) -> JobObservation | None:
        return self._cluster.job(environment, name)

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        return self._cluster.logs(environment, name)

    def log_parts(self, environment: str, name: str, after: Mapping[str, int]) -> Mapping[str, Sequence[LogPart]]:
        return self._cluster.log_parts(environment, name, after)

    def applied(self, environment: str) -> Applied:
        return self._cluster.applied(environment)

    def sync(self) -> None:
        """Ask for nothing: nothing was written."""


class _Unasked:
    """An evaluator that starts nothing and says what it would be asked."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
        self._observer.note(f"would evaluate {request.candidate_uri}; what follows depends on it")
        return None


class _Unchanged:
    """A forge that is looked at, and says what it would be told."""

    def __init__(self, forge: Forge, observer: Observer) -> None:
        self._forge, self._observer = forge, observer

    def opened(self, base: str, prefix: str) -> Sequence[PullRequest]:
        return self._forge.opened(base, prefix)

    def of_branch(self, branch: str) -> Sequence[PullRequest]:
        return self._forge.of_branch(branch)

    def open(self, *, branch: str, base: str, title: str, body: str) -> PullRequest:
        self._observer.note(f"would open a pull request: {title}")
        return PullRequest(
            number=0,
            state=PullRequestState.OPEN,
            branch=branch,
            base=base,
            head="",
            title=title,
            body=body,
            url="",
        )

    def update(self, number: int, *, title: str, body: str) -> None:
        self._observer.note(f"would write the text of pull request #{number} anew: {title}, {len(body)} characters")

    def close(self, number: int) -> None:
        self._observer.note(f"would close pull request #{number}")

    def closed_by(self, number: int) -> str:
        return self._forge.closed_by(number)

    def comments(self, number: int) -> Mapping[str, str]:
        return self._forge.comments(number)

    def comment(self, number: int, topic: str, body: str) -> None:
        self._observer.note(f"would say about {topic} on pull request #{number}: {body}")

    def set_status(self, revision: str, status: Status) -> None:
        self._observer.note(f"would set {status.context} of {revision[:12]} to {status.state}: {status.description}")


def rehearsed(context: C, identity: Person) -> tuple[C, list[Intent]]:
    """Return a context in which nothing is written, and the list of commits that would be made, filled as it is used.

    Args:
        context: The outside world; a `World` is looked at, and asked for nothing.
        identity: Who would commit.
    """
    rehearsal = Rehearsal(context.repository, identity, context.clock)
    quiet = replace(context, repository=rehearsal)
    if (opens := context.forge) is not None:
        quiet = replace(quiet, forge=lambda: _Unchanged(opens(), context.observer))
    if isinstance(quiet, World):
        quiet = replace(quiet, cluster=_Watched(quiet.cluster), evaluator=_Unasked(quiet.observer))
    return quiet, rehearsal.intents
