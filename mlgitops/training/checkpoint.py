"""Checkpoints after each epoch, and going on from the last one after a restart."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import InvalidInput
from mlgitops.training.files import to_json, write_whole
from mlgitops.training.task import Task

HISTORY_FILE: Final = "history.json"
KEEP: Final = 2


class Checkpoints:
    """The checkpoints of one training in one folder that all replicas share.

    The chief alone writes there. TensorFlow needs the others to save as well, since reading some variables is a
    collective operation: they do, into a folder that is thrown away.
    """

    def __init__(self, folder: Path, *, model: Any, optimizer: Any, own: Task) -> None:
        import tensorflow as tf

        self._folder, self._own = folder, own
        self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._scratch = None if own.chief else Path(tempfile.mkdtemp(prefix="mlgitops-checkpoint-"))
        self._checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=self._epoch)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, str(self._scratch or folder), max_to_keep=KEEP, checkpoint_name="epoch"
        )

    def restore(self, group: Any) -> list[dict[str, float]]:
        """Load the last checkpoint, if there is one; return the history up to it.

        Raises:
            InvalidInput: The replicas see different checkpoints: their folder is not one shared volume.
        """
        import tensorflow as tf

        latest = tf.train.latest_checkpoint(str(self._folder))
        if latest:
            self._checkpoint.restore(latest).expect_partial()
        epoch = int(self._epoch.numpy())
        if self._own.distributed:
            self._check_same(group, epoch)
        history = self._read_history()
        if len(history) < epoch:
            raise InvalidInput(
                f"{self._folder / HISTORY_FILE} tells of {len(history)} epochs, its checkpoint of {epoch}"
            )
        return history[:epoch]

    def _check_same(self, group: Any, epoch: int) -> None:
        import tensorflow as tf

        @tf.function  # type: ignore[untyped-decorator]
        def spread(value: Any) -> Any:
            own = tf.stack([value, value * value, tf.ones_like(value)])
            return group.reduce("SUM", group.run(lambda: own), axis=None)

        total, squares, count = (float(one) for one in spread(tf.constant(epoch, tf.float64)).numpy())
        if count * squares != total * total:
            raise InvalidInput(f"replicas see different checkpoints (here epoch {epoch}): put them on a shared volume")

    def save(self, history: Sequence[Mapping[str, float]]) -> None:
        """Save the state after the last epoch of `history`; older checkpoints but one are removed."""
        self._epoch.assign(len(history))
        if self._own.chief:
            # First the history: a crash in between leaves an entry too many, which `restore` cuts off.
            write_whole(self._folder / HISTORY_FILE, to_json(list(history)))
        self._manager.save(checkpoint_number=len(history))
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()

    def _read_history(self) -> list[dict[str, float]]:
        try:
            history = json.loads((self._folder / HISTORY_FILE).read_bytes())
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise InvalidInput(f"{self._folder / HISTORY_FILE} is no history: {error}") from error
        return list(history)
