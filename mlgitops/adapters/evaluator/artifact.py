"""A model's folder as evaluation sees it: layout, bytes, operations."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.files import directory_files, open_regular
from mlgitops.adapters.operations import MODEL_FILE, Scan, scan
from mlgitops.core.errors import DigestMismatch, InvalidInput, MlgitopsError, NotFound
from mlgitops.core.names import Digest

SHOWN: Final = 10
_CODE_ENDINGS: Final = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle", ".h5", ".hdf5", ".keras", ".pt", ".pth")


class Refused(MlgitopsError):
    """The model is refused, whatever its metrics are."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A folder that may be loaded."""

    uri: str
    path: Path
    version: int
    """The one version directory."""
    digest: Digest
    """Over all files of the folder."""
    files: int
    size_bytes: int
    operations: Scan

    @property
    def directory(self) -> Path:
        """The version directory."""
        return self.path / str(self.version)

    def to_mapping(self) -> dict[str, Any]:
        """Return what the report says of it."""
        return {
            "uri": self.uri,
            "digest": str(self.digest),
            "version": self.version,
            "files": self.files,
            "sizeBytes": self.size_bytes,
            "operations": dict(self.operations.counts),
        }


def inspect(model: Mapping[str, Any]) -> Inspected:
    """Check layout, digest and operations, in this order, without loading anything.

    Args:
        model: `uri`, `path` and `digest` (None when it is not known before).

    Raises:
        Refused: One of them is not as it must be.
    """
    path, uri = Path(model["path"]), str(model["uri"])
    try:
        version = version_of(path)
        files = directory_files(path)
        digest = Digest.of_files(files)
        _check_digest(uri, model["digest"], digest)
        _check_pickles(path, files)
        operations = scan(path / str(version))
    except (InvalidInput, NotFound, DigestMismatch) as error:
        raise Refused(str(error)) from error
    if operations.refusal:
        raise Refused(operations.refusal)
    size = sum((path / name).stat().st_size for name in files)
    return Inspected(
        uri=uri, path=path, version=version, digest=digest, files=len(files), size_bytes=size, operations=operations
    )


def _check_pickles(path: Path, files: Iterable[str]) -> None:
    """Refuse what runs code where it is read: nothing here reads it, and another server of the same folder might."""
    found = [name for name in sorted(files) if name.lower().endswith(_CODE_ENDINGS) or _is_pickle(path / name)]
    if found:
        named = ", ".join(found[:SHOWN])
        raise InvalidInput(f"the model holds files that run code when they are read (pickle, Keras): {named}")


def _is_pickle(file: Path) -> bool:
    with open_regular(file.resolve()) as stream:
        head = stream.read(3)
        if len(head) < 3 or head[0] != 0x80 or not 2 <= head[1] <= 5:
            return False
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"."


def _check_digest(uri: str, expected: str | None, found: Digest) -> None:
    if expected is not None and str(found) != expected:
        raise DigestMismatch(uri, expected, str(found))


def version_of(path: Path) -> int:
    """Return the number of the one version directory.

    Raises:
        InvalidInput: There is none or more than one. A model server that finds none waits for ever; of several it
            would serve the highest.
        NotFound: There is no such folder.
    """
    if not path.is_dir():
        raise NotFound("model folder", str(path))
    folders = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    versions = [name for name in folders if name.isascii() and name.isdigit() and str(int(name)) == name]
    served = [name for name in versions if (path / name / MODEL_FILE).is_file()]
    if len(versions) > 1:
        raise InvalidInput(f"the model has several versions ({', '.join(versions[:SHOWN])}); export one")
    if not served:
        found = ", ".join(folders[:SHOWN]) or "no folders"
        raise InvalidInput(
            f"the model must be at <whole number>/{MODEL_FILE}, like 1/{MODEL_FILE}; found {found}"
            + (f" and {MODEL_FILE} itself" if (path / MODEL_FILE).is_file() else "")
        )
    return int(served[0])
