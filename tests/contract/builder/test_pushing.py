"""What pushing an image promises, held by the real registry of Debian and by one that faults can be put into."""

import base64
import importlib.metadata
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import requests

from mlgitops.adapters.builder import login
from mlgitops.adapters.builder import registry as registry_module
from mlgitops.adapters.builder.chosen import ChosenBuilder
from mlgitops.adapters.builder.login import Credentials, Login
from mlgitops.core.errors import Conflict, Denied, DigestMismatch, InvalidInput, NotFound, Unavailable
from mlgitops.core.names import Digest, ImageReference
from mlgitops.ports.builder import BuildRequest
from tests.support.registry import (
    PASSWORD,
    USER,
    FakeRegistry,
    cutting_proxy,
    fake_registry,
    real_registry,
)

NUMPY = importlib.metadata.version("numpy")
LARGE = 3_000_000
SMALL_DISK = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"',
)


@dataclass
class Told:
    """An observer that remembers."""

    words: list[str] = field(default_factory=list)

    def note(self, message: str) -> None:
        self.words.append(message)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def builder(tmp_path: Path, told: Told) -> ChosenBuilder:
    return ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", told)


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_bytes(b"#" * LARGE)
    (source / "requirements.txt").write_text(f"numpy=={NUMPY}\n")
    return BuildRequest(
        source=source,
        files=["train.py"],
        requirements="requirements.txt",
        entrypoint=("python", "train.py"),
        repository="127.0.0.1:1/team/digits",
        tag="v1",
        push=True,
    )


@pytest.fixture(params=["fake", "real"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "fake":
        with fake_registry() as (address, _):
            yield address
    else:
        with real_registry(tmp_path / "registry") as address:
            yield address


@pytest.fixture
def faulty() -> Iterator[tuple[str, FakeRegistry]]:
    with fake_registry() as found:
        yield found


def at(host: str, request: BuildRequest) -> BuildRequest:
    return replace(request, repository=f"{host}/team/digits")


def manifest_of(host: str, reference: str) -> requests.Response:
    headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    return requests.get(f"http://{host}/v2/team/digits/manifests/{reference}", headers=headers, timeout=10)


# --- every registry ---------------------------------------------------------------------------------------------------


def test_the_named_image_is_what_the_registry_has(host: str, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """The digest that is named is that of the bytes in the registry, and the tag names them too."""
    image = builder.build(at(host, request_))
    assert image.repository == f"{host}/team/digits"
    for reference in (str(image.digest), "v1"):
        assert Digest.of(manifest_of(host, reference).content) == image.digest
    manifest = manifest_of(host, str(image.digest)).json()
    for blob in (manifest["config"], *manifest["layers"]):
        data = requests.get(f"http://{host}/v2/team/digits/blobs/{blob['digest']}", timeout=10).content
        assert str(Digest.of(data)) == blob["digest"]


def test_what_is_there_is_not_sent_again(host: str, builder: ChosenBuilder, request_: BuildRequest, told: Told) -> None:
    """A second push sends no blob, and a changed script sends its own layer and the configuration only."""
    first = builder.build(at(host, request_))
    told.words.clear()
    assert builder.build(at(host, request_)) == first
    assert [words for words in told.words if "sending" in words] == []
    (request_.source / "train.py").write_text("print('changed')\n")
    assert builder.build(at(host, request_)) != first
    assert len([words for words in told.words if "sending" in words]) == 2


def test_a_cut_upload_is_ended(host: str, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A connection that breaks in the middle of a layer, twice, costs nobody a push."""
    with cutting_proxy(host, [LARGE // 3, LARGE // 2]) as between:
        image = builder.build(at(between, request_))
    assert Digest.of(manifest_of(host, "v1").content) == image.digest


def test_a_rerun_sends_what_was_missing(host: str, builder: ChosenBuilder, request_: BuildRequest, told: Told) -> None:
    """A push that was given up is unavailable, and the same push goes on with the blobs that are missing."""
    with cutting_proxy(host, [LARGE // 2], dies=True) as between, pytest.raises(Unavailable):
        builder.build(at(between, request_))
    assert manifest_of(host, "v1").status_code == 404
    told.words.clear()
    builder.build(at(host, request_))
    assert [words for words in told.words if "there already" in words]
    assert manifest_of(host, "v1").status_code == 200


def test_a_tag_that_others_pushed_is_told(
    host: str, builder: ChosenBuilder, request_: BuildRequest, told: Told
) -> None:
    """A tag that named another image is noticed by its digest, and said."""
    first = builder.build(at(host, request_))
    (request_.source / "train.py").write_text("print('another')\n")
    second = builder.build(at(host, request_))
    (words,) = [words for words in told.words if "tag v1 named" in words]
    assert str(first.digest) in words
    assert str(second.digest) in words
    assert Digest.of(manifest_of(host, str(first.digest)).content) == first.digest


# --- the real one alone -----------------------------------------------------------------------------------------------


def test_a_login_of_the_real_registry(tmp_path: Path, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """The right password from the environment opens it; without one, or with a wrong one, one error says so."""
    with real_registry(tmp_path / "registry", login=True) as host:
        with pytest.raises(Denied, match="no credentials for"):
            builder.build(at(host, request_))
        for password in ("wrong", PASSWORD):
            given = Login(host=host, credentials=Credentials(username=USER, password=password))
            build = ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", Told(), given).build
            if password == PASSWORD:
                build(at(host, request_))
            else:
                with pytest.raises(Denied, match="were refused") as caught:
                    build(at(host, request_))
                assert "wrong" not in str(caught.value)


def test_a_full_disk_of_the_real_registry(tmp_path: Path, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A registry without room is unavailable, and it is said that this is why."""
    data = tmp_path / "registry" / "data"
    data.mkdir(parents=True)
    tried = subprocess.run([*SMALL_DISK, str(data), "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this machine gives processes no file systems of their own (unshare --user --mount)")
    small = [*SMALL_DISK, str(data)]
    with (
        real_registry(tmp_path / "registry", before=small) as host,
        pytest.raises(Unavailable, match="no space left"),
    ):
        builder.build(at(host, request_))


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_cut_upload_goes_on_where_it_stopped(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """Bytes that arrived before a cut are not sent again, and an upload that gets on is never given up."""
    host, registry = faulty
    registry.cuts = [200_000] * 10
    builder.build(at(host, request_))
    assert registry.received == sum(len(data) for data in registry.blobs.values())


def test_a_forgotten_upload_begins_anew(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A registry that does not know a cut upload any more gets the blob from its beginning."""
    host, registry = faulty
    registry.cuts, registry.forgets = [1_000_000], True
    builder.build(at(host, request_))
    assert max(len(data) for data in registry.blobs.values()) > LARGE


def test_a_lost_answer_is_looked_up(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A blob that arrived while its answer was lost is not sent again."""
    host, registry = faulty
    registry.lost = 1
    builder.build(at(host, request_))
    assert registry.received == sum(len(data) for data in registry.blobs.values())


def test_a_push_that_gets_nowhere_ends(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A registry that takes no byte is given up after a bounded number of attempts."""
    host, registry = faulty
    registry.cuts = [0] * 100
    with pytest.raises(Unavailable):
        builder.build(at(host, request_))
    assert len([one for one in registry.asked if one.startswith("PATCH")]) == registry_module.ATTEMPTS
    assert not registry.manifests


@pytest.mark.parametrize(
    ("method", "status", "body", "error", "words"),
    [
        ("POST", 403, b'{"errors":[{"code":"DENIED","message":"quota"}]}', Denied, "403 DENIED: quota"),
        ("POST", 404, b'{"errors":[{"code":"NAME_UNKNOWN"}]}', NotFound, "no image repository named"),
        ("PATCH", 507, b"", Unavailable, "no space left"),
        (
            "PUT",
            500,
            b'{"errors":[{"code":"UNKNOWN","detail":{"Err":"no space left on device"}}]}',
            Unavailable,
            "no space",
        ),
        ("PATCH", 413, b"<html>too large", Denied, "status 413 <html>too large"),
        ("PUT", 400, b"[" * 100_000, Denied, "status 400"),
        ("POST", 401, b"", Denied, "no credentials for"),
    ],
)
def test_what_a_registry_refuses_is_told_once(faulty, builder, request_, method, status, body, error, words) -> None:
    """A no is a no: one clear error that names the registry, at once, and nothing is tagged."""
    host, registry = faulty
    registry.answers = [(method, status, body, {})]
    with pytest.raises(error, match=words) as caught:
        builder.build(at(host, request_))
    assert host in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not registry.manifests


def test_trouble_that_passes_is_waited_for(faulty, tmp_path: Path, builder, request_, monkeypatch) -> None:
    """A registry that is overloaded is asked again, when it says."""
    host, registry = faulty
    pauses: list[float] = []
    monkeypatch.setattr(registry_module.Registry.__init__, "__kwdefaults__", {"sleep": pauses.append})
    registry.answers = [("POST", 503, b"", {"Retry-After": "7"}), ("PUT", 502, b"", {}), ("GET", 429, b"", {})]
    builder.build(at(host, request_))
    assert "v1" in registry.manifests
    assert 7.0 in pauses


def test_a_tag_moved_in_the_same_moment(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """Somebody who pushes the same tag between our push and our look at it is noticed: a conflict, to be run again."""
    host, registry = faulty

    def others(reference: str) -> None:
        if reference == "v1" and "v1" in registry.manifests:
            registry.tagged("v1", b'{"theirs": true}')

    registry.before_reading = others
    with pytest.raises(Conflict, match="somebody else pushed it"):
        builder.build(at(host, request_))


def test_other_bytes_under_the_digest(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A registry that gives other bytes than were sent is not believed."""
    host, registry = faulty

    def spoil(reference: str) -> None:
        if reference.startswith("sha256:"):
            registry.manifests[reference] = b"{}"

    registry.before_reading = spoil
    with pytest.raises(DigestMismatch):
        builder.build(at(host, request_))
    assert "v1" not in registry.manifests


def test_a_spoilt_layout_is_not_pushed(faulty, builder: ChosenBuilder, request_: BuildRequest, monkeypatch) -> None:
    """Bytes that changed on this disk after the build go nowhere."""
    host, registry = faulty
    real = registry_module.Registry.digest

    def spoil(self: registry_module.Registry, reference: str) -> Digest | None:
        for file in request_.source.parent.glob("layouts/**/blobs/sha256/*"):
            if file.stat().st_size > LARGE:
                file.chmod(0o600)
                file.write_bytes(b"x")
        return real(self, reference)

    monkeypatch.setattr(registry_module.Registry, "digest", spoil)
    with pytest.raises(DigestMismatch):
        builder.build(at(host, request_))
    assert not registry.manifests


# --- logins -----------------------------------------------------------------------------------------------------------


def docker_config(host: str, values: dict[str, object]) -> None:
    folder = Path(os.environ["HOME"], ".docker")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))


def pair(password: str = PASSWORD) -> str:
    return base64.b64encode(f"{USER}:{password}".encode()).decode()


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_a_login_from_dockers_configuration(faulty, builder: ChosenBuilder, request_: BuildRequest, kind: str) -> None:
    """What `docker login` wrote is used, for both ways in which registries ask."""
    host, registry = faulty
    registry.login = kind
    docker_config(host, {"auths": {host: {"auth": pair()}}})
    builder.build(at(host, request_))
    assert "v1" in registry.manifests


def test_a_login_from_a_credential_helper(faulty, builder, request_, tmp_path: Path, monkeypatch) -> None:
    """A credential helper that Docker's configuration names is asked, for this registry."""
    host, registry = faulty
    registry.login = "basic"
    helper = tmp_path / "bin" / "docker-credential-tests"
    helper.parent.mkdir()
    answer = json.dumps({"ServerURL": host, "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\nread asked; [ \"$asked\" = '{host}' ] && echo '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}{os.pathsep}{os.environ['PATH']}")
    docker_config(host, {"credHelpers": {host: "tests"}})
    builder.build(at(host, request_))
    assert "v1" in registry.manifests


def test_an_identity_token(faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """An identity token is exchanged for the registry's own, and shown to nobody else."""
    host, registry = faulty
    registry.login, registry.identity_token = "bearer", "an-identity"
    docker_config(host, {"auths": {host: {"identitytoken": "an-identity"}}})
    builder.build(at(host, request_))
    assert "v1" in registry.manifests
    assert not [shown for shown in registry.shown if shown and "an-identity" in shown]


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_a_refused_login(faulty, builder: ChosenBuilder, request_: BuildRequest, kind: str) -> None:
    """A wrong password is told as that, once, without the password."""
    host, registry = faulty
    registry.login = kind
    docker_config(host, {"auths": {host: {"auth": pair("not this one")}}})
    with pytest.raises(Denied, match=r"credentials were refused; log in again with `docker login") as caught:
        builder.build(at(host, request_))
    assert "not this one" not in str(caught.value)
    assert pair("not this one") not in str(caught.value)
    assert len(registry.asked) <= 2


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_credentials_are_shown_to_their_own_registry_only(faulty, tmp_path, request_, monkeypatch, kind) -> None:
    """Neither the environment's login nor `.netrc` opens a registry that a model's configuration chose."""
    host, registry = faulty
    registry.login = kind
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login {USER} password open\n")
    monkeypatch.setenv("NETRC", str(netrc))
    elsewhere = Login(host="registry.example.com", credentials=Credentials(username=USER, password=PASSWORD))
    with pytest.raises(Denied, match="no credentials for"):
        ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", Told(), elsewhere).build(at(host, request_))
    assert set(registry.shown) == {None}


def test_uploads_that_are_led_elsewhere_carry_no_login(faulty, tmp_path: Path, request_: BuildRequest) -> None:
    """A registry whose storage takes the bytes at another address does not get the login sent there."""
    host, registry = faulty
    registry.login = "basic"
    given = Login(host=host, credentials=Credentials(username=USER, password=PASSWORD))
    with fake_registry() as (other, storage):
        registry.elsewhere = f"http://{other}"
        with pytest.raises((Denied, NotFound, Unavailable)):
            ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", Told(), given).build(at(host, request_))
        assert storage.asked
        assert set(storage.shown) == {None}


def test_an_upload_is_not_led_to_an_open_connection(monkeypatch) -> None:
    """A registry behind TLS cannot lead an upload, or a login, to where everybody can read it."""
    found = registry_module.Registry("registry.example.com/team/digits", lambda _: None)
    response = requests.Response()
    response.url, response.headers["Location"] = "https://registry.example.com/v2/", "http://elsewhere.example.com/"
    with pytest.raises(Denied, match="open connection"):
        found._next(response)
    with pytest.raises(Denied, match="open connection"):
        found._authorization.answer('Bearer realm="http://elsewhere.example.com/token",service="x"')


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("127.0.0.1.example.com", "https://127.0.0.1.example.com"),
        ("registry.example.com:5000", "https://registry.example.com:5000"),
        ("docker.io", "https://registry-1.docker.io"),
    ],
)
def test_only_this_machine_needs_no_tls(host: str, address: str) -> None:
    """Every registry that is not on this machine is spoken to over TLS."""
    assert login.address_of(host) == address


@pytest.mark.parametrize("repository", ["digits", "team/digits"])
def test_a_push_needs_a_registry(builder: ChosenBuilder, request_: BuildRequest, repository: str) -> None:
    """A repository that names no registry is not pushed to one that somebody might guess."""
    with pytest.raises(InvalidInput, match="names no registry"):
        builder.build(replace(request_, repository=repository))


def test_nothing_is_pushed_unless_asked(builder: ChosenBuilder, request_: BuildRequest) -> None:
    """Without `push` no registry is spoken to, whatever the repository is called."""
    image = builder.build(replace(request_, push=False))
    assert isinstance(image, ImageReference)
