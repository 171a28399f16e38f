"""What a cluster keeps of a job: its log while it is written, and all of it until somebody deletes that."""

from datetime import UTC, datetime, timedelta

import pytest

from mlgitops.adapters.cluster.keeping import JobKeeper

WRITE = """
    import json, os, time
    store = json.loads(os.environ["MLGITOPS_MOUNTS"])["store"]
    print("first", flush=True)
    while not os.path.exists(store + "/gate"):
        time.sleep(0.02)
    print("second token=" + "abcdefgh", flush=True)
    print("the end", end="", flush=True)
"""
POD = "job-worker-0"
LATER = datetime.now(UTC) + timedelta(days=1)


def test_a_log_is_read_while_it_is_written(engine, replica, tfjob) -> None:
    """Each look returns what was written since the one before, the unfinished last line too, and no secret."""
    engine.apply(tfjob({"Worker": replica(engine.image(WRITE))}))
    engine.wait(lambda: engine.log() == "first\n")
    (first,) = engine.cluster.log_parts("training", "job", {})[POD]
    assert (first.position, first.data) == (0, b"first\n")
    assert engine.cluster.log_parts("training", "job", {POD: 6})[POD] == ()
    (engine.store / "gate").touch()
    engine.finish()
    (rest,) = engine.cluster.log_parts("training", "job", {POD: 6})[POD]
    assert (rest.position, rest.data) == (6, b"second token=***\nthe end")
    assert engine.cluster.log_parts("training", "other", {}) == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_only_a_job_that_is_over_and_gone_can_be_deleted(engine, replica, tfjob, restarted: bool) -> None:
    """A job that runs, or that is still listed, is not garbage; one that was removed is, and nothing of it stays."""
    keeper = JobKeeper(engine.home / "cluster")
    engine.apply(tfjob({"Worker": replica(engine.image(WRITE))}))
    engine.wait(lambda: engine.log() == "first\n")
    assert keeper.kept() == ()
    assert keeper.delete("job", unless_used_since=LATER) == 0
    (engine.store / "gate").touch()
    engine.finish()
    assert keeper.kept() == ()
    engine.apply()
    engine.wait(lambda: engine.controller is not None and not engine.controller.busy)
    if restarted:
        engine.stop(drain=True)
        engine.start()
    (found,) = keeper.kept()
    assert found.name == "job"
    assert keeper.delete("job", unless_used_since=datetime.now(UTC) - timedelta(hours=1)) == 0
    assert keeper.delete("job", unless_used_since=LATER) == sum(found.parts.values())
    assert engine.cluster.job("training", "job") is None
    engine.tick(0.1)
    engine.apply(tfjob({"Worker": replica(engine.image(WRITE))}))
    engine.finish()
    assert engine.log().startswith("first\n")
