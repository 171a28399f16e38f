"""What the embedded server processes share: a loopback port, signals, and an end when the parent ends."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Final

from aiohttp import web

from mlgitops.adapters.loopback import HOST

GRACE_SECONDS: Final = 10.0
"""How long a process that was told to end may finish the requests it has."""


def end_with_parent() -> None:
    """End this process when standard input closes, which happens however the parent ends.

    A pipe is used because the kernel's parent-death signal follows the *thread* that started the process.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(GRACE_SECONDS + 2)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def listen(port: int) -> socket.socket:
    """Bind a port of the loopback interface; 0 for any free one.

    Raises:
        OSError: It is taken.
    """
    return socket.create_server((HOST, port), backlog=1024)


def serve(app: web.Application, bound: socket.socket, ready: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was begun."""
    asyncio.run(_serve(app, bound, ready))


async def _serve(app: web.Application, bound: socket.socket, ready: Callable[[int], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    # An idle connection is kept longer than the router keeps it, so that the router's side closes it first.
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=300, shutdown_timeout=GRACE_SECONDS)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    ready(bound.getsockname()[1])
    await stop.wait()
    await runner.cleanup()
