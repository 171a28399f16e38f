"""Reading `mlgitops.yaml`, `environments.yaml` and `rollout.yaml`: a value, or every problem at once.

The same bytes are read once in a process: reconciling looks at them again and again.
"""

from functools import lru_cache

from mlgitops.core.configuration import EnvironmentsConfiguration, ModelConfiguration
from mlgitops.core.loaders import environments, model
from mlgitops.core.loaders.source import Source
from mlgitops.core.manifest.owned import RolloutFields

MODEL_FILE = "mlgitops.yaml"
ENVIRONMENTS_FILE = "environments.yaml"


@lru_cache(maxsize=256)
def load_model(data: bytes, path: str = MODEL_FILE) -> ModelConfiguration:
    """Return what a model repository's `mlgitops.yaml` says.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    return model.load(data, path)


@lru_cache(maxsize=256)
def load_environments(data: bytes, path: str = ENVIRONMENTS_FILE) -> EnvironmentsConfiguration:
    """Return what an environment repository's `environments.yaml` says.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    return environments.load(data, path)


@lru_cache(maxsize=256)
def load_rollout(data: bytes, path: str) -> RolloutFields:
    """Return what a `rollout.yaml` asks for.

    Args:
        data: The file.
        path: The file, as people know it.

    Raises:
        InvalidInput: It cannot be accepted; with every problem: line, column, pointer and mend.
    """
    value = Source(data, path, "rollout").finish()
    return RolloutFields(
        number=int(value["number"]),
        release=value["release"],
        plan=value["plan"],
        plan_digest=value["planDigest"],
    )
