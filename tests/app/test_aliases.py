"""What a release is called follows from where it serves: there is nothing to set, so nothing deploys by a name."""

from mlgitops.app import deciding, reading, rollbacks
from mlgitops.app.context import World
from tests.support.world import MODEL, Quality, live, push, quick_world, settle, state_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
BETTER = Quality(accuracy=0.97, wrong=0.03)


def called(world: World) -> dict[str, list[str]]:
    """Return the aliases of each release that has any."""
    rows = reading.models(world)["models"][0]["releases"]
    return {one["release"]: one["aliases"] for one in rows if one["aliases"]}


def test_aliases_follow_what_serves() -> None:
    """Champion, candidate, last-good and latest move with rollouts and rollbacks, and with nothing else."""
    world, engine = quick_world()
    first = live(world, engine, "one", GOOD, trusted=True)
    assert called(world) == {first: ["champion@production", "latest"]}
    second = live(world, engine, "two", BETTER, trusted=True)
    assert called(world) == {first: ["last-good@production"], second: ["champion@production", "latest"]}
    third = push(world, "three", quality=BETTER, engine=engine).name
    settle(world, engine, 0.2, passes=4)
    assert called(world)[third] == ["candidate@production", "latest"]
    rollbacks.rollback(world, MODEL, None, reason="bad")
    settle(world, engine, 1)
    assert called(world) == {
        first: ["last-good@production"],
        second: ["champion@production"],
        third: ["latest"],
    }
    assert state_of(world).champion == second
    deciding.resume(world, MODEL, None)
    settle(world, engine, 15)
    assert called(world)[second] == ["champion@production"], "the newest is not brought out because it is the newest"
