"""Loopback ports for the replicas of distributed jobs."""

import random
import socket
from collections.abc import Collection
from contextlib import ExitStack
from typing import Final

from mlgitops.core.errors import Unavailable

_FIRST: Final = 20_000
_LAST: Final = 32_000
"""Below the range from which the system takes ports for outgoing connections, which could take one meanwhile."""
_TRIES: Final = 1000


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """Return `count` different ports that nobody listens on.

    Args:
        count: How many.
        taken: Ports that were promised to others.

    Raises:
        Unavailable: None could be found.
    """
    ports: list[int] = []
    with ExitStack() as holding:
        for _ in range(_TRIES):
            if len(ports) == count:
                return ports
            port = random.randrange(_FIRST, _LAST)  # noqa: S311 - a guess, not a secret
            listener = holding.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                listener.bind(("0.0.0.0", port))  # noqa: S104 - TensorFlow's servers listen on every address
            except OSError:
                continue
            if port not in taken and port not in ports:
                ports.append(port)
    raise Unavailable("loopback ports", f"found {len(ports)} of {count}")
