"""The driver's lists, and their projection onto a folder: done twice the same, taken back byte for byte."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from mlgitops.core import driver
from mlgitops.core.configuration import Plan
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.names import Digest
from mlgitops.core.projection import Desired, Target
from mlgitops.core.rollout import EVENTS, RollbackDecided, Rollout, advance
from tests.support.values import AT, PLAN, event, proposal

FOLDER = Folder(environment="production", model="digits", namespace="production", serving={})
OLD, NEW = "0" * 12, "1" * 12
FORWARD = (
    "Authorised",
    "CanaryReady",
    "SplitObserved",
    "StepPassed",
    "SplitObserved",
    "StepPassed",
    "SplitObserved",
    "LastStepPassed",
    "PartReached",
    "PartReached",
    "PartReached",
)


def resolve(release: str) -> Target:
    digest = str(Digest.of(release.encode()))
    return Target(release=release, storage_uri=f"pvc://store/models/{release}", artifact_digest=digest)


def rollout(number: int, release: str, kinds: tuple[str, ...], champion: int | None) -> Rollout:
    one = Rollout(proposal=proposal(number, champion=champion, release=release))
    for kind in kinds:
        one = advance(one, event(EVENTS[kind]))
    return one


def state(kinds: tuple[str, ...] | None) -> EnvironmentState:
    """Return a champion, and a rollout beside it that got as far as `kinds`."""
    rollouts = {1: rollout(1, OLD, ("Authorised", "ServingAll"), None)}
    if kinds is not None:
        rollouts[2] = rollout(2, NEW, kinds, 1)
    return EnvironmentState(environment="production", model="digits", rollouts=rollouts)


def apply(files: dict[str, bytes], wanted: Desired, number: int) -> dict[str, bytes]:
    changed = {**files, **folders.project(files.get, FOLDER, wanted, number)}
    return {path: data for path, data in changed.items() if data is not None}


def points() -> Iterator[tuple[str, ...]]:
    for length in range(len(FORWARD) + 1):
        yield FORWARD[:length]


def way(kinds: tuple[str, ...]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the folder before a rollout, and as it stands after `kinds`."""
    before = apply({}, driver.desired(state(None), resolve), 1)
    files = before
    for length in range(len(kinds) + 1):
        files = apply(files, driver.desired(state(kinds[:length]), resolve), 2 + length)
    return before, files


def back(files: dict[str, bytes], kinds: tuple[str, ...]) -> dict[str, bytes]:
    """Roll back from where a rollout stands, part by part."""
    found = state(kinds)
    decided = RollbackDecided(at=AT, by="Ada <ada@example.org>", reason="x", target=1)
    found = found.with_rollout(advance(found.rollouts[2], decided))
    for part in driver.rolling_back(found.rollouts[2], found, resolve):
        files = apply(files, part, 90)
    return files


def content(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not path.endswith("/generation")}


@pytest.mark.parametrize("kinds", list(points()), ids=len)
def test_projecting_twice_changes_nothing(kinds: tuple[str, ...]) -> None:
    """What was projected is what is wanted: a second projection has nothing to write, and finds no difference."""
    _, files = way(kinds)
    wanted = driver.desired(state(kinds), resolve)
    assert folders.project(files.get, FOLDER, wanted, 2 + len(kinds)) == {}
    assert folders.differences(files.get, FOLDER, wanted) == ()
    assert folders.rollout(files.get, FOLDER) == wanted.rollout


@pytest.mark.parametrize("kinds", list(points())[1:], ids=len)
def test_rolling_back_restores_every_byte(kinds: tuple[str, ...]) -> None:
    """From any point of a rollout the way back ends in the files as they were, the generation aside."""
    before, files = way(kinds)
    assert content(back(files, kinds)) == content(before)


@pytest.mark.parametrize("kinds", list(points())[2:], ids=len)
def test_rolling_back_keeps_what_people_wrote(kinds: tuple[str, ...]) -> None:
    """Comments and fields that people add during a rollout outlive its rollback, and nothing else differs."""
    before, files = way(kinds)
    for name in ("inferenceservice.yaml", "route.yaml", "kustomization.yaml", "rollout.yaml"):
        path = FOLDER.path(name)
        files[path] = b"# a note of people\n" + files[path]
        before[path] = b"# a note of people\n" + before[path]
    assert content(back(files, kinds)) == content(before)


@pytest.mark.parametrize("kinds", list(points())[1:], ids=len)
def test_the_first_part_of_rolling_back_takes_all_traffic_off(kinds: tuple[str, ...]) -> None:
    """The first commit of a rollback already leaves the canary without any request."""
    found = state(kinds)
    decided = RollbackDecided(at=AT, by="Ada <ada@example.org>", reason="x", target=1)
    found = found.with_rollout(advance(found.rollouts[2], decided))
    one = driver.rolling_back(found.rollouts[2], found, resolve)[0]
    assert (one.weight_percent, one.stable) == (0, resolve(OLD))
    assert one.rollout is not None
    assert one.rollout.number == 1


def test_traffic_only_moves_in_steps_of_the_plan() -> None:
    """The weights on main are those of the plan in order, then everything, then nothing for the empty side."""
    weights = [driver.desired(state(kinds), resolve).weight_percent for kinds in points()]
    assert weights == [0, 0, 10, 10, 50, 50, 95, 95, 100, 100, 0, 0]
    cohorts = [driver.desired(state(kinds), resolve).cohort for kinds in points()]
    assert cohorts[1:9] == ["2-0", "2-1", "2-1", "2-2", "2-2", "2-3", "2-3", "2-4"]


def test_no_side_with_traffic_changes_its_model() -> None:
    """While the canary gets all, the champion's place is taken; no request meets a model being replaced."""
    parts = [driver.desired(state(kinds), resolve) for kinds in points()]
    for one, two in pairwise(parts):
        if one.stable != two.stable:
            assert one.weight_percent == two.weight_percent == 100
        if one.canary != two.canary and one.canary is not None:
            assert one.weight_percent == two.weight_percent == 0


def test_a_rollback_lands_where_its_target_lands() -> None:
    """A canary that goes back to a champion which is going back itself ends at that one's last-good."""
    decided = RollbackDecided(at=AT, by="Ada <ada@example.org>", reason="x", target=1)
    found = state(FORWARD[:3])
    oldest = rollout(1, "2" * 12, ("Authorised", "ServingAll", "Retired"), None)
    champion = rollout(2, OLD, (*FORWARD, "ServingAll"), 1)
    canary = rollout(3, NEW, FORWARD[:3], 2)
    away = RollbackDecided(at=AT, by="Ada <ada@example.org>", reason="x", target=2)
    rollouts = {1: oldest, 2: advance(champion, decided), 3: advance(canary, away)}
    both = EnvironmentState(environment="production", model="digits", rollouts=rollouts, generation=found.generation)
    assert both.open is not None
    assert both.open.number == 3
    assert driver.desired(both, resolve).stable == resolve("2" * 12)


def test_twins_are_taken_back_like_any_other_part() -> None:
    """Where two services of the new release share the traffic, both get half, and the way back restores every byte."""
    measuring = Plan(**{**vars(PLAN), "noise_seconds": 7200}).to_mapping()
    for length in range(FORWARD.index("PartReached"), len(FORWARD) + 3):
        kinds = (*FORWARD, "PartReached", "PartReached")[:length]
        found = state(kinds)
        one = found.rollouts[2]
        found = found.with_rollout(replace(one, proposal=replace(one.proposal, plan=measuring)))
        wanted = driver.desired(found, resolve)
        if driver.compares_twins(found.rollouts[2]):
            assert (wanted.stable, wanted.canary, wanted.weight_percent) == (resolve(NEW), resolve(NEW), 50)
            assert wanted.cohort == "2-5"
        before = apply({}, driver.desired(state(None), resolve), 1)
        files = apply(before, wanted, 50)
        decided = RollbackDecided(at=AT, by="Ada <ada@example.org>", reason="x", target=1)
        found = found.with_rollout(advance(found.rollouts[2], decided))
        first, *_ = driver.rolling_back(found.rollouts[2], found, resolve)
        assert (first.stable, first.weight_percent) == (resolve(OLD), 0)
        for part in driver.rolling_back(found.rollouts[2], found, resolve):
            files = apply(files, part, 90)
        assert content(files) == content(before)
