"""A TensorFlow SavedModel as a predictor. TensorFlow is imported when a model is loaded, not before."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgitops.adapters.operations import scan
from mlgitops.adapters.serving.protocol import Array, Arrays, ModelError, TensorSpec
from mlgitops.adapters.tensorflow import import_tensorflow
from mlgitops.core.errors import InvalidInput

SIGNATURE: Final = "serving_default"
_DATATYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}


def version_directory(artifact: Path, version: int | None = None) -> Path:
    """Return the version directory that is served: `version`, or the highest integer that holds a SavedModel.

    Raises:
        InvalidInput: There is none. TensorFlow Serving would wait for ever ("No versions of servable found").
    """
    names = [str(version)] if version is not None else [one.name for one in artifact.iterdir() if _is_integer(one.name)]
    for name in sorted(names, key=int, reverse=True):
        if (artifact / name / "saved_model.pb").is_file():
            return artifact / name
    raise InvalidInput(
        f"{artifact} holds no SavedModel that can be served: it must be at <integer>/saved_model.pb"
        + (f", and version {version} was asked for" if version is not None else "")
    )


class SavedModelPredictor:
    """The `serving_default` signature of a SavedModel, on one thread: more would fight over the machine's cores."""

    def __init__(self, directory: Path) -> None:
        """Load the model. Loading may run operations of the model: it must have been scanned and its digest checked.

        Raises:
            InvalidInput: It has no such signature, or a tensor that the protocols cannot carry.
        """
        tf = prepare()
        self._constant = tf.constant
        self._model = tf.saved_model.load(str(directory))
        if SIGNATURE not in self._model.signatures:
            known = ", ".join(sorted(self._model.signatures)) or "none"
            raise InvalidInput(f"the SavedModel has no signature {SIGNATURE}; it has: {known}")
        self._function = self._model.signatures[SIGNATURE]
        self._types = {name: spec.dtype for name, spec in self._function.structured_input_signature[1].items()}
        self.inputs = _specs(self._function.structured_input_signature[1])
        self.outputs = _specs(self._function.structured_outputs)

    def predict(self, arrays: Arrays) -> Arrays:
        """Run the signature."""
        tensors = {name: self._constant(array, self._types[name]) for name, array in arrays.items()}
        try:
            found: Mapping[str, Any] = self._function(**tensors)
            return {name: _numpy(found[name]) for name in (spec.name for spec in self.outputs)}
        except Exception as error:
            # TensorFlow raises a tree of its own, and anything from Python functions in the graph.
            raise ModelError(str(error).partition("\n")[0][:300]) from error


def prepare() -> Any:
    """Import TensorFlow, which takes longer than loading a model, and keep it to one thread."""
    tf = import_tensorflow()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def _numpy(tensor: Any) -> Array:
    array = tensor.numpy()
    return array if isinstance(array, np.ndarray) else np.asarray(array)


def _specs(tensors: Mapping[str, Any]) -> Sequence[TensorSpec]:
    return tuple(
        TensorSpec(name=name, datatype=_datatype(name, tensor.dtype.name), shape=_shape(tensor.shape))
        for name, tensor in sorted(tensors.items())
    )


def _datatype(name: str, dtype: str) -> str:
    if dtype not in _DATATYPES:
        raise InvalidInput(f"tensor {name} is of type {dtype}, which the prediction protocols cannot carry")
    return _DATATYPES[dtype]


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit()


def load(artifact: Path, version: int | None) -> tuple[SavedModelPredictor, str]:
    """Load the served version of an artifact; the default loader of the model server.

    Its operations are read first, here too: a manifest that a person wrote may name a model that nobody evaluated.

    Raises:
        InvalidInput: It cannot be served, or has operations that a model may not have.
    """
    directory = version_directory(artifact, version)
    refusal = scan(directory).refusal
    if refusal:
        raise InvalidInput(refusal)
    return SavedModelPredictor(directory), directory.name
