"""What a training program finds around it, and what is kept of what it says."""

import json
from pathlib import Path

from mlgitops.ports.cluster import JobPhase

SHOW = """
    import json, os
    print(json.dumps({"environment": dict(os.environ), "directory": os.getcwd(), "arguments": __import__("sys").argv}))
"""


def shown(engine, pod="job-worker-0"):
    """What the program saw."""
    return json.loads(engine.log(pod))


def test_nothing_of_the_engine_reaches_the_program(engine, replica, tfjob, monkeypatch):
    """The program's environment is made from nothing: no variable of the engine, so no credential, is in it."""
    monkeypatch.setenv("MLGITOPS_TOKEN", "canary-secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    engine.apply(tfjob({"Worker": replica(engine.image(SHOW))}))
    engine.finish()
    environment = shown(engine)["environment"]
    assert "canary-secret" not in json.dumps(environment)
    assert set(environment) - {"LC_CTYPE"} == {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "CUDA_VISIBLE_DEVICES",
        "MLGITOPS_MOUNTS",
        "MLGITOPS_TERMINATION_LOG",
    }
    assert json.loads(environment["MLGITOPS_MOUNTS"]) == {"store": str(engine.store)}


def test_command_arguments_and_variables_are_kubernetes_ones(engine, replica, tfjob):
    """Command replaces the entrypoint, args follow it, and $(NAME) means a variable as in Kubernetes."""
    container = {
        "command": ["python3", "other.py"],
        "args": ["--rate=$(RATE)", "$(ABSENT)", "$$(RATE)"],
        "env": [{"name": "BASE", "value": "1"}, {"name": "RATE", "value": "0.$(BASE)"}],
    }
    engine.apply(tfjob({"Worker": replica(engine.image("", other=SHOW), container=container)}))
    engine.finish()
    assert shown(engine)["arguments"] == ["other.py", "--rate=0.1", "$(ABSENT)", "$(RATE)"]


def test_a_distributed_job_gets_its_tf_config(engine, replica, tfjob):
    """Replicas get a TF_CONFIG with every address but the evaluator's, free ports, and their own task."""
    image = engine.image("""
        import json, os, socket
        config = json.loads(os.environ["TF_CONFIG"])
        task = config["task"]
        if task["type"] in config["cluster"]:
            host, port = config["cluster"][task["type"]][task["index"]].split(":")
            socket.create_server((host, int(port))).close()
        print(json.dumps(config))
    """)
    roles = {"chief": 1, "WORKER": 2, "PS": 1, "Evaluator": 1}
    engine.apply(tfjob({role: replica(image, replicas=count) for role, count in roles.items()}))
    assert engine.finish().phase is JobPhase.SUCCEEDED
    engine.wait(lambda: sum(map(bool, engine.cluster.logs("training", "job").values())) == 5)
    configs = {name: json.loads(log) for name, log in engine.cluster.logs("training", "job").items()}
    cluster = configs["job-chief-0"]["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {"chief": 1, "worker": 2, "ps": 1}
    addresses = [address for group in cluster.values() for address in group]
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert configs["job-worker-1"]["task"] == {"type": "worker", "index": 1}
    assert configs["job-evaluator-0"]["task"] == {"type": "evaluator", "index": 0}


def test_the_image_stays_as_it_is(engine, replica, tfjob):
    """A program may write beside its code; the image, and so the next container, never sees it."""
    image = engine.image("""
        import os
        print(sorted(os.listdir()))
        open("train.py", "w").write("broken")
        os.mkdir("left")
        raise SystemExit(1)
    """)
    engine.apply(tfjob({"Worker": replica(image, restartPolicy="OnFailure")}, runPolicy={"backoffLimit": 1}))
    engine.finish()
    assert engine.log().count("['train.py']") >= 1
    assert "left" not in engine.log()


def test_an_empty_volume_lives_as_long_as_its_pod(engine, replica, tfjob):
    """What a container left in an emptyDir is there after its restart, under the volume's name."""
    image = engine.image("""
        import json, os
        mark = json.loads(os.environ["MLGITOPS_MOUNTS"])["scratch"] + "/mark"
        first = not os.path.exists(mark)
        open(mark, "a").close()
        raise SystemExit(1 if first else 0)
    """)
    pod = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    container = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    engine.apply(tfjob({"Worker": replica(image, pod=pod, container=container, restartPolicy="OnFailure")}))
    seen = engine.finish()
    assert (seen.phase, seen.restarts) == (JobPhase.SUCCEEDED, 1)


def test_an_unknown_claim_keeps_a_pod_waiting(engine, replica, tfjob):
    """A pod that mounts a claim nobody has waits, and says for which."""
    pod = {"volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "absent"}}]}
    engine.apply(tfjob({"Worker": replica(engine.image(""), pod=pod)}))
    engine.tick(0.1)
    seen = engine.job()
    assert (seen.phase, seen.reason) == (JobPhase.PENDING, "Unschedulable")
    assert '"absent" not found' in seen.message


def test_logs_are_there_while_the_job_runs(engine, replica, tfjob):
    """Output can be read while the program runs, without its buffers' help when it flushes."""
    image = engine.image("import sys, time; print('out', flush=True); print('err', file=sys.stderr); time.sleep(60)")
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.wait(lambda: engine.log() == "out\nerr\n")
    assert engine.job().phase is JobPhase.RUNNING


def test_endless_logs_keep_their_beginning_and_their_end(engine, replica, tfjob):
    """Of output beyond the bound the beginning and the end are kept, and what is missing between is said."""
    image = engine.image("""
        print("the beginning")
        for number in range(40_000):
            print(f"line {number}")
        print("the end")
    """)
    engine.apply(tfjob({"Worker": replica(image)}))
    engine.finish()
    log = engine.log()
    assert log.startswith("the beginning\n")
    assert log.endswith("line 39999\nthe end\n")
    assert "bytes left out]" in log
    assert len(log) < 80_000
    left_out = int(log.partition("[mlgitops: ")[2].split()[0])
    assert left_out + len(log) > 400_000


def test_output_of_what_a_program_leaves_behind_does_not_hold_the_pod(engine, replica, tfjob):
    """A pod ends with its first process: children that keep its output open are killed, not waited for."""
    image = engine.image("""
        import subprocess, sys
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True).pid)
    """)
    engine.apply(tfjob({"Worker": replica(image)}))
    assert engine.finish(seconds=10).phase is JobPhase.SUCCEEDED
    assert not Path(f"/proc/{int(engine.log())}").exists()


def test_the_log_can_stand_for_the_report(engine, replica, tfjob):
    """With FallbackToLogsOnError the last output of a failed container stands for its missing message."""
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    image = engine.image("print('{\"epoch\": 2}'); raise SystemExit(1)")
    engine.apply(tfjob({"Worker": replica(image, container=container)}))
    assert engine.finish().result == {"epoch": 2}
