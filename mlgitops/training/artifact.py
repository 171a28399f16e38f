"""Export: the SavedModel under an integer version, `metadata.json` beside it, and the digest of both."""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.fields import OUTPUT_URI_VARIABLE
from mlgitops.core.names import Digest
from mlgitops.training.files import plain, to_json, write_whole
from mlgitops.training.locations import data_inputs, output_path
from mlgitops.training.task import barrier, is_chief, task

METADATA_FILE: Final = "metadata.json"
IMAGE_VARIABLE: Final = "MLGITOPS_IMAGE"
REVISION_VARIABLE: Final = "MLGITOPS_SOURCE_REVISION"
SIGNATURE: Final = "serving_default"
_PARTIAL: Final = ".partial-"
_REPLACED: Final = ".replaced-"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An exported model."""

    uri: str
    """Where it is; contains the version directory and `metadata.json`."""
    digest: str
    """Digest over all files under the URI."""
    path: Path
    """The same place as a path of this process."""


def export(
    model: Any,
    *,
    signature: Callable[..., Any] | None = None,
    inputs: Mapping[str, tuple[Sequence[int | None], str]] | None = None,
    parameters: Mapping[str, Any] | None = None,
    history: Sequence[Mapping[str, float]] = (),
    metrics: Mapping[str, float] | None = None,
    version: int = 1,
) -> Artifact | None:
    """Write the model as a SavedModel to `<MLGITOPS_OUTPUT_URI>/<version>/`, in full or not at all.

    Call it on every worker. The chief writes; the others take part, since reading variables may be a collective
    operation, and wait until the chief has finished.

    Args:
        model: A Keras model, or a `tf.Module`.
        signature: What `serving_default` does: a `tf.function` with an input signature, or a function that takes
            tensors by the names in `inputs` and returns a mapping from name to tensor. What is done in it (scaling,
            look-ups, softmax) is served as well. None for the model's own call, or for a module's `serving_default`.
        inputs: By name: shape (None for the batch) and type, for a `signature` without an input signature.
        parameters: What the training was run with; for metadata.
        history: One mapping per epoch; for metadata.
        metrics: Metrics at the end; for metadata. By default the last entry of `history`.
        version: The version directory's number.

    Returns:
        The artifact on the chief; None elsewhere. An export that a run before a restart left is replaced.

    Raises:
        InvalidInput: There is no signature to serve, or `MLGITOPS_OUTPUT_URI` is not set.
    """
    if version < 1:
        raise InvalidInput(f"the version is {version}; a model server needs a whole number of at least 1")
    if not is_chief():
        with tempfile.TemporaryDirectory(prefix="mlgitops-export-") as scratch:
            _save(model, Path(scratch) / "model", signature, inputs)
        barrier()
        return None
    folder = output_path()
    folder.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    partial = folder / f"{_PARTIAL}{secrets.token_hex(4)}"
    try:
        _save(model, partial, signature, inputs)
        metadata = _metadata(parameters or {}, history, metrics)
        write_whole(folder / METADATA_FILE, to_json(metadata))
        _put(partial, folder / str(version))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    digest = artifact_digest(folder)
    barrier()
    return Artifact(uri=os.environ[OUTPUT_URI_VARIABLE], digest=str(digest), path=folder)


def _save(
    model: Any,
    folder: Path,
    signature: Callable[..., Any] | None,
    inputs: Mapping[str, tuple[Sequence[int | None], str]] | None,
) -> None:
    import keras
    import tensorflow as tf

    if signature is None and isinstance(model, keras.Model):
        model.export(str(folder), format="tf_saved_model", verbose=False)
        return
    signature = signature or getattr(model, SIGNATURE, None)
    if signature is None:
        raise InvalidInput(
            f"{type(model).__name__} says nothing about serving: pass signature=… (and inputs=…), "
            f"or give it a tf.function named {SIGNATURE} with an input signature"
        )
    tf.saved_model.save(_holder(model), str(folder), signatures={SIGNATURE: _traced(signature, inputs)})


def _traced(signature: Callable[..., Any], inputs: Mapping[str, tuple[Sequence[int | None], str]] | None) -> Any:
    import tensorflow as tf

    specifications = {
        name: tf.TensorSpec(list(shape), tf.dtypes.as_dtype(kind), name=name)
        for name, (shape, kind) in (inputs or {}).items()
    }
    try:
        if hasattr(signature, "get_concrete_function"):
            return signature.get_concrete_function(**specifications)
        if not specifications:
            raise InvalidInput("signature is a plain function: pass inputs={name: (shape, type)} with it")
        return tf.function(signature).get_concrete_function(**specifications)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the signature cannot be traced with the inputs {dict(inputs or {})}: {error}") from error


def _holder(model: Any) -> Any:
    """Return a trackable that owns every variable of the model and nothing that serving does not need."""
    import tensorflow as tf

    if isinstance(model, tf.Module) and not hasattr(model, "optimizer"):
        return model
    holder = tf.Module()
    holder.variables_ = [one if isinstance(one, tf.Variable) else one.value for one in model.variables]
    return holder


def _put(partial: Path, target: Path) -> None:
    """Move a finished export to its place; what was there before goes only when the new one stands."""
    replaced = target.with_name(f"{_REPLACED}{secrets.token_hex(4)}")
    if target.exists():
        target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what an export that was killed left behind: it would be part of the digest."""
    for path in folder.iterdir():
        if path.name.startswith((_PARTIAL, _REPLACED)):
            shutil.rmtree(path)
        elif path.name.startswith(f".{METADATA_FILE}."):
            path.unlink()


def artifact_digest(folder: Path) -> Digest:
    """Return the digest over all files below `folder`: of each relative path with `/` and its content's SHA-256."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            files[path.relative_to(folder).as_posix()] = Digest(f"sha256:{content}")
    return Digest.of_files(files)


def _metadata(
    parameters: Mapping[str, Any], history: Sequence[Mapping[str, float]], metrics: Mapping[str, float] | None
) -> Mapping[str, Any]:
    import keras
    import numpy as np
    import tensorflow as tf

    last = history[-1] if history else {}
    own = task()
    return {
        "createdAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "framework": {
            "name": "tensorflow",
            "version": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
        },
        "parameters": plain(parameters),
        "data": data_inputs(),
        "metrics": plain(metrics if metrics is not None else last),
        "history": plain(history),
        "image": os.environ.get(IMAGE_VARIABLE),
        "sourceRevision": os.environ.get(REVISION_VARIABLE),
        "workers": own.workers,
    }
