"""What happens to jobs when objects change, when the engine ends, and when it ends badly."""

import os
import signal
import time

import pytest

from mlgitops.core.errors import Conflict, InvalidInput, Unavailable
from mlgitops.ports.cluster import Applied, JobPhase

COUNT = """
    import json, os, time
    store = json.loads(os.environ["MLGITOPS_MOUNTS"])["store"]
    open(store + "/ran", "a").write("x")
    print("running", flush=True)
    while not os.path.exists(store + "/gate"):
        time.sleep(0.02)
    open(os.environ["MLGITOPS_TERMINATION_LOG"], "w").write('{"done": true}')
"""
SLEEP = "import time; time.sleep(60)"


def runs(engine):
    """How often the program began."""
    return len((engine.store / "ran").read_text()) if (engine.store / "ran").exists() else 0


def test_conditions_follow_the_job(engine, replica, tfjob):
    """A job is Created, then Running, then Succeeded with Running false; times and counts are filled in."""
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT))}))
    assert engine.conditions() == {"Created": "True"}
    engine.wait(lambda: engine.conditions().get("Running") == "True")
    engine.wait(lambda: engine.job().phase is JobPhase.RUNNING)
    assert engine.status()["replicaStatuses"]["Worker"]["active"] == 1
    (engine.store / "gate").touch()
    seen = engine.finish()
    assert engine.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert {one["reason"] for one in engine.status()["conditions"]} == {
        "TFJobCreated",
        "TFJobRunning",
        "TFJobSucceeded",
    }
    assert engine.status()["startTime"] < engine.status()["completionTime"]
    assert seen.started_at < seen.finished_at


def test_a_finished_job_never_runs_again(engine, replica, tfjob):
    """Applying a finished job again, edited, or under a new engine starts nothing."""
    (engine.store / "gate").touch()
    image = engine.image(COUNT)
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.finish()
    engine.apply(tfjob({"Worker": replica(image, replicas=3)}))
    engine.tick(0.2)
    engine.stop(drain=True)
    engine.start()
    engine.apply(tfjob({"Worker": replica(image, restartPolicy="Always")}))
    engine.tick(0.2)
    assert runs(engine) == 1
    assert engine.job().phase is JobPhase.SUCCEEDED


def test_a_job_can_be_suspended_and_resumed(engine, replica, tfjob):
    """A suspended job has no pods and is no failure; resumed, it starts over and its deadlines count anew."""
    image = engine.image(COUNT)
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.wait(lambda: runs(engine) == 1 and engine.job().phase is JobPhase.RUNNING)
    before = engine.status()["startTime"]
    engine.apply(tfjob({"Worker": replica(image)}, runPolicy={"suspend": True}))
    engine.wait(lambda: engine.job().phase is JobPhase.SUSPENDED and not engine.processes())
    assert engine.conditions()["Suspended"] == "True"
    assert engine.conditions()["Running"] == "False"
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.wait(lambda: runs(engine) == 2)
    assert engine.conditions()["Suspended"] == "False"
    assert engine.status()["startTime"] > before
    assert engine.job().restarts == 0


def test_a_job_suspended_from_the_start_waits(engine, replica, tfjob):
    """A job that is queued by somebody else is Suspended, starts nothing and meets no deadline."""
    job = tfjob({"Worker": replica(engine.image(COUNT))}, runPolicy={"suspend": True, "activeDeadlineSeconds": 0})
    engine.apply(job)
    engine.tick(0.2)
    assert engine.job().phase is JobPhase.SUSPENDED
    assert runs(engine) == 0


def test_the_time_to_live_deletes_the_object(engine, replica, tfjob):
    """A finished job is deleted after its time to live; what was seen of it stays; applying it again trains again."""
    (engine.store / "gate").touch()
    job = tfjob({"Worker": replica(engine.image(COUNT))}, runPolicy={"ttlSecondsAfterFinished": 0})
    engine.apply(job)
    engine.finish()
    engine.wait(lambda: engine.status() is None)
    assert engine.job().phase is JobPhase.SUCCEEDED
    engine.apply(job)
    engine.wait(lambda: runs(engine) == 2)


def test_replicas_can_be_changed_while_it_runs(engine, replica, tfjob):
    """Replicas beyond a lowered count are ended, missing ones are made, and neither is a failure."""
    image = engine.image(SLEEP)
    engine.apply(tfjob({"Worker": replica(image, replicas=2)}))
    engine.wait(lambda: len(engine.processes()) == 2)
    engine.apply(tfjob({"Worker": replica(image, replicas=1)}))
    engine.wait(lambda: len(engine.processes()) == 1)
    engine.apply(tfjob({"Worker": replica(image, replicas=3)}))
    engine.wait(lambda: len(engine.processes()) == 3 and engine.job().phase is JobPhase.RUNNING)
    assert engine.job().restarts == 0


def test_a_pruned_job_keeps_what_was_seen(engine, replica, tfjob):
    """A finished job that is no longer listed keeps its outcome, result and logs, also for the next engine."""
    (engine.store / "gate").touch()
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT))}))
    before = engine.finish()
    engine.apply(revision="2" * 40)
    engine.tick(0.1)
    assert engine.job() == before
    assert engine.log() == "running\n"
    engine.stop(drain=True)
    assert engine.job() == before
    engine.start()
    assert engine.status() is None


def test_an_incomplete_build_prunes_nothing(engine, replica, tfjob):
    """When some folders of an environment could not be built, absence does not mean removal."""
    engine.apply(tfjob({"Worker": replica(engine.image(SLEEP))}))
    engine.wait(lambda: len(engine.processes()) == 1)
    engine.controller.apply("training", "2" * 40, [], prune=False)
    engine.tick(0.1)
    assert len(engine.processes()) == 1


def test_a_removed_and_relisted_job_waits_for_its_predecessor(engine, replica, tfjob):
    """A job that comes back is a new object, whose pods begin only when those of the old one are gone."""
    job = tfjob({"Worker": replica(engine.image("""
        import json, os, signal, sys, time
        store = json.loads(os.environ["MLGITOPS_MOUNTS"])["store"]
        def leave(*_):
            time.sleep(0.3)
            open(store + "/order", "a").write("end ")
            sys.exit()
        signal.signal(signal.SIGTERM, leave)
        open(store + "/order", "a").write("begin ")
        time.sleep(60)
    """))})  # fmt: skip
    order = engine.store / "order"
    engine.apply(job)
    engine.wait(order.exists)
    engine.apply()
    engine.apply(job)
    engine.wait(lambda: order.read_text().count("begin") == 2)
    assert order.read_text() == "begin end begin "


def test_an_engine_killed_hard_is_succeeded_by_one_that_adopts(engine, replica, tfjob):
    """Containers outlive a killed engine, and the next one goes on with them without a second run."""
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT), restartPolicy="OnFailure")}))
    engine.stop(drain=False)
    engine.serve_until(lambda: runs(engine) == 1)
    running = engine.processes()
    assert len(running) == 1
    with pytest.raises(Unavailable):
        engine.job()
    engine.start()
    engine.wait(lambda: engine.job().phase is JobPhase.RUNNING)
    assert engine.processes() == running
    (engine.store / "gate").touch()
    seen = engine.finish()
    assert (seen.phase, seen.result, seen.restarts) == (JobPhase.SUCCEEDED, {"done": True}, 0)
    assert runs(engine) == 1


def test_a_job_that_ended_while_no_engine_ran_is_noticed(engine, replica, tfjob):
    """What a container did between two engines counts: its exit code and its report are read, it is not run again."""
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT))}))
    engine.wait(lambda: runs(engine) == 1)
    engine.stop(drain=False)
    (engine.store / "gate").touch()
    deadline = time.monotonic() + 10
    while engine.processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    engine.start()
    assert engine.finish().result == {"done": True}
    assert runs(engine) == 1


def test_a_drained_job_goes_on_under_the_next_engine(engine, replica, tfjob):
    """Stopping the engine in order ends containers; the next one makes them again, and no failure is counted."""
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT), restartPolicy="Never")}, runPolicy={"backoffLimit": 0}))
    engine.wait(lambda: runs(engine) == 1)
    engine.stop(drain=True)
    assert engine.processes() == []
    engine.start()
    engine.wait(lambda: runs(engine) == 2)
    (engine.store / "gate").touch()
    seen = engine.finish()
    assert (seen.phase, seen.restarts) == (JobPhase.SUCCEEDED, 0)


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_lost_pod_is_made_again(engine, replica, tfjob, policy):
    """When all that knows of a container dies, its processes end and the pod is made again, as a deleted one is."""
    engine.apply(tfjob({"Worker": replica(engine.image(COUNT), restartPolicy=policy)}))
    engine.wait(lambda: runs(engine) == 1)
    first = engine.processes()
    os.kill(engine.shims()[0], signal.SIGKILL)
    engine.wait(lambda: runs(engine) == 2)
    assert set(first).isdisjoint(engine.processes())
    (engine.store / "gate").touch()
    seen = engine.finish()
    assert (seen.phase, seen.restarts) == (JobPhase.SUCCEEDED, 1)


def test_one_engine_at_a_time(engine):
    """A second engine on the same cluster is refused."""
    with pytest.raises(Conflict):
        engine.start()


def test_refused_objects_do_not_hold_up_the_others(engine, replica, tfjob):
    """An object that is refused is reported with its reason, keeps what is there, and the others are applied."""
    (engine.store / "gate").touch()
    image = engine.image(COUNT)
    engine.apply(tfjob({"Worker": replica(image)}, name="first"), revision="1" * 40)
    bad = tfjob({"Worker": replica("")}, name="first")
    with pytest.raises(InvalidInput, match="image: is required"):
        engine.apply(bad, tfjob({"Worker": replica(image)}, name="second"), revision="2" * 40)
    applied = engine.cluster.applied("training")
    assert applied.revision == "1" * 40
    assert "TFJob/first" in applied.error
    assert engine.finish("second").phase is JobPhase.SUCCEEDED
    assert engine.finish("first").phase is JobPhase.SUCCEEDED
    engine.apply(tfjob({"Worker": replica(image)}, name="second"), revision="3" * 40)
    assert engine.cluster.applied("training") == Applied(revision="3" * 40)


def test_another_controllers_job_is_left_alone(engine, replica, tfjob):
    """A job that Kueue's MultiKueue manages is not run here, and nobody can take it back by an edit."""
    image = engine.image(COUNT)
    engine.apply(tfjob({"Worker": replica(image)}, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    engine.tick(0.1)
    assert (engine.job().phase, runs(engine)) == (JobPhase.PENDING, 0)
    with pytest.raises(InvalidInput, match="immutable"):
        engine.apply(tfjob({"Worker": replica(image)}))


def test_what_was_never_applied_is_unknown(engine):
    """An unknown job is None, has no logs, and an environment without a commit says so."""
    assert engine.cluster.job("training", "absent") is None
    assert engine.cluster.job("training", "../../etc") is None
    assert engine.cluster.logs("training", "absent") == {}
    assert engine.cluster.applied("staging") == Applied(revision=None)


def test_sync_is_taken_once(engine):
    """A wish to look at main reaches the engine once, however often it was made."""
    assert not engine.controller.take_sync()
    engine.cluster.sync()
    engine.cluster.sync()
    assert engine.controller.take_sync()
    assert not engine.controller.take_sync()


def test_engines_killed_at_any_moment_never_run_a_container_twice_at_once(engine, replica, tfjob):
    """Engines killed one after another, at whatever moment, neither lose a job nor run one replica twice at a time."""
    image = engine.image("""
        import fcntl, json, os, time
        store = json.loads(os.environ["MLGITOPS_MOUNTS"])["store"]
        lock = open(store + "/lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            open(store + "/overlap", "w").close()
        open(store + "/ran", "a").write("x")
        while not os.path.exists(store + "/gate"):
            time.sleep(0.02)
    """)
    engine.apply(tfjob({"Worker": replica(image, restartPolicy="OnFailure")}))
    engine.stop(drain=False)
    for number in range(5):
        engine.serve_until(lambda: engine.cluster.running, then_seconds=0.04 * number)
    engine.start()
    engine.wait(lambda: runs(engine) > 0)
    (engine.store / "gate").touch()
    assert engine.finish().phase is JobPhase.SUCCEEDED
    assert not (engine.store / "overlap").exists()
