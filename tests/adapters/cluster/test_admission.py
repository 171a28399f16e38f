"""What the cluster refuses of a TFJob, and what it lets pass as a real one does."""

import pytest

from mlgitops.adapters.cluster.admission import parse_job
from mlgitops.core.errors import InvalidInput

CONTAINER = {"name": "tensorflow", "image": "digits"}


def manifest(roles=None, name: object = "digits", annotations=None, policy=None, **spec):
    """Return a TFJob."""
    metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
    roles = {"Worker": role()} if roles is None else roles
    return {"metadata": metadata, "spec": {"tfReplicaSpecs": roles, "runPolicy": policy or {}, **spec}}


def role(containers=(CONTAINER,), **more):
    """Return one replica type."""
    return {"template": {"spec": {"containers": list(containers)}}, **more}


def test_defaults_are_the_operators() -> None:
    """One replica, Never, cleanPodPolicy None, no limits, worker 0 decides."""
    job = parse_job(manifest())
    assert (job.roles["Worker"].count, job.roles["Worker"].restart_policy) == (1, "Never")
    assert (job.clean_pod_policy, job.backoff_limit, job.active_deadline_seconds) == ("None", None, None)
    assert (job.ttl_seconds, job.suspended, job.success_policy) == (None, False, "")
    assert job.deciding_pod == "digits-worker-0"
    assert not job.distributed
    assert job.start_deadline_seconds == 120


@pytest.mark.parametrize(
    ("spoilt", "pointer"),
    [
        (manifest(name="0f3a"), "metadata.name"),
        (manifest(name="Digits"), "metadata.name"),
        (manifest(name="a" * 64), "metadata.name"),
        (manifest(name="digits\n"), "metadata.name"),
        (manifest(name=5), "metadata.name"),
        ({"metadata": {"generateName": "digits-"}, "spec": manifest()["spec"]}, "metadata.generateName"),
        (manifest(roles={}), "spec.tfReplicaSpecs"),
        (manifest(roles=[1]), "spec.tfReplicaSpecs"),
        (manifest({"Chief": role(), "Master": role()}), "spec.tfReplicaSpecs"),
        (manifest({"Worker": role(), "worker": role()}), "spec.tfReplicaSpecs.worker"),
        (manifest({"Worker": role([{"name": "main", "image": "x"}])}), "Worker.template.spec.containers"),
        (manifest({"Worker": role([])}), "spec.tfReplicaSpecs.Worker.template.spec.containers"),
        (manifest({"PS": role([{"name": "tensorflow"}])}), "spec.tfReplicaSpecs.PS.template.spec.containers[0].image"),
        (manifest({"Worker": role(replicas="2")}), "spec.tfReplicaSpecs.Worker.replicas"),
        (manifest({"Worker": role(replicas=True)}), "spec.tfReplicaSpecs.Worker.replicas"),
        (manifest({"Worker": role(replicas=2**40)}), "spec.tfReplicaSpecs.Worker.replicas"),
        (manifest(policy={"backoffLimit": 1.5}), "spec.runPolicy.backoffLimit"),
        (manifest(policy={"suspend": "yes"}), "spec.runPolicy.suspend"),
        (manifest(policy={"managedBy": "me"}), "spec.runPolicy.managedBy"),
        (manifest(annotations={"mlgitops.dev/start-deadline-seconds": "0"}), "start-deadline"),
        (manifest(annotations={"mlgitops.dev/start-deadline-seconds": "soon"}), "start-deadline"),
        (manifest(annotations={"note": 5}), "metadata.annotations.note"),
    ],
)  # fmt: skip
def test_what_a_cluster_refuses_is_refused(spoilt, pointer: str) -> None:
    """Bad names, missing containers or images, two deciding roles and wrong types are refused, with their place."""
    with pytest.raises(InvalidInput) as caught:
        parse_job(spoilt)
    assert any(pointer in (problem.pointer or "") for problem in caught.value.problems)


def test_everything_wrong_is_told_at_once() -> None:
    """A person sees every problem of a manifest in one go."""
    with pytest.raises(InvalidInput) as caught:
        parse_job(manifest({"Worker": role([{"name": "main"}])}, name="X", policy={"backoffLimit": "3"}))
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    "job",
    [
        manifest({"Chief": role(replicas=2)}),
        manifest({"Worker": role(restartPolicy="Sometimes")}),
        manifest({"Worker": role(), "Reducer": role()}),
        manifest({"Worker": role(replicas=0)}),
        manifest({"Worker": role(replicas=-1)}),
        manifest(policy={"activeDeadlineSeconds": -1, "cleanPodPolicy": "Sometimes"}, successPolicy="Anything"),
    ],
)
def test_what_nobody_checks_on_a_cluster_passes(job) -> None:
    """Values that the operator accepts unseen are accepted here, too: to warn of them is lint's business."""
    assert parse_job(job).name == "digits"


def test_the_case_of_replica_types_is_corrected() -> None:
    """A replica type in the wrong case means the right one."""
    job = parse_job(manifest({"chief": role(), "WORKER": role(), "ps": role()}))
    assert set(job.roles) == {"Chief", "Worker", "PS"}
