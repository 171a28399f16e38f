"""The two prediction protocols of KServe as functions over bytes and arrays: V1, and V2 (Open Inference Protocol).

Source:
    https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
    https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.serving.protocol_json import NOT_FINITE, parse_object

Array = NDArray[Any]
Arrays = Mapping[str, Array]

DATATYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object",
}
"""Datatype of the protocol to numpy's name; BYTES are Python bytes in an object array."""


class RequestError(Exception):
    """The request is at fault: told to the client, never counted against the model."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class ModelError(Exception):
    """The model is at fault for a request that its signature allows."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One input or output of a signature."""

    name: str
    """Name in the signature."""
    datatype: str
    """One of `DATATYPES`."""
    shape: tuple[int | None, ...] | None
    """Sizes, batch first; None in it for any size, None alone for any rank."""


class Predictor(Protocol):
    """A loaded model."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What the signature takes."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What the signature gives."""

    def predict(self, arrays: Arrays) -> Arrays:
        """Run the signature on one array per input; any exception is the model's fault."""


@dataclass(frozen=True, kw_only=True)
class InferRequest:
    """A V2 request, checked against the signature."""

    arrays: Arrays
    """One array per input."""
    identity: str | None
    """The client's `id`, given back in the answer."""
    outputs: tuple[str, ...]
    """Names of the outputs asked for, in order; all of them when the client named none."""


def parse_json(body: bytes) -> dict[str, Any]:
    """Return a request's JSON object."""
    try:
        return parse_object(body)
    except ValueError as error:
        raise RequestError(str(error)) from None


def read_v1(body: bytes, inputs: Sequence[TensorSpec], signature: str) -> Arrays:
    """Return the arrays of a V1 request, `{"instances": [row, …]}`; a row is a value, or an object of them by input."""
    value = parse_json(body)
    rows = value.get("instances")
    if not isinstance(rows, list) or not rows:
        raise RequestError('"instances" must be a list of at least one instance')
    if value.get("signature_name", signature) != signature:
        raise RequestError(f"only the signature {signature!r} is served")
    named = isinstance(rows[0], dict) and not _is_base64(rows[0])
    if not named:
        if len(inputs) != 1:
            names = ", ".join(spec.name for spec in inputs)
            raise RequestError(f"the model takes several inputs ({names}): each instance must be an object of them")
        return {inputs[0].name: _array(rows, inputs[0])}
    expected = {spec.name for spec in inputs}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != expected:
            raise RequestError(f"instance {index} must be an object with exactly: {', '.join(sorted(expected))}")
    return {spec.name: _array([row[spec.name] for row in rows], spec) for spec in inputs}


def write_v1(outputs: Arrays) -> bytes:
    """Return a V1 answer, `{"predictions": [row, …]}`; rows are objects when there are several outputs."""
    columns = {name: _column(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        (rows,) = columns.values()
        return _dump({"predictions": rows})
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ModelError(f"the outputs differ in their number of rows: {sorted(lengths)}")
    return _dump({"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]})


def read_v2(body: bytes, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> InferRequest:
    """Return a V2 inference request, checked against the signature."""
    value = parse_json(body)
    tensors = value.get("inputs")
    if not isinstance(tensors, list) or not all(isinstance(one, dict) for one in tensors):
        raise RequestError('"inputs" must be a list of tensors')
    given = {one.get("name"): one for one in tensors}
    expected = {spec.name for spec in inputs}
    if len(given) != len(tensors) or set(given) != expected:
        raise RequestError(f"the inputs must be exactly: {', '.join(sorted(expected))}")
    identity = value.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestError('"id" must be a string')
    return InferRequest(
        arrays={spec.name: _tensor(given[spec.name], spec) for spec in inputs},
        identity=identity,
        outputs=_wanted(value.get("outputs"), [spec.name for spec in outputs]),
    )


def write_v2(request: InferRequest, outputs: Arrays, model: str, version: str) -> bytes:
    """Return a V2 answer."""
    tensors = []
    for name in request.outputs:
        array = outputs[name]
        _check_finite(name, array)
        flat = array.reshape(-1).tolist()
        datatype = datatype_of(array)
        data = [_text(one) for one in flat] if datatype == "BYTES" else flat
        tensors.append({"name": name, "shape": list(array.shape), "datatype": datatype, "data": data})
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": tensors}
    if request.identity is not None:
        answer["id"] = request.identity
    return _dump(answer)


def metadata(spec: TensorSpec) -> dict[str, Any]:
    """Return a tensor as V2 model metadata names it; -1 stands for any size."""
    shape = [-1] if spec.shape is None else [-1 if size is None else size for size in spec.shape]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def datatype_of(array: Array) -> str:
    """Return the protocol's name for an array's type."""
    kind = "object" if array.dtype.kind in "OSU" else array.dtype.name
    for datatype, name in DATATYPES.items():
        if name == kind:
            return datatype
    raise ModelError(f"the model gave {array.dtype.name}, which the protocol cannot carry")


def _wanted(value: Any, known: Sequence[str]) -> tuple[str, ...]:
    if value is None or value == []:
        return tuple(known)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise RequestError('"outputs" must be a list of tensors')
    names = [one.get("name") for one in value]
    for name in names:
        if name not in known:
            raise RequestError(f"there is no output {name!r:.80}; there are: {', '.join(known)}")
    return tuple(str(name) for name in names)


def _tensor(tensor: Mapping[str, Any], spec: TensorSpec) -> Array:
    """Check one V2 tensor: datatype, shape, number of values."""
    shape, data = tensor.get("shape"), tensor.get("data")
    if tensor.get("datatype") != spec.datatype:
        raise RequestError(f"{spec.name}: datatype must be {spec.datatype}, not {tensor.get('datatype')!r:.40}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise RequestError(f"{spec.name}: shape must be a list of sizes")
    if not isinstance(data, list):
        raise RequestError(f"{spec.name}: data must be a list")
    array = _convert(data, spec)
    if array.size != math.prod(shape):
        raise RequestError(f"{spec.name}: {array.size} values do not fill the shape {shape}")
    return _check_shape(array.reshape(shape), spec)


def _array(rows: list[Any], spec: TensorSpec) -> Array:
    return _check_shape(_convert(rows, spec), spec)


def _convert(data: list[Any], spec: TensorSpec) -> Array:
    """Return nested lists as an array of the input's type, exactly: no text as numbers, no fractions as integers."""
    if spec.datatype == "BYTES":
        return _bytes_array(data, spec)
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):
        raise RequestError(f"{spec.name}: the values are not a full array: rows differ in length") from None
    target = np.dtype(DATATYPES[spec.datatype])
    allowed = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}[target.kind]
    if array.dtype.kind not in allowed and array.size:
        raise RequestError(f"{spec.name}: the values must be of type {spec.datatype}")
    if target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise RequestError(f"{spec.name}: a value does not fit into {spec.datatype}")
    with np.errstate(over="ignore"):
        converted: Array = array.astype(target)
    if target.kind == "f" and not np.isfinite(converted).all():
        raise RequestError(f"{spec.name}: a value does not fit into {spec.datatype}")
    return converted


def _check_shape(array: Array, spec: TensorSpec) -> Array:
    if spec.shape is None:
        return array
    fits = array.ndim == len(spec.shape) and all(
        wanted is None or wanted == size for wanted, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        wanted_text = ", ".join("any" if size is None else str(size) for size in spec.shape)
        raise RequestError(f"{spec.name}: shape must be ({wanted_text}), not {tuple(array.shape)}")
    return array


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"b64"}


def _bytes_array(data: list[Any], spec: TensorSpec) -> Array:
    """Return nested lists of text or `{"b64": …}` as an object array of bytes."""

    def leaf(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if _is_base64(value) and isinstance(value["b64"], str):
            try:
                return base64.b64decode(value["b64"], validate=True)
            except binascii.Error:
                raise RequestError(f"{spec.name}: b64 holds no base64") from None
        raise RequestError(f'{spec.name}: the values must be text, or {{"b64": …}}')

    def shape_of(value: Any) -> tuple[int, ...]:
        if not isinstance(value, list):
            return ()
        inner = {shape_of(one) for one in value}
        if len(inner) > 1:
            raise RequestError(f"{spec.name}: the values are not a full array: rows differ in length")
        return (len(value), *(inner.pop() if inner else ()))

    def leaves(value: Any) -> list[bytes]:
        return [one for item in value for one in leaves(item)] if isinstance(value, list) else [leaf(value)]

    shape = shape_of(data)
    array = np.empty(math.prod(shape), dtype=object)
    array[:] = leaves(data)
    return array.reshape(shape)


def _column(name: str, array: Array) -> list[Any]:
    if array.ndim == 0:
        raise ModelError(f"output {name} has no batch dimension")
    _check_finite(name, array)
    values: list[Any] = array.tolist()
    return _texts(values) if array.dtype.kind in "OSU" else values


def _texts(value: Any) -> Any:
    return [_texts(one) for one in value] if isinstance(value, list) else _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _check_finite(name: str, array: Array) -> None:
    """JSON carries no NaN and no infinity, and neither is a prediction."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ModelError(f"output {name} holds {NOT_FINITE}")


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
