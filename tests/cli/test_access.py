"""Secrets from the environment: they reach the server and the signature, and no output."""

import base64
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlgitops.adapters.redacting import redacted
from mlgitops.cli.settings import access, registry_login
from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.fields import LEDGER

SECRET = "planted-secret-of-nobody"


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Return the address of a server that asks for a password and lets nobody in, and what it was given."""
    given: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            header = self.headers.get("Authorization")
            given.extend([header] if header else [])
            self.send_response(403 if header else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/environments.git", given
        running.shutdown()


def test_a_token_reaches_the_server_and_no_output(
    desk: Callable[[str], Any], server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLGITOPS_TOKEN is what the server is given, and is not in what a refusal prints."""
    monkeypatch.setenv("MLGITOPS_TOKEN", SECRET)
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "cache"))
    address, given = server
    told = desk("calm")("history", "-R", address, "--verbose")
    assert told.code != 0
    assert base64.b64decode(given[0].split()[1]).decode().endswith(f":{SECRET}")
    assert SECRET not in told.out + told.err


def test_decisions_are_signed(desk: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With MLGITOPS_SIGNING_KEY the commit of a decision carries a signature that the key's owner made."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    monkeypatch.setenv("MLGITOPS_SIGNING_KEY", str(key))
    place = desk("calm")
    assert place("hold", "--reason", "audit").code == 0
    allowed = tmp_path / "allowed"
    allowed.write_text(f"* {(tmp_path / 'key.pub').read_text()}")
    words = ["git", "-C", str(place.repository), "-c", f"gpg.ssh.allowedSignersFile={allowed}", "verify-commit", LEDGER]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "variables",
    [
        {"MLGITOPS_SSH_KEY": SECRET},
        {"MLGITOPS_SSH_KEY": f"-----BEGIN-----\n{SECRET}"},
        {"MLGITOPS_KNOWN_HOSTS": SECRET},
        {"MLGITOPS_SIGNING_KEY": SECRET},
        {"MLGITOPS_TOKEN": f"{SECRET}\n{SECRET}"},
        {"MLGITOPS_SIGNING_PROGRAM": SECRET},
    ],
)
def test_what_cannot_be_used_is_named_by_its_variable_alone(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret where a path belongs, or one that was cut wrongly, is refused and not repeated."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput) as caught:
        access()
    assert next(iter(variables)) in str(caught.value)
    assert SECRET not in str(caught.value)


def test_nothing_is_asked_for_where_nothing_is_set() -> None:
    """Without variables there are no secrets, and commits are not signed."""
    found = access()
    assert found.signing is None
    assert found.credentials is not None
    assert (found.credentials.token, found.credentials.key, found.credentials.known_hosts) == (None, None, None)


def test_own_secrets_are_redacted_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of no known shape is kept out of output because it is the one that was given."""
    monkeypatch.setenv("MLGITOPS_TOKEN", SECRET)
    assert redacted(f"refused: {SECRET}!") == "refused: ***!"


def test_a_registrys_login_is_whole_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and password are for the registry that is named with them; less than all three is refused, unshown."""
    assert registry_login() is None
    variables = {"": "registry.example.com:5000", "_USER": "ada", "_PASSWORD": SECRET}
    for name, value in variables.items():
        monkeypatch.setenv(f"MLGITOPS_REGISTRY{name}", value)
    found = registry_login()
    assert found is not None
    assert (found.host, found.credentials.username) == ("registry.example.com:5000", "ada")
    assert SECRET not in repr(found)
    for name in variables:
        with monkeypatch.context() as patch:
            patch.delenv(f"MLGITOPS_REGISTRY{name}")
            with pytest.raises(InvalidInput, match="belong together") as caught:
                registry_login()
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("host", ["https://registry.example.com", "registry", "registry.example.com/team"])
def test_a_registry_is_named_by_its_host(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address, a bare word or a repository is no registry: credentials would silently never be used."""
    for name, value in {"": host, "_USER": "ada", "_PASSWORD": SECRET}.items():
        monkeypatch.setenv(f"MLGITOPS_REGISTRY{name}", value)
    with pytest.raises(InvalidInput, match="must be a registry's host"):
        registry_login()
