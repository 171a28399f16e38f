"""The training loop: the same on one device, several GPUs, and a chief with workers.

Keras' own `fit` fails under `MultiWorkerMirroredStrategy` (keras-team/keras#20585), so this loop takes its place. It
saves a checkpoint after each epoch, goes on from the last one after a restart, stops at a loss that is not a number,
and prints one line of JSON per epoch.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mlgitops.core.errors import InvalidInput, MlgitopsError
from mlgitops.training.checkpoint import Checkpoints
from mlgitops.training.files import to_json
from mlgitops.training.locations import checkpoint_path
from mlgitops.training.pipeline import Input, Share
from mlgitops.training.task import Task, strategy, task

STEPS_BETWEEN_CHECKS: Final = 50
"""How often the loss is looked at within an epoch: each look waits for the device."""
PerExample = Callable[[Any, Any], Any]
"""Takes labels and predictions of a batch and returns one number per example."""


class NonFiniteLoss(MlgitopsError):
    """The loss became NaN or infinite; going on would only spoil the model."""

    def __init__(self, *, epoch: int, step: int, loss: float) -> None:
        self.epoch, self.step, self.loss = epoch, step, loss
        super().__init__(
            f"the loss became {loss} in epoch {epoch} at step {step}: "
            "lower the learning rate, or look for values in the data that are not numbers"
        )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What `fit` returns, on every worker."""

    model: Any
    """The model with its last weights."""
    history: tuple[Mapping[str, float], ...]
    """One mapping per epoch: `epoch` (from 1), `seconds`, `loss`, the metrics, and the same with `val_` in front."""

    @property
    def last(self) -> Mapping[str, float]:
        """Metrics of the last epoch, without `epoch` and `seconds`."""
        return {name: value for name, value in self.history[-1].items() if name not in {"epoch", "seconds"}}


@dataclass(kw_only=True)
class _Loop:
    """What one training holds on to."""

    group: Any
    own: Task
    model: Any
    optimizer: Any
    loss: PerExample
    metrics: Mapping[str, PerExample]
    steps: dict[str, Any] = field(default_factory=dict)
    """The compiled steps, by `train` and `validate`: compiled once, not once per epoch."""
    batches: dict[str, Any] = field(default_factory=dict)
    """The iterators over all epochs' batches, likewise."""


def fit(
    build_model: Callable[[], Any],
    train: Input,
    *,
    epochs: int,
    loss: str | PerExample,
    optimizer: Any = "adam",
    metrics: Mapping[str, str | PerExample] | None = None,
    validation: Input | None = None,
    checkpoint: bool = True,
    seed: int = 0,
) -> Trained:
    """Train a model, on all replicas of the job together.

    Args:
        build_model: Makes the model (Keras, or a `tf.Module` with `trainable_variables`); called once, in the
            strategy's scope. Called with (features, training=…) or (features).
        train: Examples to learn from.
        epochs: Passes over the examples, in all: after a restart only the rest is done.
        loss: Name of a Keras loss, a Keras loss object, or a function from (labels, predictions) to one loss per
            example; the mean over the examples of a step is minimised, plus the model's own regularisation.
        optimizer: Name, Keras optimizer, or a function that makes one.
        metrics: By name: name of a Keras metric function (like `sparse_categorical_accuracy`) or a function as `loss`;
            each is the mean over the examples of an epoch.
        validation: Examples to measure on after each epoch.
        checkpoint: Save after each epoch to `MLGITOPS_CHECKPOINT_URI`, where it is set, and go on from there.
        seed: Seeds Python, numpy and TensorFlow before the model is made.

    Returns:
        The model and one entry of history per epoch, earlier runs' included.

    Raises:
        InvalidInput: Fewer than one epoch, an unknown loss or metric, or checkpoints that are not on a shared volume.
        NonFiniteLoss: The loss became NaN or infinite. Every worker raises it at the same step.
    """
    if epochs < 1:
        raise InvalidInput(f"epochs is {epochs}; it must be at least 1")
    own, group = task(), strategy()
    loop = _prepare(group, own, build_model, train, optimizer=optimizer, loss=loss, metrics=metrics or {}, seed=seed)
    folder = checkpoint_path() if checkpoint else None
    saved = Checkpoints(folder, model=loop.model, optimizer=loop.optimizer, own=own) if folder else None
    history = saved.restore(group) if saved else []
    for epoch in range(len(history), epochs):
        started = time.monotonic()
        values = _run_epoch(loop, "train", train, epoch)
        if validation is not None:
            measured = _run_epoch(loop, "validate", validation, epoch)
            values |= {f"val_{name}": value for name, value in measured.items()}
        entry = {"epoch": epoch + 1, **values, "seconds": round(time.monotonic() - started, 3)}
        history.append(entry)
        if saved:
            saved.save(history)
        if own.chief:
            sys.stdout.write(to_json({"mlgitops": entry}).decode() + "\n")
            sys.stdout.flush()
    return Trained(model=loop.model, history=tuple(history))


def _prepare(
    group: Any,
    own: Task,
    build_model: Callable[[], Any],
    train: Input,
    *,
    optimizer: Any,
    loss: str | PerExample,
    metrics: Mapping[str, str | PerExample],
    seed: int,
) -> _Loop:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    with group.scope():
        model = build_model()
        made = _optimizer(optimizer)
        example = next(iter(train.source(Share(epoch=0, index=0, workers=1)).take(1)))[0]
        zeros = tf.nest.map_structure(lambda one: tf.zeros_like(one)[tf.newaxis], example)
        call(model, zeros, training=False)  # gives a model without declared input its variables
        made.build(list(model.trainable_variables))
    return _Loop(
        group=group,
        own=own,
        model=model,
        optimizer=made,
        loss=_per_example(loss, "loss"),
        metrics={name: _per_example(one, f"metric {name}") for name, one in metrics.items()},
    )


def _optimizer(given: Any) -> Any:
    import keras

    if isinstance(given, keras.optimizers.Optimizer):
        # An optimizer made outside the scope has variables of one device; a new one of the same kind has not.
        return type(given).from_config(given.get_config())
    if callable(given):
        return given()
    try:
        return keras.optimizers.get(given)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{given!r:.80} is no Keras optimizer") from error


def _per_example(given: Any, what: str) -> PerExample:
    """Return the function that gives one number per example, whatever reduction the object itself would do."""
    import keras

    if isinstance(given, keras.losses.Loss):
        called: PerExample = given.call
        return called
    if isinstance(given, str):
        return _named(given, what)
    return _callable(given, what)


def _named(name: str, what: str) -> PerExample:
    import inspect

    import keras

    for module in (keras.metrics, keras.losses):
        found = getattr(module, name, None)
        if inspect.isfunction(found):
            return _callable(found, what)
    try:
        return _per_example(keras.losses.get(name), what)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{what}: Keras has no function named {name!r:.80}") from error


def _callable(given: Any, what: str) -> PerExample:
    if not callable(given):
        raise InvalidInput(f"{what}: {given!r:.80} is no function from (labels, predictions) to one number per example")
    function: PerExample = given
    return function


def call(model: Any, features: Any, *, training: bool) -> Any:
    """Call a model, telling it whether it trains when it wants to know."""
    import keras

    if isinstance(model, keras.Layer):
        return model(features, training=training)
    return model(features)


def _run_epoch(loop: _Loop, kind: str, given: Input, epoch: int) -> dict[str, float]:
    """Take all steps of the next epoch; return the means over its examples."""
    if kind not in loop.steps:
        loop.steps[kind] = _compile(loop, training=kind == "train")
        loop.batches[kind] = _batches(loop.group, given, epoch)
    step, batches, sums = loop.steps[kind], loop.batches[kind], None
    workers = loop.own.workers if loop.own.distributed else 1
    total = given.steps(workers, loop.group.num_replicas_in_sync)
    for number in range(1, total + 1):
        added = step(batches)
        sums = added if sums is None else sums + added
        if number % STEPS_BETWEEN_CHECKS == 0 or number == total:
            _check_finite(sums.numpy(), epoch, number)
    assert sums is not None
    weight, *rest = (float(value) for value in sums.numpy())
    return {name: float(f"{value / weight:.6g}") for name, value in zip(("loss", *loop.metrics), rest, strict=True)}


def _batches(group: Any, given: Input, first: int) -> Any:
    """Return an iterator over this worker's batches of all epochs from `first` on."""

    def share(context: Any) -> Any:
        return given.epochs(first, context.input_pipeline_id, context.num_input_pipelines, group.num_replicas_in_sync)

    return iter(group.distribute_datasets_from_function(share))


def _check_finite(sums: Sequence[float], epoch: int, step: int) -> None:
    loss = float(sums[1])
    if not math.isfinite(loss):
        raise NonFiniteLoss(epoch=epoch + 1, step=step, loss=loss)


def _compile(loop: _Loop, *, training: bool) -> Callable[[Any], Any]:
    """Return a step: it takes the next batch on each replica and returns sums over the examples of all.

    The sums are float64: weight, loss × weight, then each metric × weight.
    """
    import tensorflow as tf

    def replica(features: Any, labels: Any, weights: Any) -> Any:
        count = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(weights))
        if training:
            predictions, losses = _learn(loop, features, labels, weights / count)
        else:
            predictions = call(loop.model, features, training=False)
            losses = _flat(loop.loss(labels, predictions))
        measured = [losses, *(_flat(metric(labels, predictions)) for metric in loop.metrics.values())]
        sums = [tf.reduce_sum(weights), *(tf.reduce_sum(_counted(one, weights)) for one in measured)]
        return tf.stack([tf.cast(one, tf.float64) for one in sums])

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(batches: Any) -> Any:
        return loop.group.reduce("SUM", loop.group.run(replica, args=next(batches)), axis=None)

    compiled: Callable[[Any], Any] = step
    return compiled


def _learn(loop: _Loop, features: Any, labels: Any, shares: Any) -> tuple[Any, Any]:
    """Take one gradient step; `shares` are the examples' parts of the mean, which sum to 1 over all replicas."""
    import tensorflow as tf

    variables = list(loop.model.trainable_variables)
    with tf.GradientTape() as tape:
        tape.watch([getattr(one, "value", one) if not isinstance(one, tf.Variable) else one for one in variables])
        predictions = call(loop.model, features, training=True)
        losses = _flat(loop.loss(labels, predictions))
        value = tf.reduce_sum(_counted(losses, shares))
        if own := getattr(loop.model, "losses", None):
            value += tf.add_n([tf.cast(one, value.dtype) for one in own]) / loop.group.num_replicas_in_sync
    sources = [one if isinstance(one, tf.Variable) else one.value for one in variables]
    gradients = tape.gradient(value, sources)
    loop.optimizer.apply_gradients(zip(gradients, variables, strict=True))  # sums over replicas
    return predictions, losses


def _counted(values: Any, weights: Any) -> Any:
    """Multiply by the weights; what fills up the last batch counts nothing even where it is not a number."""
    import tensorflow as tf

    return tf.where(weights > 0, values * weights, tf.zeros_like(values))


def _flat(values: Any) -> Any:
    """Return one float32 number per example: the mean over what further axes there are."""
    import tensorflow as tf

    values = tf.cast(values, tf.float32)
    if values.shape.rank == 0:
        raise InvalidInput("a loss or metric gave one number for the whole batch; it must give one per example")
    return values if values.shape.rank == 1 else tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))


def parse_line(line: str) -> Mapping[str, float] | None:
    """Return the epoch that a line of a training log tells of; None for any other line."""
    if not line.startswith('{"mlgitops":'):
        return None
    try:
        entry = json.loads(line)["mlgitops"]
    except (ValueError, KeyError):
        return None
    return entry if isinstance(entry, dict) and "epoch" in entry else None
