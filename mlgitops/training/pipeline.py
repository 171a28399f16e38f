"""Input pipelines: the same examples in the same order for the same seed, shared out among workers.

Every worker takes the same number of steps, or training in step would wait for ever. Where examples do not divide, the
last batch is filled up with examples that count nothing (weight 0), so that an epoch sees each example exactly once.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import InvalidInput, NotFound

_LENGTH_BYTES: Final = 8
_CHECKSUM_BYTES: Final = 4
_RECORD_PATTERNS: Final = ("*.tfrecord", "*.tfrecords", "*.tfrecord-*", "*.tfrecord.gz")
MANY_EPOCHS: Final = 1 << 40
Shape = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Share:
    """One worker's part of one epoch."""

    epoch: Any
    """Counted from 0, an int or an int64 tensor; a shuffled input has another order in each."""
    index: int
    """Which worker."""
    workers: int
    """How many share the examples."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """Examples for training or validation; made by `arrays` and `tfrecords`."""

    examples: int
    """Examples of one epoch, over all workers."""
    batch_size: int
    """Examples of one step, over all replicas."""
    source: Callable[[Share], Any]
    """Gives a `tf.data.Dataset` of single (features, label) pairs: this worker's share, never empty, in order."""

    def per_replica(self, replicas: int) -> int:
        """Return the examples of one step on one replica."""
        return -(-self.batch_size // replicas)

    def steps(self, workers: int, replicas: int) -> int:
        """Return the steps of one epoch, equal on all workers.

        Args:
            workers: Processes that share the examples.
            replicas: Devices over all workers.
        """
        share = -(-self.examples // workers)
        return -(-share // (self.per_replica(replicas) * (replicas // workers)))

    def dataset(self, share: Share, replicas: int) -> Any:
        """Return one worker's `tf.data.Dataset` of batches (features, labels, weights) for one epoch.

        Each batch has `per_replica(replicas)` examples; `weights` is float32 of that length, 1 for examples that count
        and 0 for those that fill up.
        """
        import tensorflow as tf

        size = self.per_replica(replicas)
        total = self.steps(share.workers, replicas) * (replicas // share.workers) * size
        own = len(range(share.index, self.examples, share.workers))

        def weigh(number: Any, pair: Any) -> Any:
            return (*pair, tf.cast(number < own, tf.float32))

        dataset = self.source(share).repeat().enumerate().map(weigh, num_parallel_calls=1).take(total)
        return dataset.batch(size, drop_remainder=True)

    def epochs(self, first: int, index: int, workers: int, replicas: int) -> Any:
        """Return one worker's batches of all epochs from `first` on, one after the other, without an end.

        One iterator for the whole training: making one takes longer than an epoch of a small data set.
        """
        import tensorflow as tf

        def one(epoch: Any) -> Any:
            return self.dataset(Share(epoch=epoch, index=index, workers=workers), replicas)

        return tf.data.Dataset.range(first, MANY_EPOCHS).flat_map(one).prefetch(2)


def arrays(x: Any, y: Any, *, batch_size: int = 64, seed: int = 0, shuffle: bool = True) -> Input:
    """Make an input of arrays that fit into memory.

    Args:
        x: Features, shape [examples, …], or a mapping from name to such arrays.
        y: Labels, shape [examples, …].
        batch_size: Examples of one step, over all replicas.
        seed: Decides the order; the same on every worker.
        shuffle: Give each epoch an order of its own; else the order of the arrays.

    Raises:
        InvalidInput: No examples, arrays of different lengths, or a batch size below 1.
    """
    import numpy as np

    features = {name: np.asarray(one) for name, one in x.items()} if isinstance(x, Mapping) else np.asarray(x)
    labels = np.asarray(y)
    lengths = {len(one) for one in (features.values() if isinstance(features, dict) else (features,))} | {len(labels)}
    _check(min(lengths), batch_size)
    if len(lengths) > 1:
        raise InvalidInput(f"features and labels have different numbers of examples: {sorted(lengths)}")
    examples = lengths.pop()
    held: list[Any] = []  # the arrays as tensors, made when the strategy stands

    def source(share: Share) -> Any:
        import tensorflow as tf

        order = tf.range(examples)
        if shuffle:
            keys = tf.random.stateless_uniform([examples], [tf.cast(seed, tf.int64), tf.cast(share.epoch, tf.int64)])
            order = tf.argsort(keys, stable=True)
        own = order[share.index :: share.workers] if share.index < examples else order[:1]
        if not held:
            with tf.init_scope():
                held.append(tf.nest.map_structure(tf.constant, (features, labels)))
        indices = tf.data.Dataset.from_tensor_slices(own)
        return indices.map(lambda index: tf.nest.map_structure(lambda one: tf.gather(one, index), held[0]))

    return Input(examples=examples, batch_size=batch_size, source=source)


def tfrecords(
    paths: str | Path | Sequence[str | Path],
    features: Mapping[str, tuple[Shape, str]],
    *,
    label: str,
    decode: Callable[[Mapping[str, Any]], tuple[Any, Any]] | None = None,
    batch_size: int = 64,
    seed: int = 0,
    shuffle: bool = True,
    shuffle_buffer: int = 10_000,
    compression: str = "",
) -> Input:
    """Make an input of TFRecord files with serialized `tf.train.Example`s.

    Args:
        paths: A file, a folder of `*.tfrecord` files, or several files; read in sorted order.
        features: By name: shape and type (`float32`, `int64` or `string`), as in `tf.io.FixedLenFeature`.
        label: Name of the feature that is the label.
        decode: Turns the parsed features into (features, label); by default the label is taken out, and a single
            feature that remains stands for itself.
        batch_size: Examples of one step, over all replicas.
        seed: Decides the order; the same on every worker.
        shuffle: Shuffle each worker's share, differently in each epoch.
        shuffle_buffer: Examples held in memory for shuffling.
        compression: "" or "GZIP".

    Raises:
        InvalidInput: No records, a file that is cut off, an unknown label, or a batch size below 1.
        NotFound: A file is not there.
    """
    files = _record_files(paths)
    if label not in features and decode is None:
        raise InvalidInput(f"the label {label!r} is none of the features {sorted(features)}")
    examples = _count(files, compression)
    _check(examples, batch_size)

    def source(share: Share) -> Any:
        import tensorflow as tf

        form = {name: tf.io.FixedLenFeature(list(shape), kind) for name, (shape, kind) in features.items()}
        records = tf.data.TFRecordDataset([str(file) for file in files], compression_type=compression)
        own = records.shard(share.workers, share.index) if share.index < examples else records.take(1)
        if shuffle:
            own = own.shuffle(shuffle_buffer, seed=seed + share.epoch, reshuffle_each_iteration=False)
        take_apart = decode or (lambda parsed: _take_apart(parsed, label))
        return own.map(lambda record: take_apart(tf.io.parse_single_example(record, form)), num_parallel_calls=1)

    return Input(examples=examples, batch_size=batch_size, source=source)


def _take_apart(parsed: Mapping[str, Any], label: str) -> tuple[Any, Any]:
    rest = {name: value for name, value in parsed.items() if name != label}
    return (next(iter(rest.values())) if len(rest) == 1 else rest), parsed[label]


def _check(examples: int, batch_size: int) -> None:
    if examples < 1:
        raise InvalidInput("there are no examples to train on")
    if batch_size < 1:
        raise InvalidInput(f"the batch size is {batch_size}; it must be at least 1")


def _record_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    files: set[Path] = set()
    for path in given:
        if not path.exists():
            raise NotFound("TFRecord file", str(path))
        found = [file for pattern in _RECORD_PATTERNS for file in path.glob(pattern)] if path.is_dir() else [path]
        files.update(found)
    return sorted(files)


def _count(files: Sequence[Path], compression: str) -> int:
    """Count records by the framing of the format: length (8 bytes), checksum (4), data, checksum (4)."""
    if compression:
        import tensorflow as tf

        counted = tf.data.TFRecordDataset([str(file) for file in files], compression_type=compression)
        try:
            return int(counted.reduce(0, lambda count, _: count + 1).numpy())
        except tf.errors.DataLossError as error:
            raise InvalidInput(f"a TFRecord file is damaged: {error.message}") from error
    return sum(_count_plain(file) for file in files)


def _count_plain(file: Path) -> int:
    size, position, count = file.stat().st_size, 0, 0
    with file.open("rb") as stream:
        while position < size:
            stream.seek(position)
            header = stream.read(_LENGTH_BYTES)
            length = struct.unpack("<Q", header)[0] if len(header) == _LENGTH_BYTES else size
            position += _LENGTH_BYTES + _CHECKSUM_BYTES + length + _CHECKSUM_BYTES
            count += 1
    if position != size:
        raise InvalidInput(f"record {count} of {file} is cut off, or it is no TFRecord file")
    return count
