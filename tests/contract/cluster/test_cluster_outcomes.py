"""What decides that a training job succeeded or failed."""

import json
import os
import signal
from pathlib import Path

import pytest

from mlgitops.ports.cluster import JobPhase

SLEEP = "import time; time.sleep(60)"


def report(text):
    """Return a program that leaves a termination message."""
    return f"import os; open(os.environ['MLGITOPS_TERMINATION_LOG'], 'w').write({text!r})"


GATED = """
import json, os, time
while not os.path.exists(json.loads(os.environ["MLGITOPS_MOUNTS"])["store"] + "/gate"):
    time.sleep(0.02)
"""


def exit_once(code):
    """Return a program that ends with a code at its first run, and well at its second."""
    return f"""
        import os, sys
        mark = "/".join(__import__("json").loads(os.environ["MLGITOPS_MOUNTS"]).values()) + "/ran"
        first = not os.path.exists(mark)
        open(mark, "a").write("x")
        print("first" if first else "second", flush=True)
        sys.exit({code} if first else 0)
    """


def test_worker_zero_decides_without_a_chief(engine, replica, tfjob):
    """Without a chief the job succeeds as soon as worker 0 does, whatever the other workers do."""
    image = engine.image("""
        import json, os, time
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
            time.sleep(60)
    """)
    engine.apply(tfjob({"Worker": replica(image, replicas=2)}, runPolicy={"cleanPodPolicy": "Running"}))
    assert engine.finish().phase is JobPhase.SUCCEEDED
    engine.wait(lambda: not engine.processes())


def test_all_workers_must_end_when_the_policy_says_so(engine, replica, tfjob):
    """With AllWorkers the job runs until the last worker has succeeded."""
    image = engine.image("""
        import json, os, time
        gate = json.loads(os.environ["MLGITOPS_MOUNTS"])["store"] + "/gate"
        while json.loads(os.environ["TF_CONFIG"])["task"]["index"] and not os.path.exists(gate):
            time.sleep(0.02)
    """)
    engine.apply(tfjob({"Worker": replica(image, replicas=2)}, successPolicy="AllWorkers"))
    engine.wait(lambda: engine.status()["replicaStatuses"].get("Worker", {}).get("succeeded") == 1)
    engine.tick(0.1)
    assert engine.job().phase is JobPhase.RUNNING
    (engine.store / "gate").touch()
    assert engine.finish().phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize("role", ["Chief", "Master"])
def test_the_chief_decides(engine, replica, tfjob, role):
    """With a chief or master the job succeeds when that does, and its report is the job's result."""
    roles = {
        role: replica(engine.image(GATED + report('{"metrics": {"accuracy": 0.9}}'))),
        "Worker": replica(engine.image(SLEEP)),
        "PS": replica(engine.image(SLEEP)),
    }
    engine.apply(tfjob(roles, runPolicy={"cleanPodPolicy": "Running"}))
    engine.wait(lambda: engine.job().phase is JobPhase.RUNNING)
    (engine.store / "gate").touch()
    seen = engine.finish()
    assert seen.phase is JobPhase.SUCCEEDED
    assert seen.result == {"metrics": {"accuracy": 0.9}}
    engine.wait(lambda: not engine.processes())
    assert set(engine.cluster.logs("training", "job")) == {f"job-{role.lower()}-0", "job-worker-0", "job-ps-0"}


def test_parameter_servers_run_on_when_nothing_cleans_them(engine, replica, tfjob):
    """With cleanPodPolicy None, the default, a parameter server outlives a successful job until the job is removed."""
    engine.apply(tfjob({"Chief": replica(engine.image(GATED)), "PS": replica(engine.image(SLEEP))}))
    engine.wait(lambda: engine.job().phase is JobPhase.RUNNING)
    (engine.store / "gate").touch()
    assert engine.finish().phase is JobPhase.SUCCEEDED
    engine.tick(0.2)
    assert len(engine.processes()) == 1
    assert engine.status()["replicaStatuses"]["PS"] == {"active": 0, "succeeded": 1, "failed": 0}
    engine.apply()
    engine.wait(lambda: not engine.processes())


def test_every_pod_is_cleaned_with_all(engine, replica, tfjob):
    """With cleanPodPolicy All ended pods go, too, and their logs stay."""
    engine.apply(tfjob({"Worker": replica(engine.image("print('words')"))}, runPolicy={"cleanPodPolicy": "All"}))
    engine.finish()
    engine.tick(0.1)
    assert not list(engine.home.glob("cluster/jobs/training/job/*/pods/*/*"))
    assert "words" in engine.log()


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_137_is_retried_unless_never(engine, replica, tfjob, policy):
    """Exit 137 (an out-of-memory kill) fails a Never replica and is retried under every other policy."""
    engine.apply(tfjob({"Worker": replica(engine.image(exit_once(137)), restartPolicy=policy)}))
    if policy == "Always":  # starts again also after success, so that such a job never ends by itself
        engine.wait(lambda: engine.job().restarts >= 2)
        assert engine.job().phase is JobPhase.RUNNING
        return
    seen = engine.finish()
    assert seen.phase is (JobPhase.FAILED if policy == "Never" else JobPhase.SUCCEEDED)
    assert seen.restarts == (0 if policy == "Never" else 1)
    assert "first" in engine.log()
    if policy == "Never":
        assert seen.reason == "ReplicaFailed"
        assert "137 (SIGKILL): first" in seen.message


def test_exit_code_policy_takes_low_codes_for_final(engine, replica, tfjob):
    """Under ExitCode the codes 1 to 127 are permanent: the job fails at once, without a second run."""
    engine.apply(tfjob({"Worker": replica(engine.image(exit_once(127)), restartPolicy="ExitCode")}))
    seen = engine.finish()
    assert (seen.phase, seen.restarts) == (JobPhase.FAILED, 0)
    assert (engine.store / "ran").read_text() == "x"


@pytest.mark.parametrize("role", ["Worker", "PS"])
def test_a_failing_worker_fails_the_job_and_ends_its_peers(engine, replica, tfjob, role):
    """One failed replica of any type fails the job; peers that wait and ignore SIGTERM are ended after the grace."""
    chief = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    roles = {"Chief": replica(engine.image(chief)), role: replica(engine.image("raise SystemExit('no data')"))}
    engine.apply(tfjob(roles))
    seen = engine.finish()
    assert (seen.phase, seen.reason) == (JobPhase.FAILED, "ReplicaFailed")
    assert f"1 {role} replica(s) failed" in seen.message
    assert f"job-{role.lower()}-0 ended with 1: no data" in seen.message
    engine.wait(lambda: not engine.processes(), seconds=5)


def test_a_killed_worker_is_started_again(engine, replica, tfjob):
    """A container killed from outside is restarted under OnFailure, and the restart is counted."""
    engine.apply(tfjob({"Worker": replica(engine.image(SLEEP), restartPolicy="OnFailure")}))
    engine.wait(lambda: len(engine.processes()) == 1)
    first = engine.processes()[0]
    os.kill(first, signal.SIGKILL)
    engine.wait(lambda: engine.processes() not in ([], [first]))
    assert (engine.job().restarts, engine.job().phase) == (1, JobPhase.RUNNING)


def test_dynamic_workers_may_fail(engine, replica, tfjob):
    """With enableDynamicWorker a failed worker does not fail the job."""
    roles = {"Chief": replica(engine.image(SLEEP)), "Worker": replica(engine.image("raise SystemExit(3)"))}
    engine.apply(tfjob(roles, enableDynamicWorker=True))
    engine.wait(lambda: engine.status()["replicaStatuses"].get("Worker", {}).get("failed") == 1)
    engine.tick(0.1)
    assert engine.job().phase is JobPhase.RUNNING


@pytest.mark.parametrize(("limit", "restarts"), [(0, 1), (1, 1), (3, 3)])
def test_the_backoff_limit_counts_restarts_in_running_pods(engine, replica, tfjob, limit, restarts):
    """The job fails when container restarts reach the limit; a limit of 0 fails it with the first restart."""
    image = engine.image("import time; time.sleep(0.1); raise SystemExit('again')")
    engine.apply(tfjob({"Worker": replica(image, restartPolicy="OnFailure")}, runPolicy={"backoffLimit": limit}))
    seen = engine.finish()
    assert (seen.phase, seen.reason, seen.restarts) == (JobPhase.FAILED, "BackoffLimitExceeded", restarts)
    assert "backoff limit" in seen.message


def test_never_replicas_do_not_count_against_the_limit(engine, replica, tfjob):
    """Replicas that are never restarted do not count: with a limit of 5 the first failure is a failed replica."""
    engine.apply(tfjob({"Worker": replica(engine.image("raise SystemExit(1)"))}, runPolicy={"backoffLimit": 5}))
    assert engine.finish().reason == "ReplicaFailed"


def test_a_limit_of_zero_counts_pods_made_again(engine, replica, tfjob):
    """A limit of 0 also stops replicas that the controller itself would make again."""
    image = engine.image(exit_once(137))
    engine.apply(tfjob({"Worker": replica(image, restartPolicy="ExitCode")}, runPolicy={"backoffLimit": 0}))
    assert engine.finish().reason == "BackoffLimitExceeded"


@pytest.mark.parametrize("seconds", [1, 0, -5])
def test_the_active_deadline_ends_a_job(engine, replica, tfjob, seconds):
    """A job older than its active deadline fails; a deadline of 0 or less fails it at once."""
    image = engine.image("print('epoch 1', flush=True)\n" + SLEEP)
    engine.apply(tfjob({"Worker": replica(image)}, runPolicy={"activeDeadlineSeconds": seconds}))
    seen = engine.finish()
    assert (seen.phase, seen.reason) == (JobPhase.FAILED, "DeadlineExceeded")
    assert (seen.finished_at - seen.started_at).total_seconds() < max(seconds, 0) + 5
    engine.wait(lambda: not engine.processes(), seconds=5)


def test_the_start_deadline_ends_a_job_that_cannot_start(engine, replica, tfjob):
    """A job whose replicas do not all start in time fails, says what it waited for, and ends those that did start."""
    missing = f"registry.test/absent@sha256:{'0' * 64}"
    roles = {"Chief": replica(engine.image(SLEEP)), "Worker": replica(missing)}
    engine.apply(tfjob(roles, annotations={"mlgitops.dev/start-deadline-seconds": "2"}))
    engine.wait(lambda: engine.job().reason in ("ErrImagePull", "ImagePullBackOff"))
    assert engine.job().phase is JobPhase.PENDING
    seen = engine.finish()
    assert (seen.phase, seen.reason) == (JobPhase.FAILED, "StartDeadlineExceeded")
    assert "job-worker-0 waits" in seen.message
    assert missing in seen.message
    engine.wait(lambda: not engine.processes(), seconds=5)


def test_a_job_without_pods_fails_by_its_start_deadline(engine, replica, tfjob):
    """A restart policy that nobody checks at admission leaves a job without pods, which the start deadline ends."""
    job = tfjob(
        {"Worker": replica(engine.image(""), restartPolicy="Sometimes")},
        annotations={"mlgitops.dev/start-deadline-seconds": "1"},
    )
    engine.apply(job)
    engine.tick()
    engine.tick()
    assert (engine.job().phase, engine.job().reason) == (JobPhase.PENDING, "FailedCreatePod")
    assert engine.finish().reason == "StartDeadlineExceeded"


def test_a_hanging_job_is_ended_when_it_is_removed(engine, replica, tfjob):
    """A job that ignores SIGTERM, with children that left its process group, leaves no process behind."""
    image = engine.image("""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", hang], start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(60)
    """)
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.wait(lambda: engine.log().strip().isdigit())
    child = int(engine.log())
    engine.apply()
    engine.wait(lambda: not engine.processes() and not Path(f"/proc/{child}").exists(), seconds=5)
    seen = engine.job()
    assert (seen.phase, seen.reason) == (JobPhase.FAILED, "Deleted")
    assert str(child) in engine.log()
    assert engine.status() is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('{"loss": NaN}', "NaN is no number"),
        ('{"loss": 1e999}', "no finite number"),
        ("[1]", "no JSON object"),
        ("done", "no JSON object"),
        ("[" * 3000, "no JSON object"),
        (json.dumps({"history": ["x" * 5000]}), "longer than 4,096 bytes"),
    ],
)
def test_a_report_that_is_no_result_is_said_to_be_none(engine, replica, tfjob, message, words):
    """A termination message with NaN, of another shape or beyond 4,096 bytes gives no result, and it is said why."""
    engine.apply(tfjob({"Worker": replica(engine.image(report(message)))}))
    seen = engine.finish()
    assert (seen.phase, seen.result) == (JobPhase.SUCCEEDED, {})
    assert words in seen.message


def test_a_link_in_place_of_a_report_is_not_followed(engine, replica, tfjob):
    """A program cannot have the engine read another file for it by linking its termination message there."""
    secret = engine.home / "secret.json"
    secret.write_text('{"token": "canary"}')
    engine.apply(tfjob({"Worker": replica(engine.image(
        f"import os; os.symlink({str(secret)!r}, os.environ['MLGITOPS_TERMINATION_LOG'])"
    ))}))  # fmt: skip
    assert engine.finish().result == {}


def test_a_failed_job_keeps_its_report(engine, replica, tfjob):
    """What the deciding pod reported before it failed is there to be read."""
    image = engine.image(report('{"epoch": 3}') + "; raise SystemExit(9)")
    engine.apply(tfjob({"Worker": replica(image)}))
    seen = engine.finish()
    assert (seen.phase, seen.result) == (JobPhase.FAILED, {"epoch": 3})


def test_memory_beyond_the_limit_ends_a_container(engine, replica, tfjob):
    """A container that uses more memory than its limit is killed as out of memory, 137."""
    image = engine.image("import time; held = bytearray(200 << 20); time.sleep(60)")
    limits = {"resources": {"limits": {"memory": "100Mi"}}}
    engine.apply(tfjob({"Worker": replica(image, container=limits)}))
    seen = engine.finish()
    assert (seen.phase, seen.reason) == (JobPhase.FAILED, "ReplicaFailed")
    assert "137 (OOMKilled)" in seen.message


def test_a_command_that_is_not_there_is_an_error_of_the_start(engine, replica, tfjob):
    """A command that cannot be started ends the container with 128 and says what was not found."""
    engine.apply(tfjob({"Worker": replica(engine.image(""), container={"command": ["no-such-program"]})}))
    seen = engine.finish()
    assert "128 (StartError)" in seen.message
    assert "no-such-program" in seen.message
