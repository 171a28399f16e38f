"""What a training script imports: strategy, input, training loop, export and result, without Kubernetes.

A script that runs alone, on a chief with workers, or under a debugger reads the same:

    from mlgitops import training

    def main() -> None:
        x, y = load(training.data_path())
        trained = training.fit(
            build_model, training.arrays(x, y, batch_size=64), epochs=20, loss="sparse_categorical_crossentropy",
            metrics={"accuracy": "sparse_categorical_accuracy"},
        )
        artifact = training.export(trained.model, history=trained.history)
        training.report(trained.last, history=trained.history, artifact=artifact)

    if __name__ == "__main__":
        training.run(main)

TensorFlow is imported by the first call that needs it. Create no tensor before `strategy()` (or `fit`, which calls
it): TensorFlow refuses to join a group of workers afterwards.
"""

from mlgitops.training.artifact import Artifact, export
from mlgitops.training.locations import checkpoint_path, data_path, output_path, resolve
from mlgitops.training.loop import NonFiniteLoss, Trained, fit
from mlgitops.training.pipeline import Input, arrays, tfrecords
from mlgitops.training.result import report, run
from mlgitops.training.task import Task, is_chief, strategy, task

__all__ = [
    "Artifact",
    "Input",
    "NonFiniteLoss",
    "Task",
    "Trained",
    "arrays",
    "checkpoint_path",
    "data_path",
    "export",
    "fit",
    "is_chief",
    "output_path",
    "report",
    "resolve",
    "run",
    "strategy",
    "task",
    "tfrecords",
]
