"""Who this process is among the replicas of a TFJob, and the distribution strategy that follows from it."""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgitops.core.errors import InvalidInput

TF_CONFIG: Final = "TF_CONFIG"
_TRAINING_TYPES: Final = ("chief", "master", "worker")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One replica of a TFJob."""

    type: str = "worker"
    """`chief`, `master`, `worker`, `ps` or `evaluator`; `worker` when the process runs alone."""
    index: int = 0
    """Position among the replicas of its type."""
    workers: int = 1
    """Replicas that train together, the chief among them."""
    parameter_servers: int = 0
    """Replicas that hold variables for asynchronous training."""
    has_chief: bool = False
    """Whether one replica is the chief by its type; without one, worker 0 is."""

    @property
    def chief(self) -> bool:
        """Whether this replica writes what the job yields."""
        if self.has_chief:
            return self.type in {"chief", "master"}
        return self.type == "worker" and self.index == 0

    @property
    def distributed(self) -> bool:
        """Whether this replica trains together with others."""
        return self.workers > 1 and self.type in _TRAINING_TYPES


def parse_task(text: str | None) -> Task:
    """Return the task that `TF_CONFIG` describes; the process alone when it is absent or empty.

    Raises:
        InvalidInput: The text is no JSON object with the members `cluster` and `task`.
    """
    if not text:
        return Task()
    try:
        configuration = json.loads(text)
        cluster: Mapping[str, Sequence[str]] = configuration.get("cluster", {})
        own: Mapping[str, Any] = configuration.get("task", {})
        counts = {str(name): len(addresses) for name, addresses in cluster.items()}
        kind, index = str(own.get("type", "worker")), int(own.get("index", 0))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidInput(f"{TF_CONFIG} is no JSON object with cluster and task: {error}") from error
    if kind != "evaluator" and counts and not 0 <= index < counts.get(kind, 0):
        raise InvalidInput(f"{TF_CONFIG}: task {kind} {index} is not in the cluster {counts}")
    return Task(
        type=kind,
        index=index,
        workers=max(1, sum(counts.get(name, 0) for name in _TRAINING_TYPES)),
        parameter_servers=counts.get("ps", 0),
        has_chief=counts.get("chief", 0) + counts.get("master", 0) > 0,
    )


def task() -> Task:
    """Return who this process is, from `TF_CONFIG`."""
    return parse_task(os.environ.get(TF_CONFIG))


def is_chief() -> bool:
    """Say whether this process writes what the job yields; true for a process that runs alone."""
    return task().chief


@functools.cache
def strategy() -> Any:
    """Return the `tf.distribute.Strategy` for this process, always the same one.

    With `TF_CONFIG` and more than one chief or worker it is `MultiWorkerMirroredStrategy`; else `MirroredStrategy` on
    several GPUs, and TensorFlow's default strategy on one device or for an evaluator.

    Raises:
        InvalidInput: The job has parameter servers. Asynchronous training needs a coordinator with a loop of its own;
            give chief and worker roles instead.
    """
    import tensorflow as tf

    own = task()
    if own.parameter_servers or own.type == "ps":
        raise InvalidInput(
            "training with parameter servers (role PS) is not supported by mlgitops.training; "
            "use the roles Chief and Worker, whose replicas train in step"
        )
    if own.distributed:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if own.type in _TRAINING_TYPES and len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def barrier() -> None:
    """Wait until every replica that trains has come here; returns at once for a process that runs alone."""
    if not task().distributed:
        return
    import tensorflow as tf

    group = strategy()

    @tf.function  # type: ignore[untyped-decorator]
    def meet() -> Any:
        return group.reduce("SUM", group.run(lambda: tf.constant(1.0)), axis=None)

    float(meet())
