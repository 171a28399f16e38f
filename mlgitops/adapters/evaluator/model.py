"""A loaded SavedModel: its signature, its answers to the evaluation set, and how fast it gives them."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.evaluator.artifact import Refused
from mlgitops.adapters.tensorflow import import_tensorflow

LATENCY_CALLS: Final = 50
WARM_UP_CALLS: Final = 5


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output of a signature."""

    dtype: str
    shape: tuple[int | None, ...] | None
    """None for a size that is open; None as a whole for an open rank."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {"dtype": self.dtype, "shape": None if self.shape is None else list(self.shape)}

    def accepts(self, other: "Tensor") -> bool:
        """Whether everything that fits `other` fits this one."""
        if self.dtype != other.dtype:
            return False
        if self.shape is None:
            return True
        if other.shape is None or len(self.shape) != len(other.shape):
            return False
        return all(own is None or own == size for own, size in zip(self.shape, other.shape, strict=True))


Tensors = Mapping[str, Tensor]


class Model:
    """A SavedModel and the signature that serves."""

    def __init__(self, directory: Path, signature: str, output: str | None) -> None:
        """Load it. It must have been inspected before: loading runs operations of the model.

        Raises:
            Refused: It cannot be loaded, has no such signature, or several outputs and none is named.
        """
        tf = import_tensorflow()

        self._tf = tf
        try:
            self._loaded = tf.saved_model.load(str(directory))
            signatures = dict(self._loaded.signatures)
        except Exception as error:
            # TensorFlow raises from several trees, and bytes are to blame for all of it.
            raise Refused(f"the SavedModel cannot be loaded: {_first_line(error)}") from error
        if signature not in signatures:
            raise Refused(f"the SavedModel has no signature {signature!r}; it has: {', '.join(signatures) or 'none'}")
        self.signature = signature
        self._call = signatures[signature]
        self.inputs = _tensors(self._call.structured_input_signature[1])
        self.outputs = _tensors(self._call.structured_outputs)
        self.output = self._choose(output)

    def _choose(self, output: str | None) -> str:
        if output is None and len(self.outputs) == 1:
            return next(iter(self.outputs))
        if output is None or output not in self.outputs:
            named = "" if output is None else f"{output!r} is none of them; "
            raise Refused(
                f"the signature has the outputs {', '.join(sorted(self.outputs))}; {named}name one in evaluation.output"
            )
        return output

    def input_name(self, inputs: NDArray[Any]) -> str:
        """Return the name of the one input; `Refused` unless there is one that fits the examples."""
        if len(self.inputs) != 1:
            raise Refused(f"the signature takes {len(self.inputs)} inputs ({', '.join(self.inputs)}); one is supported")
        name, tensor = next(iter(self.inputs.items()))
        if tensor.shape is not None and not Tensor(dtype=tensor.dtype, shape=(None, *tensor.shape[1:])).accepts(
            Tensor(dtype=tensor.dtype, shape=(None, *inputs.shape[1:]))
        ):
            raise Refused(
                f"the signature takes {name} of shape {list(tensor.shape)}; "
                f"the evaluation set's examples have {list(inputs.shape[1:])}"
            )
        return name

    def answer(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Run the signature on one batch.

        Raises:
            Refused: It fails, or does not give one answer per example.
        """
        name = self.input_name(inputs)
        try:
            tensor = self._tf.constant(inputs, dtype=self._tf.dtypes.as_dtype(self.inputs[name].dtype))
            found = np.asarray(self._call(**{name: tensor})[self.output].numpy())
        except Exception as error:
            # As above: TensorFlow's errors, and numpy's where types cannot be converted.
            raise Refused(f"the signature fails on the evaluation set: {_first_line(error)}") from error
        if found.ndim == 0 or len(found) != len(inputs):
            raise Refused(f"{len(inputs)} examples got an answer of shape {list(found.shape)}")
        return found

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[Any]:
        """Return the answers to all examples, in batches; `Refused` when some are NaN or infinite."""
        parts = [self.answer(inputs[start : start + batch_size]) for start in range(0, len(inputs), batch_size)]
        answers = np.concatenate(parts)
        if answers.dtype.kind == "f" and (
            flawed := int((~np.isfinite(answers.reshape(len(answers), -1))).any(1).sum())
        ):
            raise Refused(f"{flawed} of {len(answers)} answers are NaN or infinite")
        return answers

    def latency_milliseconds(self, inputs: NDArray[Any]) -> dict[str, float]:
        """Return median and 95th percentile of calls with a single example, and how many were timed."""
        times = []
        for number in range(WARM_UP_CALLS + LATENCY_CALLS):
            one = inputs[number % len(inputs)][np.newaxis]
            started = time.perf_counter()
            self.answer(one)
            times.append(1000 * (time.perf_counter() - started))
        counted = times[WARM_UP_CALLS:]
        median, high = np.quantile(counted, (0.5, 0.95))
        return {"median": round(float(median), 4), "p95": round(float(high), 4), "calls": len(counted)}

    def to_mapping(self) -> dict[str, Any]:
        """Return the signature as the report says it."""
        return {
            "name": self.signature,
            "inputs": {name: tensor.to_mapping() for name, tensor in sorted(self.inputs.items())},
            "outputs": {name: tensor.to_mapping() for name, tensor in sorted(self.outputs.items())},
            "output": self.output,
        }


def predictions_digest(answers: NDArray[Any]) -> str:
    """Return a digest over type, shape and bytes of the answers: equal digests, equal predictions."""
    head = f"{answers.dtype.str} {list(answers.shape)}\n".encode()
    return "sha256:" + hashlib.sha256(head + np.ascontiguousarray(answers).tobytes()).hexdigest()


def incompatibilities(candidate: Tensors, champion: Tensors) -> list[str]:
    """Say what requests to the champion the candidate would not accept; nothing when it accepts all."""
    problems = [
        f"input {name} of the champion ({_told(tensor)}) is not accepted: "
        + (f"the candidate takes {_told(candidate[name])}" if name in candidate else "the candidate has no such input")
        for name, tensor in champion.items()
        if name not in candidate or not candidate[name].accepts(tensor)
    ]
    added = sorted(set(candidate) - set(champion))
    return problems + [f"input {name} is new: requests that serve the champion do not have it" for name in added]


def _told(tensor: Tensor) -> str:
    return f"{tensor.dtype} {'any shape' if tensor.shape is None else list(tensor.shape)}"


def _tensors(specifications: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: Tensor(dtype=one.dtype.name, shape=None if one.shape.rank is None else tuple(one.shape.as_list()))
        for name, one in specifications.items()
    }


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
