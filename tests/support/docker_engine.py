"""Docker Engines: the real one of Debian on a private socket, and one on loopback that says what tests want."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import docker
import pytest

MISSING = "the program dockerd is not installed (Debian: apt-get install docker.io)"
OPTIONS = ("--bridge=none", "--iptables=false", "--ip-forward=false", "--storage-driver=vfs")
"""Builds of tests run no command, so they need neither a network nor a file system in layers."""


@contextmanager
def real_engine() -> Iterator[str]:
    """Start Debian's Docker Engine; gives what `DOCKER_HOST` must be. Skips, with the reason, where it cannot run."""
    program = shutil.which("dockerd")
    if program is None:
        pytest.skip(MISSING)
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    with tempfile.TemporaryDirectory(prefix="mlgitops-docker-", ignore_cleanup_errors=True) as name:
        folder, address = Path(name), f"unix://{name}/socket"
        places = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        with (folder / "log").open("wb") as log:
            command = [program, f"--host={address}", "--group=root", *places, *OPTIONS]
            engine = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                _until_answering(address, engine, folder / "log")
                yield address
            finally:
                engine.terminate()
                engine.wait(60)


def _until_answering(address: str, engine: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and engine.poll() is None:
        try:
            docker.DockerClient(base_url=address).api.ping()
        except docker.errors.DockerException:
            time.sleep(0.1)
        else:
            return
    pytest.skip(f"dockerd does not run here: {log.read_text(errors='replace').strip().splitlines()[-1][-300:]}")


@dataclass
class FakeEngine:
    """What an engine says, and what it was asked."""

    builds: list[list[dict[str, Any]]] = field(default_factory=list)
    """What each build says; one without an end breaks off."""
    pushes: list[list[dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """What was told of credentials."""


class _Handler(BaseHTTPRequestHandler):
    """Answers for one fake engine."""

    protocol_version = "HTTP/1.1"
    engine: FakeEngine

    def do_GET(self) -> None:
        body = b"OK" if self.path.endswith("_ping") else json.dumps({"ApiVersion": "1.41"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path).split("/", 2)[2]
        self.engine.asked.append((path, parse_qs(url.query)))
        self.engine.shown.extend([self.headers["X-Registry-Auth"]] if "X-Registry-Auth" in self.headers else [])
        self._take()
        said = (self.engine.builds if path == "build" else self.engine.pushes).pop(0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in said:
            data = json.dumps(part).encode() + b"\r\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        if said and said[-1].get("broken"):
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _take(self) -> None:
        if self.headers.get("Transfer-Encoding") != "chunked":
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        self.rfile.readline()

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def fake_engine() -> Iterator[tuple[str, FakeEngine]]:
    """Serve on loopback; gives what `DOCKER_HOST` must be, and what it says."""
    engine = FakeEngine()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"engine": engine})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}", engine
        finally:
            server.shutdown()
            thread.join()
