"""git's own http backend on loopback, behind basic authentication."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, TOKEN = "x-access-token", "s3cr3t-t0ken"  # opens nothing but the servers below
HERMETIC = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}
"""What git is run with: nothing of the machine's or the user's settings."""


def run_git(*arguments: str | Path, folder: Path) -> str:
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=HERMETIC, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


class HttpServer(ThreadingHTTPServer):
    """Serves the repositories of a folder, or answers everything in one way."""

    def __init__(self, root: Path, redirect: str, status: int) -> None:
        super().__init__(("127.0.0.1", 0), HttpHandler)
        self.root, self.redirect, self.status = root, redirect, status
        self.requests: list[tuple[str, str, str | None]] = []


class HttpHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a kept connection waits 40 ms for each acknowledgement
    wbufsize = -1
    server: HttpServer

    def log_message(self, format, *values):  # noqa: A002
        pass

    def do_GET(self):
        body = self.body()
        server, given = self.server, self.headers.get("Authorization")
        server.requests.append((self.command, self.path, given))
        if server.redirect:
            return self.answer(302, {"Location": server.redirect + self.path}, b"")
        if server.status:
            return self.answer(server.status, {}, b"")
        expected = "Basic " + base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if given != expected:
            return self.answer(401, {"WWW-Authenticate": 'Basic realm="test"'}, b"")
        return self.backend(body)

    def do_POST(self):
        self.do_GET()

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = HERMETIC | {
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.answer(int(headers.pop("Status", "200").split()[0]), headers, content)

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def http_server(root: Path, *, redirect: str = "", status: int = 0) -> Iterator[HttpServer]:
    server = HttpServer(root, redirect, status)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
