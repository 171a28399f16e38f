"""TensorFlow, imported where a model is loaded and nowhere else."""

import sys
from typing import Any


def import_tensorflow() -> Any:
    """Import TensorFlow without what Keras would bring along for wrappers that loading a SavedModel never needs.

    Keras imports scikit-learn where it is installed, and with it scipy.stats: a quarter of the time that TensorFlow
    takes. A name that is None in `sys.modules` counts as not installed.
    """
    hidden = "sklearn" not in sys.modules
    if hidden:
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        import tensorflow as tf
    finally:
        if hidden:
            del sys.modules["sklearn"]
    return tf
