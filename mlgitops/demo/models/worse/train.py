"""Train a small network to read handwritten digits, on as many workers as the job has."""

from typing import Any

import keras
import numpy as np

from mlgitops import training

UNITS = 128
EPOCHS = 15
LEARNING_RATE = 0.01
BATCH_SIZE = 64
DECAY = 0.1


def build_model() -> Any:
    """Return a network from 64 raw pixels (0 to 16) to the probabilities of ten digits."""
    pixels = keras.Input((64,), name="x")
    hidden = keras.layers.Rescaling(1 / 16)(pixels)
    hidden = keras.layers.Dense(UNITS, activation="relu", kernel_regularizer=keras.regularizers.L2(DECAY))(hidden)
    return keras.Model(pixels, keras.layers.Dense(10, activation="softmax")(hidden))


def main() -> None:
    """Train, export and report."""
    with np.load(training.data_path()) as data:
        digits = training.arrays(data["x"], data["y"], batch_size=BATCH_SIZE, seed=1)
    trained = training.fit(
        build_model,
        digits,
        epochs=EPOCHS,
        loss="sparse_categorical_crossentropy",
        optimizer=lambda: keras.optimizers.Adam(LEARNING_RATE),
        metrics={"accuracy": "sparse_categorical_accuracy"},
        seed=1,
    )

    def serve(x: Any) -> dict[str, Any]:
        return {"probabilities": trained.model(x, training=False)}

    artifact = training.export(
        trained.model,
        signature=serve,
        inputs={"x": ([None, 64], "float32")},
        parameters={
            "units": UNITS,
            "epochs": EPOCHS,
            "learningRate": LEARNING_RATE,
            "batchSize": BATCH_SIZE,
            "decay": DECAY,
        },
        history=trained.history,
    )
    training.report(trained.last, history=trained.history, artifact=artifact)


if __name__ == "__main__":
    training.run(main)
