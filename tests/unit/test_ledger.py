"""The ledger: what is written is what is read, and what it answers about the past."""

from collections.abc import Mapping

import pytest

from mlgitops.core import ledger as ledgers
from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.ledger import KEPT_PROJECTIONS, Approval, EnvironmentState, Foreign, Hold, Ledger, first_files
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.names import Digest
from mlgitops.core.plain import load_plain
from mlgitops.core.projection import Desired, Target
from mlgitops.core.release import EVENTS as RELEASE_EVENTS
from mlgitops.core.release import Release
from mlgitops.core.release import advance as advance_release
from mlgitops.core.rollout import EVENTS, Rollout, advance
from tests.support.values import event, proposal, submission

SERVED = ("Authorised", "ServingAll", "Trusted", "Retired")


def rollout(number: int, release: str, kinds: tuple[str, ...]) -> Rollout:
    one = Rollout(proposal=proposal(number, release=release))
    for kind in kinds:
        one = advance(one, event(EVENTS[kind]))
    return one


def state(*rollouts: Rollout, rejected: frozenset[str] = frozenset()) -> EnvironmentState:
    found = {one.number: one for one in rollouts}
    return EnvironmentState(environment="production", model="digits", rollouts=found, is_rejected=rejected.__contains__)


def ledger_of(files: Mapping[str, bytes | None]) -> Ledger:
    def paths(prefix: str) -> tuple[str, ...]:
        return tuple(path for path in files if path.startswith(f"{prefix}/"))

    return Ledger(files.get, paths, None)


def full() -> EnvironmentState:
    """Return a state with every field set."""
    target = Target(release="a" * 12, storage_uri="pvc://x/y", artifact_digest=str(Digest.of(b"y")))
    fields = RolloutFields(number=1, release="a" * 12, plan="careful", plan_digest=str(Digest.of(b"p")))
    desired = Desired(rollout=fields, stable=target, canary=target, weight_percent=10, cohort="1-1")
    return EnvironmentState(
        environment="production",
        model="digits",
        generation=3,
        decided_on="c" * 40,
        projections={2: Desired(), 3: desired},
        rollouts={1: rollout(1, "a" * 12, SERVED[:3])},
        hold=Hold(by="Ada <a@x>", reason="yes: no", at="2026-11-30T12:00:00.000000Z"),
        resumed_at="2026-11-29T12:00:00.000000Z",
        foreign=Foreign(
            revision="d" * 40, by="Bob <b@x>", differences=("one", "two"), at="2026-11-30T12:00:00.000000Z"
        ),
        approvals=(Approval(rollout=1, release="a" * 12, plan_digest="x", by="Bob <b@x>", at="now"),),
    )


def test_a_state_is_read_as_it_was_written() -> None:
    """Every field of a state survives, also where nothing but the files is left."""
    writing = ledger_of(first_files())
    writing.put_state(full())
    assert writing.state("production", "digits") == full()
    assert ledger_of({**first_files(), **writing.changes}).state("production", "digits") == full()


def test_writing_what_is_there_is_no_change() -> None:
    """A state put back as it is makes no commit."""
    writing = ledger_of(first_files())
    writing.put_state(full())
    reading = ledger_of({**first_files(), **writing.changes})
    reading.put_state(reading.state("production", "digits"))
    assert reading.changes == {}


def test_only_the_last_projections_are_kept() -> None:
    """The ledger's growth is bounded: of old projections only the last few stay."""
    writing = ledger_of({})
    many = EnvironmentState(
        environment="production", model="digits", generation=40, projections={number: Desired() for number in range(41)}
    )
    writing.put_state(many)
    kept = writing.state("production", "digits").projections
    assert sorted(kept) == list(range(41 - KEPT_PROJECTIONS, 41))


def test_releases_come_in_the_order_of_their_submission() -> None:
    """Names are digests; what counts is who came first."""
    writing = ledger_of({})
    every = [Release(submission=submission(sequence=number, attempt=number)) for number in (3, 1, 2)]
    for one in every:
        writing.put_release(one)
    assert [one.submission.sequence for one in writing.releases("digits")] == [1, 2, 3]
    with pytest.raises(NotFound) as caught:
        writing.release("digits", "0" * 12)
    assert all(one.name in str(vars(caught.value)) for one in every)


def test_last_good_is_the_newest_trusted_that_nobody_took_off() -> None:
    """A rollback returns to what passed probation; never to what was rolled back, or rejected."""
    back = ("Authorised", "ServingAll", "RollbackDecided")
    one, two, three = (rollout(number, letter * 12, SERVED) for number, letter in ((1, "a"), (2, "b"), (3, "c")))
    untrusted = rollout(4, "d" * 12, ("Authorised", "ServingAll", "Retired"))
    assert state(one, two, three, untrusted).last_good(5) == three
    assert state(one, two, three).last_good(3) == two
    assert state(one, two, three, rejected=frozenset({"c" * 12})).last_good(5) == two
    assert state(one, two, three, rollout(4, "c" * 12, back)).last_good(5) == two
    assert state(rollout(1, "a" * 12, back), untrusted).last_good(5) == untrusted
    assert state(rollout(1, "a" * 12, back)).last_good(5) is None


def test_rejected_releases_that_served_are_known_to_the_state() -> None:
    """The state read from a ledger names which of its releases were refused for good since."""
    release = Release(submission=submission())
    writing = ledger_of({})
    writing.put_state(state(rollout(1, release.name, SERVED)))
    writing.put_release(release)
    assert not writing.state("production", "digits").is_rejected(release.name)
    writing.put_release(advance_release(release, event(RELEASE_EVENTS["Rejected"])))
    assert writing.state("production", "digits").is_rejected(release.name)
    assert writing.state("production", "digits").last_good(2) is None


def test_only_what_is_under_way_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open, what serves and the last number are known without reading a rollout or release that is over."""
    over = [rollout(number, f"{number:012x}", SERVED) for number in range(1, 30)]
    serving = rollout(30, "e" * 12, ("Authorised", "ServingAll"))
    writing = ledger_of({})
    writing.put_state(state(*over, serving))
    ended = advance_release(Release(submission=submission()), event(RELEASE_EVENTS["Rejected"]))
    writing.put_release(ended)
    files = dict(writing.changes)
    read: list[str] = []

    def watched(data: bytes, path: str) -> object:
        read.append(path)
        return load_plain(data, path)

    monkeypatch.setattr(ledgers, "load_plain", watched)
    ledgers._rollout.cache_clear()
    ledgers._release.cache_clear()
    ledgers._read_state.cache_clear()
    reading = ledger_of(files)
    found = reading.state("production", "digits")
    assert (found.open, found.live, found.last_number) == (None, serving, 30)
    assert reading.open_releases("digits") == ()
    assert read == ["environments/production/digits/state.yaml", "environments/production/digits/rollouts/00030.yaml"]
    assert found.tried(over[4].release) == (over[4],)


def test_only_a_changed_rollout_is_written() -> None:
    """A state that was read writes the rollouts that moved, and no other."""
    writing = ledger_of({})
    writing.put_state(state(rollout(1, "a" * 12, SERVED), rollout(2, "b" * 12, ("Authorised", "ServingAll"))))
    reading = ledger_of(dict(writing.changes))
    found = reading.state("production", "digits")
    moved = found.with_rollout(advance(found.rollouts[2], event(EVENTS["Trusted"])))
    assert moved.live is not None
    assert moved.live.trusted
    reading.put_state(moved)
    assert [path for path in reading.changes if "rollouts" in path] == [
        "environments/production/digits/rollouts/00002.yaml"
    ]


def test_a_rollout_in_the_place_of_another_is_refused() -> None:
    """A file that holds another rollout than its name says is an error, never a rollout of that number."""
    writing = ledger_of({})
    writing.put_state(state(rollout(1, "a" * 12, SERVED), rollout(2, "b" * 12, ("Authorised", "ServingAll"))))
    files = dict(writing.changes)
    folder = "environments/production/digits/rollouts"
    files[f"{folder}/00001.yaml"] = files[f"{folder}/00002.yaml"]
    with pytest.raises(InvalidInput, match="holds rollout 2"):
        _ = ledger_of(files).state("production", "digits").rollouts[1]


def test_a_rollout_that_is_missing_is_found_out() -> None:
    """A ledger without one of its rollouts, the newest or an older one, is refused."""
    writing = ledger_of({})
    writing.put_state(state(*(rollout(number, letter * 12, SERVED) for number, letter in ((1, "a"), (2, "b")))))
    for number in (1, 2):
        files = dict(writing.changes)
        del files[f"environments/production/digits/rollouts/{number:05}.yaml"]
        with pytest.raises(InvalidInput):
            ledger_of(files).state("production", "digits")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"7"])
def test_spoilt_reports_and_decisions_are_refused_by_path(data: bytes) -> None:
    """Evidence that cannot be read is an error that says where, never a missing report."""
    spoilt = ledger_of(
        {
            "models/digits/reports/key.json": data,
            "environments/production/digits/decisions/00001-01-passed.json": data,
        }
    )
    with pytest.raises(InvalidInput) as caught:
        spoilt.report("digits", "key")
    assert caught.value.problems[0].path == "models/digits/reports/key.json"
    with pytest.raises(InvalidInput):
        spoilt.decision("production", "digits", "00001-01-passed")


def test_what_is_put_is_seen_at_once() -> None:
    """A ledger that was asked before says what was put since, of states and of releases that still move."""
    ledger = ledger_of({})
    assert ledger.state("production", "digits").rollouts == {}
    assert ledger.open_releases("digits") == ()
    ledger.put_state(state(rollout(1, "a" * 12, ("Authorised", "ServingAll"))))
    ledger.put_release(Release(submission=submission()))
    assert ledger.state("production", "digits").champion == "a" * 12
    assert [one.submission for one in ledger.open_releases("digits")] == [submission()]


def test_what_is_taken_back_is_not_seen() -> None:
    """A part that was undone is in no answer, though the ledger was asked while it stood."""
    ledger = ledger_of({})
    with ledger.part() as part:
        ledger.put_state(state(rollout(1, "a" * 12, ("Authorised", "ServingAll"))))
        assert ledger.state("production", "digits").champion == "a" * 12
        part.undo()
    assert ledger.state("production", "digits").champion is None
