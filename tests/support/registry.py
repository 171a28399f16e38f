"""Registries on loopback: one that faults can be put into, strict about what it is asked, and Debian's real one."""

import base64
import json
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from mlgitops.core.names import Digest

USER, PASSWORD = "ada", "open sesame"
HTPASSWD = "ada:$2b$04$d0eVIXFOwI2e6QmmxojQ.ewjVzPWA7sspxFxEiDCH/zi9YrJP4iPe\n"
MISSING = "the program docker-registry is not installed (Debian: apt-get install docker-registry)"
UPLOADS = "/v2/{name}/blobs/uploads/"


@dataclass
class FakeRegistry:
    """What a registry holds, how it misbehaves, and what it was asked."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of every request, without queries."""
    shown: list[str | None] = field(default_factory=list)
    """`Authorization` of every request."""
    received: int = 0
    """Bytes of blobs that came in."""
    login: str = ""
    """`basic`, `bearer` or empty for none."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next uploads are cut."""
    answers: list[tuple[str, int, bytes, Mapping[str, str]]] = field(default_factory=list)
    """What the next requests of a method are answered instead: method, status, body, headers."""
    forgets: bool = False
    """Whether a cut upload is forgotten."""
    lost: int = 0
    """How many finished uploads end without an answer."""
    before_reading: Callable[[str], None] = lambda _: None
    """Called with the reference before a manifest is read."""
    elsewhere: str = ""
    """Where uploads are led to instead."""
    token: str = "a-token-of-this-registry"
    identity_token: str = ""

    def tagged(self, name: str, data: bytes) -> None:
        """Put a manifest under a tag, as somebody else does."""
        self.manifests[name] = self.manifests[str(Digest.of(data))] = data


class Handler(BaseHTTPRequestHandler):
    """Answers for one fake registry."""

    protocol_version = "HTTP/1.1"
    registry: FakeRegistry

    def setup(self) -> None:
        super().setup()
        self.url, self.length = urlsplit(""), 0

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fault(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self.answer(status, json.dumps({"errors": [{"code": code, "message": "no"}]}).encode(), headers)

    def begun(self) -> bool:
        """Note a request; returns whether it may go on."""
        self.url, self.length = urlsplit(self.path), int(self.headers.get("Content-Length", 0))
        self.registry.asked.append(f"{self.command} {self.url.path}")
        self.registry.shown.append(self.headers.get("Authorization"))
        for number, (method, status, body, headers) in enumerate(self.registry.answers):
            if method == self.command:
                del self.registry.answers[number]
                self.rfile.read(self.length)
                self.answer(status, body, headers)
                return False
        if self.url.path == "/token":
            self.give_token()
            return False
        wanted = {
            "": self.headers.get("Authorization"),
            "basic": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
            "bearer": f"Bearer {self.registry.token}",
        }[self.registry.login]
        if self.headers.get("Authorization") == wanted:
            return True
        self.rfile.read(self.length)
        told = {
            "basic": 'Basic realm="fake"',
            "bearer": 'Bearer realm="http://{}/token",service="fake"'.format(self.headers["Host"]),
        }.get(self.registry.login, "")
        self.fault(401, "UNAUTHORIZED", {"WWW-Authenticate": told})
        return False

    def give_token(self) -> None:
        form = parse_qs(self.rfile.read(self.length).decode() if self.command == "POST" else self.url.query)
        assert form["scope"] == ["repository:team/digits:pull,push"]
        assert form["service"] == ["fake"]
        pair = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        good = (
            form.get("refresh_token") == [self.registry.identity_token]
            if self.command == "POST"
            else self.headers.get("Authorization") == pair
        )
        if good:
            self.answer(200, json.dumps({"access_token": self.registry.token}).encode())
        else:
            self.fault(401, "UNAUTHORIZED")

    def do_HEAD(self) -> None:
        if self.begun():
            digest = self.url.path.rpartition("/")[2]
            self.answer(200 if digest in self.registry.blobs else 404)

    def do_GET(self) -> None:
        if not self.begun():
            return
        reference = self.url.path.rpartition("/")[2]
        if "/manifests/" in self.url.path:
            assert "application/vnd.oci.image.manifest.v1+json" in self.headers["Accept"]
            self.registry.before_reading(reference)
            data = self.registry.manifests.get(reference)
            if data is None:
                self.fault(404, "MANIFEST_UNKNOWN")
            else:
                self.answer(200, data, {"Docker-Content-Digest": str(Digest.of(data))})
        elif reference in self.registry.blobs:
            self.answer(200, self.registry.blobs[reference])
        elif reference in self.registry.uploads:
            self.told(204, reference)
        else:
            self.fault(404, "BLOB_UPLOAD_UNKNOWN")

    def told(self, status: int, upload: str) -> None:
        place = f"{self.registry.elsewhere}{UPLOADS.format(name='team/digits')}{upload}?state=x"
        self.answer(status, b"", {"Location": place, "Range": f"0-{max(0, len(self.registry.uploads[upload]) - 1)}"})

    def do_POST(self) -> None:
        if self.begun():
            assert self.url.path == UPLOADS.format(name="team/digits")
            upload = secrets.token_hex(8)
            self.registry.uploads[upload] = b""
            self.told(202, upload)

    def do_PATCH(self) -> None:
        if not self.begun():
            return
        upload = self.url.path.rpartition("/")[2]
        if upload not in self.registry.uploads:
            self.rfile.read(self.length)
            self.fault(404, "BLOB_UPLOAD_UNKNOWN")
            return
        first, last = (int(one) for one in self.headers["Content-Range"].split("-"))
        assert last - first + 1 == self.length
        if first != len(self.registry.uploads[upload]):
            self.rfile.read(self.length)
            self.answer(416)
            return
        cut = self.registry.cuts.pop(0) if self.registry.cuts else None
        data = self.rfile.read(self.length if cut is None else min(cut, self.length))
        self.registry.received += len(data)
        self.registry.uploads[upload] += data
        if cut is None:
            self.told(202, upload)
            return
        if self.registry.forgets:
            del self.registry.uploads[upload]
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def do_PUT(self) -> None:
        if not self.begun():
            return
        body, name = self.rfile.read(self.length), self.url.path.rpartition("/")[2]
        if "/manifests/" in self.url.path:
            self.put_manifest(body, name)
            return
        data, digest = self.registry.uploads.pop(name), parse_qs(self.url.query)["digest"][0]
        if str(Digest.of(data)) != digest:
            self.fault(400, "DIGEST_INVALID")
            return
        self.registry.blobs[digest] = data
        if self.registry.lost:
            self.registry.lost -= 1
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.answer(201, b"", {"Location": f"/v2/team/digits/blobs/{digest}"})

    def put_manifest(self, body: bytes, name: str) -> None:
        document = json.loads(body)
        assert self.headers["Content-Type"] == document["mediaType"]
        if any(one["digest"] not in self.registry.blobs for one in (document["config"], *document["layers"])):
            self.fault(400, "MANIFEST_BLOB_UNKNOWN")
        elif name.startswith("sha256:") and name != str(Digest.of(body)):
            self.fault(400, "DIGEST_INVALID")
        else:
            self.registry.tagged(name, body)
            self.answer(201, b"", {"Docker-Content-Digest": str(Digest.of(body))})

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def fake_registry() -> Iterator[tuple[str, FakeRegistry]]:
    """Serve on loopback; gives its host and what it holds."""
    registry = FakeRegistry()
    handler = type("Handler", (Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", registry
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def real_registry(folder: Path, *, login: bool = False, before: Sequence[str] = ()) -> Iterator[str]:
    """Start Debian's registry on loopback; gives its host. `before` are the first words of its command."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip(MISSING)
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}\n" if login else ""
    (folder / "config.yml").write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n" + auth
    )
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        command = [*before, program, "serve", str(folder / "config.yml")]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(server.wait)
        stack.callback(server.kill)
        _until_answering(port, server)
        yield f"127.0.0.1:{port}"


def _until_answering(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if requests.get(f"http://127.0.0.1:{port}/v2/", timeout=5).status_code in {200, 401}:
                return
        except requests.RequestException:
            time.sleep(0.05)
    pytest.fail("docker-registry did not start")


def _free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


class _Proxy:
    """Passes bytes on, both ways, until it is to cut."""

    def __init__(self, host: str, cuts: Sequence[int], *, dies: bool) -> None:
        name, port = host.split(":")
        self._server, self._dies = (name, int(port)), dies
        self.left, self._guard = list(cuts), threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if self._dies and not self.left:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                for source, target, counts in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, target, counts), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65_536):
                passed += len(data)
                target.sendall(data)
                if counts and self._cuts(passed):
                    break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _cuts(self, passed: int) -> bool:
        with self._guard:
            if not self.left or passed < self.left[0]:
                return False
            self.left.pop(0)
            return True


@contextmanager
def cutting_proxy(host: str, cuts: Sequence[int], *, dies: bool = False) -> Iterator[str]:
    """Stand before a registry, and cut connections after so many bytes sent to it, one entry per cut; gives its host.

    With `dies` nothing goes through any more after the last cut.
    """
    proxy = _Proxy(host, cuts, dies=dies)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    assert not proxy.left, f"these cuts never came: {proxy.left}"
