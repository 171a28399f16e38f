"""The Dockerfile of a model repository, for those who have a Docker Engine build their image."""

import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mlgitops.app.initialise import write_missing
from mlgitops.core.configuration import ModelConfiguration
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.loading import MODEL_FILE, load_model

IGNORED: Final = ".dockerignore"
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""Paths that mean the same to a Dockerfile, a shell and pip."""
_IMPORTS: Final = re.compile(rb"^[ \t]*(?:from|import)[ \t]+mlgitops\b", re.MULTILINE)
_TEMPLATE: Final = """\
# The image that trains. Written once by `mlgitops init --dockerfile`; it is yours to change.
#
# Name the base image by digest under `image.arguments` in mlgitops.yaml: a tag can be moved, and then the same commit
# gives another image.
ARG BASE_IMAGE={base}
FROM ${{BASE_IMAGE}}

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app

# Packages come first: they change less often than code does, and their layer is used again.
COPY {lock} ./{lock}
RUN python -m pip install --no-cache-dir -r {lock}
{tool}
# mlgitops sends the inputs of mlgitops.yaml and nothing else; .dockerignore holds `docker build` to about the same.
COPY . .

# Not root: whatever the code does, it does without any right on the node.
USER 65532:65532
"""
_TOOL: Final = """
# `mlgitops.training`, which the code imports: whatever pip can install it from.
ARG MLGITOPS=mlgitops=={version}
RUN python -m pip install --no-cache-dir -c {lock} "${{MLGITOPS}}"
"""


def initialise_dockerfile(directory: Path, *, dry_run: bool = False) -> Mapping[str, bytes]:
    """Write a Dockerfile and a `.dockerignore` for the model that `mlgitops.yaml` describes.

    A file that is there is its owner's, and stays as it is.

    Args:
        directory: Top of the model repository.
        dry_run: Write nothing.

    Returns:
        The files written, or that would be, by path relative to `directory`.

    Raises:
        NotFound: There is no mlgitops.yaml.
        InvalidInput: It is not valid, or the path of its requirements cannot stand in a Dockerfile.
        Unavailable: A file cannot be written; none is left then.
    """
    source = directory / MODEL_FILE
    if not source.is_file():
        raise NotFound("file", str(source))
    configuration = load_model(source.read_bytes(), MODEL_FILE)
    lock = configuration.requirements
    if not _PLAIN.fullmatch(lock):
        mend = "give it a name of letters, digits, '.', '_' and '-', like requirements.txt"
        raise InvalidInput([Problem(message=f"path {lock!r:.80} cannot stand in a Dockerfile", path=lock, mend=mend)])
    imports = any(_imports(one) for path in configuration.inputs for one in _scripts(directory / path))
    tool = _TOOL.format(version=version("mlgitops"), lock=lock) if imports else ""
    base = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
    dockerfile = configuration.docker.dockerfile if configuration.docker else "Dockerfile"
    files = {
        dockerfile: _TEMPLATE.format(base=base, lock=lock, tool=tool).encode(),
        IGNORED: _ignored(configuration).encode(),
    }
    return write_missing(directory, files, dry_run=dry_run)


def _scripts(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    return [path] if path.suffix in {".py", ".ipynb"} and path.is_file() else []


def _imports(script: Path) -> bool:
    """Say whether a script, or a notebook's cell, imports this package."""
    data = script.read_bytes()
    return _IMPORTS.search(data.replace(b'"', b"\n") if script.suffix == ".ipynb" else data) is not None


def _ignored(configuration: ModelConfiguration) -> str:
    """Return what keeps a context small: everything but the inputs; or, where all are inputs, data and histories."""
    data = [*(one.path for one in configuration.data), configuration.evaluation.data]
    left_out = [".git", ".mlgitops", *data]
    if any(path in {".", ""} for path in configuration.inputs):
        lines = [_pattern(path) for path in left_out]
    else:
        kept = [configuration.requirements, *configuration.inputs]
        lines = ["*", *dict.fromkeys(f"!{_pattern(path)}" for path in kept), *(_pattern(path) for path in left_out)]
    return "\n".join(["# What `docker build` does not send: all but the inputs of mlgitops.yaml.", *lines, ""])


def _pattern(path: str) -> str:
    """Write a path so that it stands for itself among patterns."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)
