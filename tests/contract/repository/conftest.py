"""Places a repository can be in: a folder, behind http, behind ssh. Each is served by git itself on loopback."""

import asyncio
import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import asyncssh
import pytest

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.ports.repository import Person, Repository

TOKEN = "s3cr3t-t0ken"  # opens nothing but the servers below
IDENTITY = Person(name="mlgitops", email="mlgitops@example.org")
HERMETIC = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}


def run_git(*arguments: str | Path, folder: Path) -> str:
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=HERMETIC, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


@dataclass(kw_only=True)
class Place:
    """One bare repository and the way to it."""

    bare: Path
    location: str
    folder: Path
    credentials: Credentials | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def open(self, cache: str = "cache", **options) -> Repository:
        options = {"identity": IDENTITY, "credentials": self.credentials, **options}
        return open_repository(self.location, cache=self.folder / cache, **options)

    def git(self, *arguments: str | Path) -> str:
        return run_git(*arguments, folder=self.bare)

    def hook(self, name: str, script: str) -> None:
        path = self.bare / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    def clone(self, name: str = "clone") -> Path:
        run_git("clone", "--quiet", self.bare, name, folder=self.folder)
        return self.folder / name


class HttpServer(ThreadingHTTPServer):
    """Serves the repositories of a folder, or answers everything in one way."""

    def __init__(self, root: Path, redirect: str, status: int) -> None:
        super().__init__(("127.0.0.1", 0), HttpHandler)
        self.root, self.redirect, self.status = root, redirect, status
        self.requests: list[tuple[str, str, str | None]] = []


class HttpHandler(BaseHTTPRequestHandler):
    """git's own http backend, behind basic authentication."""

    protocol_version = "HTTP/1.1"
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
        expected = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
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


async def _feed(source, sink) -> None:
    with suppress(ConnectionError, asyncssh.Error):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


async def _drain(source, sink) -> None:
    with suppress(ConnectionError, asyncssh.Error):
        while data := await source.read(65536):
            sink.write(data)


class SshServer:
    """An ssh server that runs git's two commands, for one key."""

    def __init__(self, folder: Path) -> None:
        self.key, self.known_hosts = folder / "key", folder / "known_hosts"
        client = asyncssh.generate_private_key("ssh-ed25519")
        client.write_private_key(str(self.key))
        self.key.chmod(0o600)
        client.write_public_key(str(self.key) + ".pub")
        self._client, self._host = client, asyncssh.generate_private_key("ssh-ed25519")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        public = self._host.export_public_key().decode().strip()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}\n")

    async def _listen(self) -> int:
        allowed = asyncssh.import_authorized_keys(self._client.export_public_key().decode())
        self._server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[self._host],
            authorized_client_keys=allowed,
            process_factory=self._serve,
            encoding=None,
        )
        return self._server.get_port()

    @staticmethod
    async def _serve(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        command, _, path = (process.command or "").partition(" ")
        if command not in {"git-upload-pack", "git-receive-pack"}:
            process.exit(127)
            return
        pipe = subprocess.PIPE
        name = command.removeprefix("git-")
        child = await asyncio.create_subprocess_exec(
            "git", name, path.strip("'"), stdin=pipe, stdout=pipe, stderr=pipe, env=HERMETIC
        )
        feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
        await asyncio.gather(_drain(child.stdout, process.stdout), _drain(child.stderr, process.stderr))
        process.exit(await child.wait())
        feeding.cancel()

    def close(self) -> None:
        async def stop() -> None:
            self._server.close()
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory) -> Iterator[SshServer]:
    server = SshServer(tmp_path_factory.mktemp("ssh"))
    yield server
    server.close()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "server" / "environments.git"
    init_bare(path)
    run_git("config", "http.receivepack", "true", folder=path)
    return path


@pytest.fixture
def path_place(bare, tmp_path) -> Place:
    return Place(bare=bare, location=str(bare), folder=tmp_path)


@pytest.fixture
def http_place(bare, tmp_path) -> Iterator[Place]:
    with http_server(bare.parent) as server:
        location = f"http://127.0.0.1:{server.server_port}/environments.git"
        credentials = Credentials(token=TOKEN)
        yield Place(bare=bare, location=location, folder=tmp_path, credentials=credentials, requests=server.requests)


@pytest.fixture
def ssh_place(bare, tmp_path, ssh_server) -> Place:
    location = f"ssh://git@127.0.0.1:{ssh_server.port}{bare}"
    credentials = Credentials(key=ssh_server.key, known_hosts=ssh_server.known_hosts)
    return Place(bare=bare, location=location, folder=tmp_path, credentials=credentials)


@pytest.fixture(params=["path", "http", "ssh"])
def place(request) -> Place:
    found = request.getfixturevalue(f"{request.param}_place")
    assert isinstance(found, Place)
    return found


@pytest.fixture
def serve_http():
    return http_server


@pytest.fixture
def token() -> str:
    return TOKEN
