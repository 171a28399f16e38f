"""Reading `mlgitops.yaml`, `environments.yaml` and `rollout.yaml`: a value, or every problem at once.

The same bytes are read once in a process: reconciling looks at them again and again.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.plain import load_plain

if TYPE_CHECKING:
    from mlgitops.core.configuration import EnvironmentsConfiguration, ModelConfiguration
    from mlgitops.core.manifest.owned import RolloutFields

MODEL_FILE = "mlgitops.yaml"
ENVIRONMENTS_FILE = "environments.yaml"
LONGEST_FILE_BYTES = 65_536
READ = 4_096
"""Files of each kind that are kept: fewer than there are models would make every pass read all of them again."""


@lru_cache(maxsize=READ)
def load_model(data: bytes, path: str = MODEL_FILE) -> "ModelConfiguration":
    """Return what a model repository's `mlgitops.yaml` says.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    from mlgitops.core.loaders import model  # judging a file costs more than a command that only looks

    return model.load(data, path)


def check_secrets(data: bytes, path: str) -> None:
    """Refuse a configuration that is about to enter a repository with what is a secret beyond doubt.

    What is in a repository's history already is read as it is: refusing it there would stop what serves.

    Raises:
        InvalidInput: It holds tokens, private keys or addresses with passwords; each with its line, none repeated.
    """
    from mlgitops.core.redaction import secret_lines

    message = "holds what looks like a credential"
    mend = "take it out and revoke it: everybody who reads the repository or its history has it"
    lines = secret_lines(data.decode(errors="replace"))
    if lines:
        raise InvalidInput([Problem(message=message, path=path, line=line, mend=mend) for line in lines])


@lru_cache(maxsize=256)
def load_environments(data: bytes, path: str = ENVIRONMENTS_FILE) -> "EnvironmentsConfiguration":
    """Return what an environment repository's `environments.yaml` says.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    from mlgitops.core.loaders import environments  # as above

    return environments.load(data, path)


@lru_cache(maxsize=256)
def read_environment_names(data: bytes, path: str = ENVIRONMENTS_FILE) -> tuple[str, ...]:
    """Return the environments in the order of promotion, also from a file that has other problems.

    Args:
        data: `environments.yaml`.
        path: The file, as people know it.

    Raises:
        InvalidInput: Not even the names can be read; with every problem of the file.
    """
    try:
        value = load_plain(data[:LONGEST_FILE_BYTES], path)
        names = tuple(one["name"] for one in value["environments"])
    except (InvalidInput, KeyError, TypeError):
        names = ()
    if names and all(isinstance(one, str) for one in names) and len({*names}) == len(names):
        return names
    return tuple(one.name for one in load_environments(data, path).environments)


@lru_cache(maxsize=READ)
def read_promotion(data: bytes) -> tuple[int, str] | None:
    """Return the number and the release that a `rollout.yaml` names, for what only looks; None where it names none.

    Args:
        data: The file.
    """
    try:
        value = load_plain(data[:LONGEST_FILE_BYTES], "rollout.yaml")
        number, release = value["number"], value["release"]
    except (InvalidInput, KeyError, TypeError):
        return None
    return (number, release) if isinstance(number, int) and isinstance(release, str) else None


@lru_cache(maxsize=READ)
def load_rollout(data: bytes, path: str) -> "RolloutFields":
    """Return what a `rollout.yaml` asks for.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    from mlgitops.core.loaders.source import Source  # as above
    from mlgitops.core.manifest.owned import RolloutFields

    value = Source(data, path, "rollout").finish()
    return RolloutFields(
        number=int(value["number"]),
        release=value["release"],
        plan=value["plan"],
        plan_digest=value["planDigest"],
    )
