"""Places a repository can be in: a folder, behind http, behind ssh. Each is served by git itself on loopback."""

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.ports.repository import Person, Repository
from tests.support.git_server import HERMETIC, TOKEN, http_server, run_git

IDENTITY = Person(name="mlgitops", email="mlgitops@example.org")


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
