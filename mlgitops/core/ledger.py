"""The ledger: releases, rollouts, holds and decisions, as files of one branch; read lazily, written as a change."""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import yaml

from mlgitops.core import release as releases
from mlgitops.core import rollout as rollouts
from mlgitops.core.errors import IllegalTransition, InvalidInput, NotFound, Problem
from mlgitops.core.plain import load_plain
from mlgitops.core.projection import Desired
from mlgitops.core.redaction import Redactor
from mlgitops.core.release import OPEN as OPEN_RELEASES
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.core.rollout import OPEN, Rollout, RolloutPhase

HEAD_FILE: Final = "ledger.yaml"
KEPT_PROJECTIONS: Final = 12
"""Projections kept per model and environment: a `main` further behind than that is a foreign change."""
CACHED: Final = 32_768
"""Files read that are kept: a cache smaller than a ledger would miss every one of them, as they are read in order."""
STATES: Final = 4_096
"""States that are kept."""
Read = Callable[[str], bytes | None]
_SAID: Final = "reason message subject author by error refused words differences selfReported probe"
WORDS: Final = frozenset(_SAID.split())
"""Fields that hold what people, servers and users' programs said; every other one is this tool's own."""
_PHASE: Final = re.compile(rb"^phase: ([A-Z_]+)$", re.MULTILINE)
"""How a release and a rollout say where they are: at the left, where nothing that people wrote can stand."""
_ENDED: Final = frozenset(str(one) for one in ReleasePhase if one not in OPEN_RELEASES)
_UNREADABLE: Final = (TypeError, LookupError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What values of another shape than those written lead to."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Automation stands still for one model in one environment until `resume`."""

    by: str
    reason: str
    at: str


@dataclass(frozen=True, kw_only=True)
class Approval:
    """Somebody approved one content: this rollout of this release by this plan, with these manifests."""

    rollout: int
    release: str
    plan_digest: str
    by: str
    at: str
    manifests: str = ""
    """Digest over the environment's manifests of the model, as they were; empty before this was kept."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Somebody changed owned fields on `main`; it is not overwritten while it stands."""

    revision: str
    by: str
    differences: tuple[str, ...]
    at: str


class Rollouts(Mapping[int, Rollout]):
    """Rollouts by number, each read when it is asked for: most are over, and only how they ended matters."""

    def __init__(self, files: Mapping[int, tuple[str, bytes]], changed: Mapping[int, Rollout]) -> None:
        """Know the files (path and content) of a ledger, and the rollouts that are to take their places."""
        self._files, self._changed = files, changed
        self._phases: dict[int, RolloutPhase] = {}

    def __getitem__(self, number: int) -> Rollout:
        if number in self._changed:
            return self._changed[number]
        path, data = self._files[number]
        found = _rollout(data, path)
        if found.number != number:
            raise InvalidInput(
                f"{path} holds rollout {found.number}; restore it from an earlier revision of the ledger"
            )
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(sorted({*self._files, *self._changed}))

    @property
    def changed(self) -> Mapping[int, Rollout]:
        """Those that are not as the ledger has them."""
        return self._changed

    def phase(self, number: int) -> RolloutPhase:
        """Return where a rollout is, without reading all of it where its file says so in a line."""
        if number not in self._changed and number not in self._phases:
            peeked = _PHASE.search(self._files[number][1])
            known = peeked is not None and peeked[1].decode() in set(RolloutPhase)
            self._phases[number] = RolloutPhase(peeked[1].decode()) if peeked and known else self[number].phase
        return self._changed[number].phase if number in self._changed else self._phases[number]

    @cached_property
    def not_over(self) -> Mapping[int, RolloutPhase]:
        """Where those are that are under way or serve; asked for again and again, and most are over."""
        phases = {number: self.phase(number) for number in self}
        return {number: phase for number, phase in phases.items() if phase in OPEN or phase is RolloutPhase.LIVE}

    def replaced(self, rollout: Rollout) -> "Rollouts":
        """Return the same with `rollout` in place of the one of its number."""
        return Rollouts(self._files, {**self._changed, rollout.number: rollout})


def _phases(rollouts: Mapping[int, Rollout]) -> Mapping[int, RolloutPhase]:
    """Return where rollouts are, at least those that are not over."""
    return (
        rollouts.not_over if isinstance(rollouts, Rollouts) else {number: rollouts[number].phase for number in rollouts}
    )


@dataclass(frozen=True, kw_only=True)
class EnvironmentState:
    """One model in one environment: every rollout, and what `main` must say."""

    environment: str
    model: str
    generation: int = 0
    """Counts the decisions that `main` must show; never goes back."""
    decided_on: str = ""
    """Revision of `main` that the last of them was computed from."""
    projections: Mapping[int, Desired] = field(default_factory=dict)
    """What `main` must say, by generation; the last few."""
    rollouts: Mapping[int, Rollout] = field(default_factory=dict)
    hold: Hold | None = None
    resumed_at: str = ""
    """When a person last resumed automation; empty for never."""
    foreign: Foreign | None = None
    approvals: tuple[Approval, ...] = ()
    is_rejected: Callable[[str], bool] = field(default=lambda _: False, compare=False)
    """Says whether a release was refused for good: no rollback returns to it."""

    @property
    def last_number(self) -> int:
        """Number of the newest rollout; 0 before the first."""
        return max(self.rollouts, default=0)

    @property
    def open(self) -> Rollout | None:
        """The rollout that is under way.

        There is one at a time, but for what serves being rolled back while a canary is out: then both go back, and
        the canary, the newer one, first.
        """
        number = max((number for number, phase in _phases(self.rollouts).items() if phase in OPEN), default=None)
        return None if number is None else self.rollouts[number]

    @property
    def live(self) -> Rollout | None:
        """The rollout that serves; None also while a LIVE one is being rolled back."""
        live = (self.rollouts[number] for number, phase in _phases(self.rollouts).items() if phase is RolloutPhase.LIVE)
        return next(live, None)

    @property
    def desired(self) -> Desired:
        """What `main` must say now."""
        return self.projections.get(self.generation, Desired())

    @property
    def champion(self) -> str | None:
        """The release of the LIVE rollout."""
        return self.live.release if self.live else None

    def with_rollout(self, rollout: Rollout) -> "EnvironmentState":
        """Return the state with `rollout` in place of the one of its number."""
        known = self.rollouts
        changed = known.replaced(rollout) if isinstance(known, Rollouts) else {**known, rollout.number: rollout}
        return replace(self, rollouts=changed)

    def last_good(self, before: int, wanted: int | None = None) -> Rollout | None:
        """Return the rollout a rollback of the LIVE rollout `before` returns to.

        The newest earlier one that passed probation here and whose release was never rolled back here nor rejected.
        Where none passed probation, the newest that served and was never rolled back: better than serving nothing.
        """
        bad = {one.release for one in self.rollouts.values() if one.rollback is not None}
        served = [
            one
            for number, one in sorted(self.rollouts.items(), reverse=True)
            if number < before
            and one.phase is RolloutPhase.RETIRED
            and one.release not in bad
            and not self.is_rejected(one.release)
        ]
        trusted = [one for one in served if one.trusted]
        asked = [one for one in trusted if one.number == wanted]
        return next(iter((*asked, *trusted, *served)), None)

    def tried(self, release: str) -> tuple[Rollout, ...]:
        """Return the rollouts of a release here, oldest first."""
        return tuple(one for _, one in sorted(self.rollouts.items()) if one.release == release)


class Part:
    """What one decision puts into a ledger that others write, too."""

    def __init__(self, written: dict[str, bytes | None], read: Read, known: dict[object, Any]) -> None:
        """Watch `written`, over what `read` returns; `known` is forgotten with what is taken back."""
        self._written, self._read, self._known = written, read, known
        self._before: dict[str, tuple[bool, bytes | None]] = {}

    def keep(self, path: str) -> None:
        """Remember what a file was before it is written for the first time."""
        self._before.setdefault(path, (path in self._written, self._written.get(path)))

    @property
    def files(self) -> Mapping[str, bytes | None]:
        """Files that are not what they were before this part."""
        former = {path: data if known else self._read(path) for path, (known, data) in self._before.items()}
        return {path: self._written.get(path) for path, data in former.items() if self._written.get(path) != data}

    def undo(self) -> None:
        """Take back what was put."""
        for path, (known, data) in self._before.items():
            if known:
                self._written[path] = data
            else:
                self._written.pop(path, None)
        self._before.clear()
        self._known.clear()


class Ledger:
    """A ledger as one revision has it, plus what is to be written."""

    def __init__(self, read: Read, paths: Callable[[str], Sequence[str]], revision: str | None) -> None:
        """Read through `read` and `paths` (see `ports.repository.Snapshot`)."""
        self._read, self._paths, self.revision = read, paths, revision
        self._written: dict[str, bytes | None] = {}
        self._part: Part | None = None
        self._known: dict[Any, Any] = {}
        """What was gathered from many files, until anything is put: deciding and showing both ask for it."""

    @property
    def exists(self) -> bool:
        """Whether there is a ledger; without one nothing may change."""
        return self._read(HEAD_FILE) is not None

    @property
    def changes(self) -> Mapping[str, bytes | None]:
        """Files that differ from the revision read."""
        return {path: data for path, data in self._written.items() if data != self._read(path)}

    def models(self) -> tuple[str, ...]:
        """Return the models that ever submitted a release."""
        return tuple(sorted({path.split("/")[1] for path in self._paths("models") if path.count("/") > 1}))

    def release_names(self, model: str) -> tuple[str, ...]:
        """Return the names of a model's releases."""
        folder = f"models/{model}/releases"
        names = (posixpath.basename(path).removesuffix(".yaml") for path in self._all_paths(folder))
        return tuple(sorted(set(names)))

    def releases(self, model: str) -> tuple[Release, ...]:
        """Return a model's releases in the order of their submission."""
        every = (self.release(model, name) for name in self.release_names(model))
        return tuple(sorted(every, key=lambda one: one.submission.sequence))

    def open_releases(self, model: str) -> tuple[Release, ...]:
        """Return those of a model's releases that still move, in the order of their submission."""
        if model not in self._known:
            self._known[model] = self._open_releases(model)
        found: tuple[Release, ...] = self._known[model]
        return found

    def _open_releases(self, model: str) -> tuple[Release, ...]:
        names = (name for name in self.release_names(model) if self._may_be_open(_release_path(model, name)))
        found = (self.release(model, name) for name in names)
        return tuple(
            sorted((one for one in found if one.phase in OPEN_RELEASES), key=lambda one: one.submission.sequence)
        )

    def _may_be_open(self, path: str) -> bool:
        peeked = _PHASE.search(self._get(path) or b"")
        return peeked is None or peeked[1].decode() not in _ENDED

    def release(self, model: str, name: str) -> Release:
        """Return one release; `NotFound` names those that exist."""
        found = self.find_release(model, name)
        if found is None:
            raise NotFound("release", name, self.release_names(model))
        return found

    def find_release(self, model: str, name: str) -> Release | None:
        """Return one release, or None."""
        path = _release_path(model, name)
        data = self._get(path)
        return None if data is None else _release(data, path)

    def put_release(self, release: Release) -> None:
        """Write a release."""
        self._put(_release_path(release.submission.model, release.name), _dump(release.to_mapping()))

    def last_submitted(self, model: str) -> Release | None:
        """Return the release submitted last, be it new or recognised again."""
        data = self._get(f"models/{model}/last-submitted")
        return None if data is None else self.find_release(model, data.decode(errors="replace").strip())

    def put_last_submitted(self, model: str, name: str) -> None:
        """Remember which release was submitted last."""
        self._put(f"models/{model}/last-submitted", f"{name}\n".encode())

    def report(self, model: str, key: str) -> Mapping[str, Any] | None:
        """Return an evaluation report."""
        data = self._get(f"models/{model}/reports/{key}.json")
        return None if data is None else _json(data, f"models/{model}/reports/{key}.json")

    def put_report(self, model: str, key: str, report: Mapping[str, Any]) -> None:
        """Write an evaluation report."""
        self._put(f"models/{model}/reports/{key}.json", _json_bytes(report))

    def environments(self) -> tuple[tuple[str, str], ...]:
        """Return every (environment, model) that ever had a rollout or a hold."""
        parts = (path.split("/") for path in self._all_paths("environments") if path.count("/") > 2)
        return tuple(sorted({(part[1], part[2]) for part in parts}))

    def state(self, environment: str, model: str) -> EnvironmentState:
        """Return one model's state in one environment; an empty one where nothing ever happened."""
        if (environment, model) not in self._known:
            self._known[environment, model] = self._state(environment, model)
        found: EnvironmentState = self._known[environment, model]
        return found

    def _state(self, environment: str, model: str) -> EnvironmentState:
        folder = f"environments/{environment}/{model}"
        path = f"{folder}/state.yaml"
        rollouts = tuple((one, self._get(one) or b"") for one in self._all_paths(f"{folder}/rollouts"))
        state = _read_state(environment, model, self._get(path), rollouts)
        return replace(state, is_rejected=lambda release: self._is_rejected(model, release))

    def _is_rejected(self, model: str, name: str) -> bool:
        found = self.find_release(model, name)
        return found is not None and found.phase is ReleasePhase.REJECTED

    def put_state(self, state: EnvironmentState) -> None:
        """Write one model's state in one environment."""
        folder = f"environments/{state.environment}/{state.model}"
        self._put(f"{folder}/state.yaml", _dump(_state_mapping(state)))
        rollouts = state.rollouts.changed if isinstance(state.rollouts, Rollouts) else state.rollouts
        for number, one in rollouts.items():
            self._put(f"{folder}/rollouts/{number:05}.yaml", _dump(one.to_mapping()))

    def decision(self, environment: str, model: str, name: str) -> Mapping[str, Any] | None:
        """Return a decision record."""
        path = f"environments/{environment}/{model}/decisions/{name}.json"
        data = self._get(path)
        return None if data is None else _json(data, path)

    def decision_names(self, environment: str, model: str) -> tuple[str, ...]:
        """Return the names of the decision records, oldest first."""
        folder = f"environments/{environment}/{model}/decisions"
        names = (posixpath.basename(path) for path in self._all_paths(folder))
        return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))

    def put_decision(self, environment: str, model: str, name: str, record: Mapping[str, Any], words: str) -> None:
        """Write a decision record: JSON for programs, Markdown for people."""
        folder = f"environments/{environment}/{model}/decisions"
        self._put(f"{folder}/{name}.json", _json_bytes(record))
        self._put(f"{folder}/{name}.md", words.encode())

    def log(self, model: str, release: str) -> bytes | None:
        """Return the log kept of a training."""
        return self._get(f"models/{model}/logs/{release}.log")

    def put_log(self, model: str, release: str, log: bytes) -> None:
        """Keep a training's log."""
        self._put(f"models/{model}/logs/{release}.log", log)

    @contextmanager
    def part(self) -> Iterator["Part"]:
        """Give what is put meanwhile as a part of its own, which can be taken back; parts come one after another."""
        self._part = Part(self._written, self._read, self._known)
        try:
            yield self._part
        finally:
            self._part = None

    def _put(self, path: str, data: bytes) -> None:
        if self._part is not None:
            self._part.keep(path)
        self._written[path] = data
        self._known.clear()

    def _get(self, path: str) -> bytes | None:
        return self._written[path] if path in self._written else self._read(path)

    def _all_paths(self, folder: str) -> Iterable[str]:
        written = {path for path, data in self._written.items() if path.startswith(f"{folder}/") and data is not None}
        return sorted({*self._paths(folder), *written})


def first_files() -> Mapping[str, bytes]:
    """Return the files of a new ledger."""
    return {HEAD_FILE: _dump({"apiVersion": "mlgitops.dev/v1", "kind": "Ledger", "format": 1})}


def _release_path(model: str, name: str) -> str:
    return f"models/{model}/releases/{name}.yaml"


def _state_mapping(state: EnvironmentState) -> dict[str, Any]:
    kept = sorted(state.projections)[-KEPT_PROJECTIONS:]
    optional = {
        "hold": None if state.hold is None else vars(state.hold),
        "foreign": None
        if state.foreign is None
        else vars(state.foreign) | {"differences": [*state.foreign.differences]},
        "approvals": [vars(one) for one in state.approvals],
    }
    return {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "EnvironmentState",
        "generation": state.generation,
        "decidedOn": state.decided_on,
        "lastRollout": state.last_number,
        "resumedAt": state.resumed_at,
        "projections": {number: state.projections[number].to_mapping() for number in kept},
        **{name: value for name, value in optional.items() if value},
    }


def _state(environment: str, model: str, values: Mapping[str, Any], found: Mapping[int, Rollout]) -> EnvironmentState:
    foreign = values.get("foreign")
    if set(found) != set(range(1, values.get("lastRollout", 0) + 1)):
        problem = Problem(
            message="its last rollout and the files under rollouts/ are not of one state",
            path=f"environments/{environment}/{model}/state.yaml",
            mend="restore what is missing or damaged from an earlier revision of the ledger",
        )
        raise InvalidInput([problem])
    return EnvironmentState(
        environment=environment,
        model=model,
        generation=values.get("generation", 0),
        decided_on=values.get("decidedOn", ""),
        projections={int(n): Desired.from_mapping(one) for n, one in values.get("projections", {}).items()},
        rollouts=found,
        resumed_at=values.get("resumedAt", ""),
        hold=Hold(**values["hold"]) if "hold" in values else None,
        foreign=Foreign(**{**foreign, "differences": tuple(foreign["differences"])}) if foreign else None,
        approvals=tuple(Approval(**one) for one in values.get("approvals", ())),
    )


@lru_cache(maxsize=STATES)
def _read_state(
    environment: str, model: str, data: bytes | None, rollouts: tuple[tuple[str, bytes], ...]
) -> EnvironmentState:
    """Read a state; the same bytes are read once in a process."""
    path = f"environments/{environment}/{model}/state.yaml"
    values = {} if data is None else load_plain(data, path)
    with _readable(path):
        files = {int(posixpath.basename(one).removesuffix(".yaml")): (one, content) for one, content in rollouts}
        return _state(environment, model, values, Rollouts(files, {}))


@lru_cache(maxsize=CACHED)
def _release(data: bytes, path: str) -> Release:
    """Read a release; the same bytes are read once in a process, as the ledger is looked at again and again."""
    with _readable(path):
        return releases.read_release(load_plain(data, path), path)


@lru_cache(maxsize=CACHED)
def _rollout(data: bytes, path: str) -> Rollout:
    with _readable(path):
        return rollouts.read_rollout(load_plain(data, path), path)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Refuse a file of the ledger that is not what was written: its model stands still, every other goes on."""
    try:
        yield
    except (*_UNREADABLE, IllegalTransition) as error:
        mend = "restore it from an earlier revision of the ledger"
        problem = Problem(message=f"the ledger cannot be read here: {error!r:.200}", path=path, mend=mend)
        raise InvalidInput([problem]) from error


def _dump(values: Any) -> bytes:
    dumped: bytes = yaml.dump(
        values, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, encoding="utf-8", width=110
    )
    return dumped


def _json(data: bytes, path: str) -> Mapping[str, Any]:
    with _readable(path):
        loaded: Mapping[str, Any] = json.loads(data)
        if not isinstance(loaded, Mapping):
            raise TypeError("not a mapping")
        return loaded


def _json_bytes(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, allow_nan=False) + "\n").encode()


def without_secrets(path: str, data: bytes, redactor: Redactor) -> bytes:
    """Return a file of the ledger without secrets.

    Where people and programs speak, all that `redactor` knows is taken out; elsewhere only what looks like a secret: a
    password that is an ordinary word must not change the name of an environment. The text of `mlgitops.yaml` stays as
    it is, as it is read again; a push with a secret in it is refused.
    """
    if path.endswith((".log", ".md")):
        return redactor.data(data)
    if not path.endswith((".json", ".yaml")):
        return data
    values = _json(data, path) if path.endswith(".json") else load_plain(data, path)
    kept = _without_secrets(values, redactor, Redactor())
    if kept == values:
        return data
    return _json_bytes(kept) if path.endswith(".json") else _dump(kept)


def _without_secrets(values: Any, words: Redactor, other: Redactor) -> Any:
    if isinstance(values, Mapping):
        return {
            other.values(name): value
            if name == "configuration"
            else words.values(value)
            if name in WORDS
            else _without_secrets(value, words, other)
            for name, value in values.items()
        }
    if isinstance(values, list):
        return [_without_secrets(one, words, other) for one in values]
    return other.values(values)
