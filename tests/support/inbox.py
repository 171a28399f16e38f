"""A service on loopback that takes web hooks, as chats and incident tools do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Inbox:
    """What came, and how it is answered."""

    def __init__(self) -> None:
        self.letters: list[dict[str, Any]] = []
        self.status = 200
        self.silent = threading.Event()
        """Set: nothing is answered until it is cleared."""
        self.port = 0


@contextmanager
def inbox() -> Iterator[Inbox]:
    """Serve an inbox while the context lasts."""
    found, over = Inbox(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            while found.silent.is_set() and not over.wait(0.05):
                pass
            if found.status == 200:
                found.letters.append(json.loads(body) | {"path": self.path})
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
