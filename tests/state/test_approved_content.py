"""An approval counts for what was approved: the rollout, its release, its plan, and the manifests as they stood."""

import pytest

from mlgitops.app import deciding, reading, rollbacks
from mlgitops.app.context import World
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.rollout import RolloutPhase as P
from tests.support.memory import edited
from tests.support.world import (
    ENVIRONMENTS,
    FOLDER,
    MODEL,
    Engine,
    Quality,
    push,
    quick_world,
    seen_by,
    settle,
    state_of,
)

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)
APPROVED = ENVIRONMENTS.replace("    probationSeconds: 60\n", "    probationSeconds: 60\n    approvals: 1\n")
SERVICE = f"{FOLDER}/inferenceservice.yaml"


@pytest.fixture
def world() -> tuple[World, Engine]:
    """Return a world whose first release serves and whose second one is proposed."""
    world, engine = quick_world(APPROVED)
    push(world, "one", quality=GOOD, engine=engine)
    settle(world, engine, 1, passes=6)
    deciding.approve(world, MODEL, None)
    settle(world, engine, 15)
    push(world, "two", quality=BETTER, engine=engine)
    settle(world, engine, 1, passes=6)
    assert state_of(world).rollouts[2].phase is P.PROPOSED
    return world, engine


def raise_limit(world: World) -> None:
    """Edit what belongs to people in the manifest that the canary is made of."""
    data = world.repository.snapshot(MAIN).read(SERVICE) or b""
    place = b"spec:\n  predictor:\n"
    assert place in data
    edited(world.repository, MAIN, {SERVICE: data.replace(place, place + b"    timeout: 60\n", 1)})


def test_an_approval_is_void_once_the_manifests_change(world: tuple[World, Engine]) -> None:
    """Whoever edits a manifest after the approval makes it count for nothing, as the status says; it is given anew."""
    champion = state_of(world[0]).champion
    settled = seen_by(world[1], world[0].repository, "Eve")
    deciding.hold(world[0], MODEL, None, reason="not yet")
    deciding.approve(settled, MODEL, None)
    raise_limit(world[0])
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED
    assert state_of(world[0]).champion == champion
    waiting = reading.status(world[0], MODEL)["models"][0]["environments"][0]["waiting"]
    assert waiting == "1 approval missing; the manifests were changed since Eve <eve@example.org> approved"
    assert deciding.approve(settled, MODEL, None).changed
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.LIVE


def test_an_approval_outlives_what_does_not_concern_it(world: tuple[World, Engine]) -> None:
    """Another model's manifests, a README and a pass in between leave an approval what it is."""
    deciding.hold(world[0], MODEL, None, reason="not yet")
    deciding.approve(world[0], MODEL, None)
    other = {"environments/production/cats/notes.yaml": b"x\n", "README.md": b"read me\n"}
    edited(world[0].repository, MAIN, other)
    settle(*world, 1, passes=2)
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.LIVE


def test_the_approval_of_one_rollout_is_not_that_of_the_next(world: tuple[World, Engine]) -> None:
    """Content that was approved once and taken back needs its approval again: the number counts."""
    release = state_of(world[0]).rollouts[2].release
    deciding.approve(world[0], MODEL, None)
    settle(*world, 15)
    rollbacks.rollback(world[0], MODEL, None, reason="a complaint")
    settle(*world, 1)
    deciding.resume(world[0], MODEL, None)
    deciding.promote(world[0], MODEL, release, None, reason="it was wrong", force=True)
    settle(*world, 15)
    assert state_of(world[0]).rollouts[3].phase is P.PROPOSED


def test_old_content_of_main_is_no_promotion(world: tuple[World, Engine]) -> None:
    """Who writes the files of an approved rollout back, number and all, promotes nothing."""
    deciding.approve(world[0], MODEL, None)
    settle(*world, 15)
    main = world[0].repository.snapshot(MAIN)
    approved = {path: main.read(path) for path in main.paths(FOLDER)}
    rollbacks.rollback(world[0], MODEL, None, reason="a complaint")
    settle(*world, 1)
    back = state_of(world[0]).champion
    edited(world[0].repository, MAIN, approved)
    settle(*world, 15)
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).champion == back
    assert state_of(world[0]).last_number == 2


def test_an_approval_without_manifests_counts_for_nothing(world: tuple[World, Engine]) -> None:
    """An approval that an older version wrote, which does not say what was approved, is asked for again."""
    deciding.hold(world[0], MODEL, None, reason="not yet")
    deciding.approve(world[0], MODEL, None)
    path = f"environments/production/{MODEL}/state.yaml"
    data = world[0].repository.snapshot(LEDGER).read(path) or b""
    lines = [line for line in data.splitlines(keepends=True) if b"manifests: sha256" not in line]
    edited(world[0].repository, LEDGER, {path: b"".join(lines)})
    assert [one.manifests for one in state_of(world[0]).approvals if one.rollout == 2] == [""]
    deciding.resume(world[0], MODEL, None)
    settle(*world, 15)
    assert state_of(world[0]).rollouts[2].phase is P.PROPOSED


def test_nobody_approves_what_is_not_proposed(world: tuple[World, Engine]) -> None:
    """There is no approval in advance."""
    deciding.approve(world[0], MODEL, None)
    settle(*world, 15)
    with pytest.raises(MlgitopsError, match="nothing is proposed"):
        deciding.approve(world[0], MODEL, None)
