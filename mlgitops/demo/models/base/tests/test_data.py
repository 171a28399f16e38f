"""What must hold before anything is built: the data is what the training expects."""

import unittest
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "data"


class DataTest(unittest.TestCase):
    """The training and the evaluation set."""

    def test_shapes_and_values(self) -> None:
        """Every image has 64 pixels from 0 to 16, and a label from 0 to 9."""
        for name in ("train", "evaluation"):
            with self.subTest(name), np.load(DATA / f"{name}.npz") as data:
                x, y = data["x"], data["y"]
                assert x.shape == (len(y), 64)
                assert x.dtype == np.float32
                assert np.all((x >= 0) & (x <= 16))
                assert set(np.unique(y).tolist()) == set(range(10))

    def test_no_image_in_both(self) -> None:
        """No image is trained on and evaluated with."""
        with np.load(DATA / "train.npz") as train, np.load(DATA / "evaluation.npz") as evaluation:
            seen = {image.tobytes() for image in train["x"]}
            assert not [image for image in evaluation["x"] if image.tobytes() in seen]


if __name__ == "__main__":
    unittest.main()
