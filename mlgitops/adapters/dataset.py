"""The evaluation set: arrays of an `.npz` file."""

import lzma
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgitops.adapters.files import file_digest
from mlgitops.core.errors import InvalidInput
from mlgitops.core.names import Digest

Arrays = Mapping[str, NDArray[Any]]
_NO_ARRAYS: Final = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
    *(SyntaxError, RecursionError, NotImplementedError, RuntimeError),
)
"""What zipfile, its decompressors and numpy's reader of headers raise on bytes that somebody damaged."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """What both models are evaluated on."""

    file: Path
    digest: Digest
    """Of the file's bytes."""
    inputs: NDArray[Any]
    """Shape [examples, …]."""
    labels: NDArray[Any]
    """Shape [examples, …]."""
    slices: Mapping[str, NDArray[Any]]
    """By name: a mask of shape [examples]."""


def read_set(path: Path, specification: Mapping[str, Any]) -> EvaluationSet:
    """Read the evaluation set that a specification describes.

    Args:
        path: An `.npz` file, or a folder with exactly one.
        specification: `inputs`, `labels` and the slices' `key` name arrays of it.

    Raises:
        InvalidInput: No such file or array, arrays of different lengths, objects in it, or no examples.
    """
    file = _file(path)
    names = (specification.get("inputs", "x"), specification.get("labels", "y"))
    slices: Sequence[Mapping[str, Any]] = specification.get("slices") or ()
    arrays = _read(file, {*names, *(one["key"] for one in slices)})
    inputs, labels = arrays[names[0]], arrays[names[1]]
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not len(labels):
        told = ", ".join(f"{name} {count}" for name, count in sorted(lengths.items()))
        raise InvalidInput(f"the evaluation set's arrays must have equally many examples, at least one: {told}")
    masks = {str(one["name"]): _mask(arrays[one["key"]], one) for one in slices}
    if flawed := [name for name, mask in masks.items() if mask.ndim != 1]:
        raise InvalidInput(f"the keys of slices must have one value per example: {', '.join(flawed)}")
    return EvaluationSet(file=file, digest=file_digest(file), inputs=inputs, labels=labels, slices=masks)


def _mask(keys: NDArray[Any], one: Mapping[str, Any]) -> NDArray[Any]:
    try:
        return np.isin(keys, one["values"])
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the key {one['key']!r:.60} of a slice cannot be compared with its values") from error


def _file(path: Path) -> Path:
    files = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        raise InvalidInput(f"the evaluation set must be one .npz file; {len(files)} found")
    return files[0].resolve()


def _read(file: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            missing = names - set(archive.files)
            if missing:
                raise InvalidInput(
                    f"the evaluation set has no array named {', '.join(sorted(missing))}; "
                    f"it has: {', '.join(sorted(archive.files)) or 'none'}"
                )
            return {name: archive[name] for name in sorted(names)}
    except MemoryError as error:
        raise InvalidInput("the evaluation set's arrays are larger than the memory of an evaluation") from error
    except _NO_ARRAYS as error:
        raise InvalidInput(f"the evaluation set is no .npz file of plain arrays: {error!s:.300}") from error
