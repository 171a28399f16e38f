"""Names of the files below the serving home."""

from typing import Final

OBSERVATION: Final = "observation.json"
ROUTER: Final = "router.json"
ROUTER_CONFIG: Final = "router-config.json"
LABEL_TOKEN: Final = "label-token"  # noqa: S105 - a file's name
CONTROL_TOKEN: Final = "control-token"  # noqa: S105 - a file's name
SERVED: Final = "served"
REPLAYS: Final = "replays"
LOGS: Final = "logs"
PROCESSES: Final = "processes.json"
LOCK: Final = "lock"
