"""What `mlgitops status` said last, kept until the repository, the place or the tool changes.

Status depends on two revisions alone. Asked again while both are the same, it answers without loading what reads git
and YAML, so that a prompt or a watch may ask often. Importing this costs nothing.
"""

import os
import sys
from binascii import crc32

from mlgitops import __version__

REFERENCES = ("refs/heads/main", "refs/heads/mlgitops/ledger")
"""What status reads, in this order."""
HOME_FOLDER = ".mlgitops"
ENVIRONMENT_REPOSITORY = "environment.git"
_VARIABLES = ("HOME", "MLGITOPS_HOME", "MLGITOPS_ENVIRONMENT_REPOSITORY", "GITHUB_ACTIONS")
_END = "\n\n"


def find_home(directory: str) -> str | None:
    """Return the nearest engine folder at or above a folder."""
    while True:
        home = os.path.join(directory, HOME_FOLDER)  # noqa: PTH118 - pathlib costs more than the whole answer
        if os.path.exists(os.path.join(home, ENVIRONMENT_REPOSITORY)):  # noqa: PTH110, PTH118 - as above
            return home
        above = os.path.dirname(directory)  # noqa: PTH120 - as above
        if above == directory:
            return None
        directory = above


def cache_folder() -> str:
    """Return where this tool keeps what may be thrown away at any time."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - as above
    return f"{caches}/mlgitops"


def recall(words: list[str]) -> str | None:
    """Return what the same question was answered, when nothing it depends on has changed; else None."""
    asked = _asked(words)
    try:
        with open(_file(asked), encoding="utf-8") as file:  # noqa: PTH123 - as above
            head, _, answer = file.read().partition(_END)
        question, _, rest = head.partition("\n")
        repository, _, revisions = rest.partition("\n")
        known = question == asked and revisions == _revisions(repository)
    except (OSError, UnicodeError):
        return None
    return answer if known else None


def remember(words: list[str], repository: str, revisions: tuple[str | None, ...], answer: str) -> None:
    """Keep an answer that was computed from two revisions of a repository on this machine; a full disk is no error."""
    known = "\n".join(one or "" for one in revisions)
    if not os.path.isdir(repository) or "\n" in repository or known != _revisions(repository):  # noqa: PTH112
        return
    asked = _asked(words)
    place, draft = _file(asked), f"{_file(asked)}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{asked}\n{repository}\n{known}{_END}{answer}")
        os.replace(draft, place)  # noqa: PTH105 - as above
    except (OSError, UnicodeError):
        return


def _asked(words: list[str]) -> str:
    """Return the whole question in one line: what was typed, where, told what, and by which version of the tool."""
    directory = os.getcwd()  # noqa: PTH109 - as above
    told = [os.environ.get(name) for name in _VARIABLES]
    return repr((__version__, _installed(), words, directory, find_home(directory), told))


def _installed() -> int:
    """Return when the renderer was last written: a changed installation answers anew."""
    folder = os.path.dirname(__file__)  # noqa: PTH120 - as above
    return max(os.stat(f"{folder}/{name}").st_mtime_ns for name in ("render.py", "../app/reading.py"))  # noqa: PTH116


def _file(asked: str) -> str:
    return f"{cache_folder()}/status/{crc32(asked.encode('utf-8', 'surrogateescape')):08x}"


def _revisions(repository: str) -> str:
    """Return the revisions of both references, as files of a bare repository hold them; empty for what is not there."""
    return "\n".join(_revision(repository, name) for name in REFERENCES)


def _revision(repository: str, name: str) -> str:
    try:
        with open(f"{repository}/{name}", encoding="ascii") as file:  # noqa: PTH123 - as above
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return _packed(repository, name)


def _packed(repository: str, name: str) -> str:
    try:
        with open(f"{repository}/packed-refs", encoding="utf-8") as file:  # noqa: PTH123 - as above
            for line in file:
                revision, _, reference = line.strip().partition(" ")
                if reference == name:
                    return revision
    except FileNotFoundError:
        pass
    return ""


def answered(words: list[str]) -> bool:
    """Print the remembered answer to `status`; False when it has to be computed."""
    if words[:1] != ["status"]:
        return False
    answer = recall(words)
    if answer is None:
        return False
    sys.stdout.write(answer)
    return True
