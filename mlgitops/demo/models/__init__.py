"""The demo's model repository: handwritten digits, and the pushes that lead it through everything that can happen.

The sources below this folder are copied, never imported: `base` is the first push, every other folder holds the files
that a later push changes.
"""

import importlib.metadata
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mlgitops.core.errors import NotFound, Unavailable

SEED: Final = 2026
EVALUATION_IMAGES: Final = 400
TRAFFIC_IMAGES: Final = 400
TRAINING_IMAGES: Final = 500
"""Images of the first training set; push 6 adds all that remain."""
LOCKED: Final = ("keras", "numpy", "tensorflow", "tensorflow-cpu")
"""Distributions that the lock names where they are installed."""
_SOURCES: Final = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Push:
    """One push to the model repository."""

    message: str
    """Message of its commit."""
    folder: str | None = None
    """Folder below this one with the files that it changes; None for none."""
    images: int | None = None
    """Size of the training set it writes; None leaves that as it is, -1 means all there are."""


PUSHES: Final[Mapping[int, Push]] = MappingProxyType(
    {
        1: Push(
            message="feat: read handwritten digits\n\nA small network, to have a first release.",
            folder="base",
            images=TRAINING_IMAGES,
        ),
        2: Push(
            message="feat: widen the hidden layer and train for longer\n\nSixteen units could not tell 8 from 9.",
            folder="better",
        ),
        3: Push(
            message="feat: keep the weights small\n\nWeight decay against overfitting.",
            folder="worse",
        ),
        4: Push(
            message="feat: standardise pixels instead of scaling them\n\nFaint and strong pens should look alike.",
            folder="skewed",
        ),
        6: Push(message="data: train on every image we have", images=-1),
    }
)
"""By number; push 5 is a `git revert` of push 4, which needs no files."""


def write_model_repository(directory: Path, variant: int) -> str:
    """Write what one push changes into a working tree, which `git commit` then takes up.

    Args:
        directory: The model repository's working tree; made when it is not there.
        variant: Number of the push: 1, 2, 3, 4 or 6.

    Returns:
        The commit's message.

    Raises:
        NotFound: There is no such push.
        Unavailable: scikit-learn, which has the images, is not installed.
    """
    push = PUSHES.get(variant)
    if push is None:
        raise NotFound("push of the demo", str(variant), [str(number) for number in PUSHES])
    directory.mkdir(parents=True, exist_ok=True)
    if push.folder:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_SOURCES / push.folder, directory, dirs_exist_ok=True, ignore=ignored)
    if variant == 1:
        (directory / "requirements.txt").write_text(locked_requirements(), encoding="utf-8")
        _write_images(directory / "data" / "evaluation.npz", 0, EVALUATION_IMAGES)
    if push.images:
        first = EVALUATION_IMAGES + TRAFFIC_IMAGES
        _write_images(directory / "data" / "train.npz", first, first + push.images if push.images > 0 else None)
    return push.message


def write_traffic(path: Path) -> None:
    """Write the images that are sent to production, which no training or evaluation saw, as `.npz` like the others."""
    _write_images(path, EVALUATION_IMAGES, EVALUATION_IMAGES + TRAFFIC_IMAGES)


def locked_requirements() -> str:
    """Return a lock of what is installed here of the libraries that training needs.

    Raises:
        Unavailable: TensorFlow is not installed.
    """
    versions: dict[str, str] = {}
    for name in LOCKED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if not versions.keys() & {"tensorflow", "tensorflow-cpu"}:
        raise Unavailable("TensorFlow", "it is not installed; `pip install mlgitops[tensorflow-cpu]` brings it")
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def _write_images(path: Path, first: int, last: int | None) -> None:
    """Write the images `first` to `last` of a fixed order; the same images give the same bytes."""
    import numpy as np

    images, labels = _images()
    order = np.random.default_rng(SEED).permutation(len(labels))[first:last]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, x=images[order].astype(np.float32), y=labels[order].astype(np.int64))


def _images() -> tuple[Any, Any]:
    """Return 1,797 images, shape [1797, 64], values 0 to 16, and their digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise Unavailable("scikit-learn", "it is not installed; `pip install mlgitops[demo]` brings it") from error
    images, labels = load_digits(return_X_y=True)
    return images, labels
