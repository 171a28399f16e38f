"""A repository in memory: the port's promises at a speed that lets a test try every boundary of a walk."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from mlgitops.core.errors import Conflict, NotFound
from mlgitops.ports.repository import Change, Commit, Person, Repository, Snapshot

EPOCH = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Tree:
    """One revision's files."""

    revision: str | None
    files: Mapping[str, bytes]

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def paths(self, prefix: str = "") -> tuple[str, ...]:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        return tuple(sorted(path for path in self.files if path.startswith(folder)))


class MemoryRepository:
    """Commits as values; `fork` gives an independent repository with the same past."""

    def __init__(self, identity: Person) -> None:
        self._identity = identity
        self._commits: dict[str, tuple[Commit, Tree]] = {}
        self.tips: dict[str, str] = {}

    def fork(self) -> "MemoryRepository":
        other = MemoryRepository(self._identity)
        other._commits, other.tips = self._commits, dict(self.tips)
        return other

    def snapshot(self, ref: str) -> Snapshot:
        revision = self.tips.get(ref)
        return Tree(None, {}) if revision is None else self._commits[revision][1]

    def at(self, revision: str) -> Snapshot:
        if revision not in self._commits:
            raise NotFound("revision", revision)
        return self._commits[revision][1]

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        found = self.tips.get(ref)
        if found != expected:
            raise Conflict(ref, expected, found)
        for change in changes:
            self._put(ref, change)
        return self.tips.get(ref)

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        taken = next((ref for ref in changes if ref in self.tips), None)
        if taken is not None:
            raise Conflict(taken, None, self.tips[taken])
        for ref, change in changes.items():
            self._put(ref, change)
        return {ref: self.tips[ref] for ref in changes}

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        one, other = (self._commits[revision][1].files for revision in (before, after))
        return tuple(sorted(path for path in {*one, *other} if one.get(path) != other.get(path)))

    def branch(self, ref: str, base: str, change: Change) -> str:
        if ref in self.tips:
            raise Conflict(ref, None, self.tips[ref])
        self.tips[ref] = base
        self._put(ref, change)
        return self.tips[ref]

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        while revision != until:
            commit, tree = self._commits[revision]
            parent = commit.parents[0] if commit.parents else None
            before = self._commits[parent][1].files if parent else {}
            if path is None or _below(tree.files, path) != _below(before, path):
                yield commit
            if parent is None:
                return
            revision = parent

    def _put(self, ref: str, change: Change) -> None:
        parent = self.tips.get(ref)
        before = dict(self._commits[parent][1].files) if parent else {}
        merged = {**before, **change.files}
        files = {path: data for path, data in merged.items() if data is not None}
        if parent is not None and files == before:
            return
        revision = hashlib.sha1(f"{len(self._commits)} {parent} {change.message}".encode()).hexdigest()
        commit = Commit(
            revision=revision,
            parents=(parent,) if parent else (),
            author=change.author or self._identity,
            committer=self._identity,
            committed_at=EPOCH + timedelta(seconds=len(self._commits)),
            message=change.message,
            trailers=dict(change.trailers),
        )
        self._commits[revision] = (commit, Tree(revision, files))
        self.tips[ref] = revision


def _below(files: Mapping[str, bytes], path: str) -> dict[str, bytes]:
    return {one: data for one, data in files.items() if one == path or one.startswith(f"{path}/")}


class Killed(BaseException):
    """The process ended here."""


@dataclass
class Interposed:
    """A repository in whose way something happens: before the n-th write, or between two reads."""

    below: Repository
    before_write: Callable[[int, str], None] = lambda _number, _ref: None
    """Called with the number of the write, from 0, and its reference."""
    before_read: Callable[[int, str], None] = lambda _number, _ref: None
    """Called with the number of the read, from 0, and its reference."""
    writes: int = 0
    reads: int = 0

    def snapshot(self, ref: str) -> Snapshot:
        self.reads += 1
        self.before_read(self.reads - 1, ref)
        return self.below.snapshot(ref)

    def at(self, revision: str) -> Snapshot:
        return self.below.at(revision)

    def update(self, ref: str, expected: str | None, changes: Sequence[Change]) -> str | None:
        self.writes += 1
        self.before_write(self.writes - 1, ref)
        return self.below.update(ref, expected, changes)

    def create(self, changes: Mapping[str, Change]) -> Mapping[str, str]:
        return self.below.create(changes)

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        return self.below.changed(before, after)

    def branch(self, ref: str, base: str, change: Change) -> str:
        self.writes += 1
        self.before_write(self.writes - 1, ref)
        return self.below.branch(ref, base, change)

    def history(self, revision: str, *, until: str | None = None, path: str | None = None) -> Iterator[Commit]:
        return self.below.history(revision, until=until, path=path)


def edited(repository: Repository, ref: str, files: Mapping[str, bytes | None], person: str = "Bob") -> str | None:
    """Make a person's commit."""
    author = Person(name=person, email=f"{person.lower()}@example.org")
    change = Change(message="by hand", files=files, author=author)
    return repository.update(ref, repository.snapshot(ref).revision, [replace(change)])
