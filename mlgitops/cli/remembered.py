"""What `mlgitops status` says, kept until the repository, the place or the tool changes.

Status depends on two revisions, and on the last push where an engine takes pushes. Asked while all are the same, it
answers without loading what reads git and YAML, so that a prompt or a watch may ask often. Whatever on this machine
changes them (a verb, the engine) computes the answer ahead. Importing this costs nothing.
"""

import os
import sys
from binascii import crc32

from mlgitops import __version__

REFERENCES = ("refs/heads/main", "refs/heads/mlgitops/ledger")
"""What status reads, in this order."""
HOME_FOLDER = ".mlgitops"
ENVIRONMENT_REPOSITORY = "environment.git"
PUSHED = "pushed.json"
"""How the last push ended, beside an engine's environment repository."""
PLAIN = (["status"], ["status", "--output", "json"], ["status", "-o", "json"])
"""Questions that name no place, so that they are the same wherever the same place is found."""
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
    asked = _asked(words, place())
    try:
        with open(_file(asked), encoding="utf-8") as file:  # noqa: PTH123 - as above
            head, _, answer = file.read().partition(_END)
        question, _, rest = head.partition("\n")
        repository, _, before = rest.partition("\n")
        known = question == asked and before == state_of(repository)
    except (OSError, UnicodeError):
        return None
    return answer if known else None


def remember(words: list[str], repository: str, before: str, answer: str, where: str | None = None) -> None:
    """Keep an answer about a repository on this machine; a full disk is no error.

    Args:
        words: The question, as it was or will be typed.
        repository: Folder of the environment repository.
        before: `state_of` the repository before the answer was computed: an answer overtaken by a change is not kept.
        answer: What to print.
        where: What `place` returns to whoever asks; None for here.
    """
    if not os.path.isdir(repository) or "\n" in repository or before != state_of(repository):  # noqa: PTH112
        return
    asked = _asked(words, place() if where is None else where)
    kept, draft = _file(asked), f"{_file(asked)}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{asked}\n{repository}\n{before}{_END}{answer}")
        os.replace(draft, kept)  # noqa: PTH105 - as above
    except (OSError, UnicodeError):
        return


def place() -> str:
    """Return the environment repository that is meant here where no flag names one; empty where there is none."""
    told = os.environ.get("MLGITOPS_ENVIRONMENT_REPOSITORY")
    if told:
        return told
    home = os.environ.get("MLGITOPS_HOME") or find_home(os.getcwd())  # noqa: PTH109 - as above
    return os.path.abspath(f"{home}/{ENVIRONMENT_REPOSITORY}") if home else ""  # noqa: PTH100 - as above


def _asked(words: list[str], where: str) -> str:
    """Return the whole question in one line: what was typed, about what, and of which version of the tool."""
    directory = "" if words in PLAIN and os.path.isabs(where) else os.getcwd()  # noqa: PTH109, PTH117 - as above
    home = os.environ.get("MLGITOPS_HOME") if directory else None
    return repr((__version__, _installed(), words, directory, home, where, os.environ.get("GITHUB_ACTIONS")))


def _installed() -> int:
    """Return when the renderer was last written: a changed installation answers anew."""
    folder = os.path.dirname(__file__)  # noqa: PTH120 - as above
    return max(os.stat(f"{folder}/{name}").st_mtime_ns for name in ("render.py", "../app/reading.py"))  # noqa: PTH116


def _file(asked: str) -> str:
    return f"{cache_folder()}/status/{crc32(asked.encode('utf-8', 'surrogateescape')):08x}"


def state_of(repository: str) -> str:
    """Return what status depends on: both revisions, as files of a bare repository hold them, and the last push."""
    pushed = f"{os.path.dirname(repository)}/{PUSHED}"  # noqa: PTH120 - as above
    try:
        pushed_at = os.stat(pushed).st_mtime_ns  # noqa: PTH116 - as above
    except OSError:
        pushed_at = 0
    return "\n".join([*(_revision(repository, name) for name in REFERENCES), str(pushed_at)])


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
