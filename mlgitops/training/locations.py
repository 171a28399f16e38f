"""Where a job's data, model and checkpoints are, as paths of this process."""

import json
import os
import re
import urllib.parse
from pathlib import Path
from typing import Final

from mlgitops.core.errors import InvalidInput, NotFound
from mlgitops.core.manifest.fields import (
    CHECKPOINT_URI_VARIABLE,
    DATA_URI_VARIABLE,
    MOUNTS_VARIABLE,
    OUTPUT_URI_VARIABLE,
)

MOUNT_ROOT: Final = "/mnt"
"""Where a claim is mounted in a pod when `MLGITOPS_MOUNTS` does not say otherwise: `/mnt/<claim>`."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_data_uris: dict[str, str] = {}


def resolve(uri: str) -> Path:
    """Return the path of a URI in this process.

    Args:
        uri: `pvc://<claim>/<path>`, `file:///<path>` or a plain path.

    Raises:
        InvalidInput: Another scheme, a path that leaves its claim, or `MLGITOPS_MOUNTS` that is no JSON object.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    if scheme == "file":
        parts = urllib.parse.urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise InvalidInput(f"{uri!r:.200} names another machine; only file:///<path> can be opened")
        return Path(urllib.parse.unquote(parts.path))
    if scheme == "pvc":
        return _in_claim(uri, rest)
    raise InvalidInput(f"{uri!r:.200} has the scheme {scheme!r:.40}; pvc:// and file:// can be opened")


def _in_claim(uri: str, rest: str) -> Path:
    claim, _, inside = rest.partition("/")
    if not claim or ".." in inside.split("/"):
        raise InvalidInput(f"{uri!r:.200} is not pvc://<claim>/<path inside the claim>")
    try:
        mounts = json.loads(os.environ.get(MOUNTS_VARIABLE) or "{}")
        root = mounts.get(claim, f"{MOUNT_ROOT}/{claim}")
    except (ValueError, AttributeError) as error:
        raise InvalidInput(f"{MOUNTS_VARIABLE} is no JSON object from claim to folder: {error}") from error
    return Path(str(root)) / inside


def data_path(variable: str = DATA_URI_VARIABLE) -> Path:
    """Return the path of one data input, which exists.

    Args:
        variable: Environment variable that holds its URI; with one `data:` entry in mlgitops.yaml the default serves.

    Raises:
        InvalidInput: The variable is not set.
        NotFound: Nothing is at the URI.
    """
    uri = os.environ.get(variable)
    if not uri:
        known = sorted(name for name in os.environ if name.startswith("MLGITOPS_") and name.endswith("_URI"))
        raise InvalidInput(f"{variable} is not set; set are {', '.join(known) or 'none of its kind'}")
    path = resolve(uri)
    if not path.exists():
        raise NotFound("data", uri)
    _data_uris[variable] = uri
    return path


def data_inputs() -> dict[str, dict[str, str | None]]:
    """Return URI and digest of each data input by variable: those asked for, and the default one when it is set."""
    uris = dict(_data_uris)
    if default := os.environ.get(DATA_URI_VARIABLE):
        uris.setdefault(DATA_URI_VARIABLE, default)
    return {variable: {"uri": uri, "digest": _digest_in(uri)} for variable, uri in sorted(uris.items())}


def _digest_in(uri: str) -> str | None:
    found = _DIGEST.findall(uri)
    return f"sha256:{found[-1]}" if found else None


def output_path() -> Path:
    """Return the folder the job puts its model in: `<folder>/<version>/saved_model.pb` and `<folder>/metadata.json`.

    Raises:
        InvalidInput: `MLGITOPS_OUTPUT_URI` is not set.
    """
    uri = os.environ.get(OUTPUT_URI_VARIABLE)
    if not uri:
        raise InvalidInput(f"{OUTPUT_URI_VARIABLE} is not set: it names the folder the model is written to")
    return resolve(uri)


def checkpoint_path() -> Path | None:
    """Return the folder for checkpoints; None when `MLGITOPS_CHECKPOINT_URI` is not set."""
    uri = os.environ.get(CHECKPOINT_URI_VARIABLE)
    return resolve(uri) if uri else None
