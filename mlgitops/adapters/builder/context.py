"""The files that an image is built of: the declared ones, and nothing that they lead to unseen."""

import stat
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from mlgitops.adapters.builder.layout import TAG_ANNOTATION
from mlgitops.adapters.files import check_name, resolve_below, walk_files
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.ports.builder import BuildRequest

CONTEXT_BYTES: Final = 256 << 20
CONTEXT_FILES: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file that enters the image."""

    name: str
    """Path in the image, relative to the working directory."""
    path: Path
    """Regular file that holds its bytes."""
    size_bytes: int
    executable: bool


def collect(source: Path, names: Sequence[str], *, size_limit: int, count_limit: int) -> dict[str, Source]:
    """Find every file that enters an image, by its path below `source`.

    A folder among `names` stands for everything below it. A link is taken as the file it leads to, which must itself be
    among the files, so that nothing undeclared enters.

    Raises:
        InvalidInput: Files that are absent, special, badly named or linked from elsewhere; more than `size_limit` bytes
            or `count_limit` files together; all of it at once.
        NotFound: There is no such folder.
    """
    try:
        base = source.resolve(strict=True)
    except OSError as error:
        raise NotFound("source directory", str(source)) from error
    problems: list[Problem] = []
    found: dict[str, Path] = {}
    for name in names:
        try:
            found.update(_expand(base, name))
        except InvalidInput as error:
            problems.extend(error.problems)
    declared = {path.resolve() for name, path in found.items() if not (base / name).is_symlink()}
    sources = {name: _source(name, path) for name, path in found.items()}
    problems.extend(_undeclared(base, sources.values(), declared))
    size_bytes = sum(one.size_bytes for one in sources.values())
    if size_bytes > size_limit or len(sources) > count_limit:
        problems.append(
            Problem(
                message=f"the training inputs are {len(sources)} files of {size_bytes} bytes together; at most "
                f"{count_limit} files of {size_limit} bytes can be an image",
                mend="name data under `data:` in mlgitops.yaml, which keeps it out of the image",
            )
        )
    if problems:
        raise InvalidInput(problems)
    return sources


def _expand(base: Path, name: str) -> Iterable[tuple[str, Path]]:
    """Return the files that one entry of the request stands for."""
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts or str(parts) != name or "\\" in name:
        mend = "write a relative path with '/', without '.' or '..'"
        raise InvalidInput([Problem(message="is no path inside the repository", path=name, mend=mend)])
    check_name(name, base)
    if not (base / name).exists() and not (base / name).is_symlink():
        mend = "commit the file, or leave it out of `inputs`"
        raise InvalidInput([Problem(message="does not exist in this revision", path=name, mend=mend)])
    resolved = resolve_below(base, base / name)
    if resolved.is_file():
        return [(name, resolved)]
    return [(f"{name}/{relative}", path) for relative, path in walk_files(resolved)]


def _source(name: str, path: Path) -> Source:
    status = path.stat()
    return Source(name=name, path=path, size_bytes=status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))


def _undeclared(base: Path, sources: Iterable[Source], declared: set[Path]) -> Iterable[Problem]:
    """Name links to files that are not themselves inputs: their bytes would change an image behind a release's back."""
    for one in sources:
        if one.path not in declared:
            message = f"is a link to {one.path.relative_to(base)}, which is not among the training inputs"
            mend = "add that file to `inputs` in mlgitops.yaml"
            yield Problem(message=message, path=one.name, mend=mend)


def check_words(request: BuildRequest) -> None:
    """Refuse a command that cannot run, and annotations that cannot be set."""
    if not request.entrypoint or not all(word and "\0" not in word for word in request.entrypoint):
        raise InvalidInput("the image needs a command of non-empty words")
    for name, value in request.annotations.items():
        if name == TAG_ANNOTATION or not name.isprintable() or not isinstance(value, str):
            raise InvalidInput(f"annotation {name!r:.100} cannot be set on an image")


def entry(name: str, kind: bytes, mode: int, size_bytes: int) -> tarfile.TarInfo:
    """Describe one entry with nothing in it that differs between machines; TarInfo's owner and time are 0."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, size_bytes
    return entry
