"""What a build with a Docker Engine promises beyond the port, held by real ones, and by imitations with faults."""

import base64
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import pytest
import requests

from mlgitops.adapters.builder import docker as module
from mlgitops.adapters.builder import logs
from mlgitops.adapters.builder.chosen import ChosenBuilder
from mlgitops.adapters.builder.login import Credentials, Login
from mlgitops.core.configuration import DockerBuild
from mlgitops.core.errors import Conflict, Denied, DigestMismatch, InvalidInput, MlgitopsError, NotFound, Unavailable
from mlgitops.core.names import Digest
from mlgitops.ports.builder import BuildRequest
from tests.support.docker_engine import FakeEngine, fake_engine, real_engine
from tests.support.registry import PASSWORD, USER, FakeRegistry, fake_registry, real_registry

DOCKERFILE = """\
ARG BASE_IMAGE=scratch
FROM ${BASE_IMAGE} AS training
ARG FLAVOUR=plain
ENV FLAVOUR=${FLAVOUR}
COPY . /app/
FROM training AS other
LABEL other=yes
"""


@dataclass
class Told:
    """An observer that remembers."""

    words: list[str] = field(default_factory=list)

    def note(self, message: str) -> None:
        self.words.append(message)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)


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
    (source / "train.py").write_text("print('training')\n")
    (source / "secret.txt").write_text("not declared")
    (source / "requirements.txt").write_text("numpy==2.0.0\n")
    (source / "Dockerfile").write_text(DOCKERFILE)
    return BuildRequest(
        source=source,
        files=["train.py", "Dockerfile"],
        requirements="requirements.txt",
        entrypoint=("python", "train.py"),
        repository="127.0.0.1:1/team/digits",
        tag="v1",
        annotations={"org.opencontainers.image.title": "digits"},
        docker=DockerBuild(),
    )


def at(host: str, request: BuildRequest, **recipe: Any) -> BuildRequest:
    return replace(request, repository=f"{host}/team/digits", docker=DockerBuild(**recipe))


# --- the real ones ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _address() -> Iterator[str]:
    with real_engine() as address:
        yield address


@pytest.fixture
def engine(_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DOCKER_HOST", _address)
    return _address


@pytest.fixture
def host(engine: str, tmp_path: Path) -> Iterator[str]:
    with real_registry(tmp_path / "registry") as address:
        yield address


def config_of(host: str, reference: str) -> Any:
    """Return the configuration of an image, as the registry has it."""
    base, accept = f"http://{host}/v2/team/digits", "application/vnd.docker.distribution.manifest.v2+json"
    manifest = requests.get(f"{base}/manifests/{reference}", headers={"Accept": accept}, timeout=10).json()
    return requests.get(f"{base}/blobs/{manifest['config']['digest']}", timeout=10).json()


def test_the_image_is_what_was_asked_for(
    host: str, builder: ChosenBuilder, request_: BuildRequest, tmp_path: Path
) -> None:
    """Arguments, target, annotations and the command reach the image; undeclared files do not; the log is kept."""
    image = builder.build(at(host, request_, arguments={"FLAVOUR": "strong"}, target="training"))
    config = config_of(host, str(image.digest))["config"]
    assert "FLAVOUR=strong" in config["Env"]
    assert config["Labels"] == {
        "org.opencontainers.image.title": "digits",
        module.COMMAND_LABEL: '["python", "train.py"]',
    }
    client = docker.DockerClient.from_env().api
    container = client.create_container(str(image), "x")
    stream, _ = client.get_archive(container, "/app")
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        names = archive.getnames()
    client.close()
    assert sorted(names) == ["app", "app/Dockerfile", "app/requirements.txt", "app/train.py"]
    log = (tmp_path / "builds" / host / "team" / "digits" / "v1.log").read_text()
    assert "FROM ${BASE_IMAGE} AS training" in log


def test_the_last_stage_is_built_without_a_target(host: str, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """Without a target the whole Dockerfile is built, for the platform that is named."""
    image = builder.build(at(host, request_, platform="linux/amd64"))
    config = config_of(host, str(image.digest))
    assert config["config"]["Labels"]["other"] == "yes"
    assert (config["os"], config["architecture"]) == ("linux", "amd64")


def test_a_rebuilt_image_with_another_digest_is_told(host, builder, request_: BuildRequest, told: Told) -> None:
    """A second build of the same commit that gives another image is told, with both digests."""
    first = builder.build(at(host, request_))
    again = builder.build(at(host, request_))
    assert again == first
    assert not [words for words in told.words if "named" in words]
    other = builder.build(at(host, request_, arguments={"FLAVOUR": "other"}))
    (words,) = [words for words in told.words if "tag v1 named" in words]
    assert str(first.digest) in words
    assert str(other.digest) in words


def test_a_dockerfile_that_does_not_build(host: str, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A failing step is the Dockerfile's problem, told with the end of the build; nothing is pushed."""
    (request_.source / "Dockerfile").write_text("FROM scratch\nCOPY missing.txt /\n")
    with pytest.raises(InvalidInput, match=r"missing\.txt") as caught:
        builder.build(at(host, request_))
    (problem,) = caught.value.problems
    assert problem.path == "Dockerfile"
    assert requests.get(f"http://{host}/v2/team/digits/tags/list", timeout=10).status_code == 404


def test_a_dockerfile_that_is_none(host: str, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A file that is no Dockerfile at all is told as that, too: the engine refuses it before it says anything."""
    (request_.source / "Dockerfile").write_text("THIS is none\n")
    with pytest.raises(InvalidInput, match=r"unknown instruction"):
        builder.build(at(host, request_))


def test_a_login(engine: str, tmp_path: Path, request_: BuildRequest) -> None:
    """The engine pushes with the credentials that are found; without, or with wrong ones, one error says so."""
    with real_registry(tmp_path / "registry", login=True) as host:
        for password, words in (("", "no credentials for"), ("wrong", "were refused"), (PASSWORD, "")):
            given = Login(host=host, credentials=Credentials(username=USER, password=password)) if password else None
            build = ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", Told(), given).build
            if words:
                with pytest.raises(Denied, match=words):
                    build(at(host, request_))
            else:
                assert build(at(host, request_)).repository == f"{host}/team/digits"


# --- imitations -------------------------------------------------------------------------------------------------------


@dataclass
class Faulty:
    """An engine and a registry that faults can be put into."""

    engine: FakeEngine
    registry: FakeRegistry
    host: str

    def holds(self, data: bytes) -> str:
        """Put an image into the registry under the tag; returns its digest, as an engine tells it."""
        self.registry.tagged("v1", data)
        return str(Digest.of(data))


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    with fake_engine() as (address, engine), fake_registry() as (host, registry):
        monkeypatch.setenv("DOCKER_HOST", address)
        yield Faulty(engine, registry, host)


BUILT: list[dict[str, Any]] = [{"stream": "Step 1/1 : FROM scratch\n"}, {"stream": "Successfully built\n"}]


def pushed(digest: str) -> list[dict[str, Any]]:
    return [{"status": "Pushed", "id": "abc"}, {"aux": {"Tag": "v1", "Digest": digest, "Size": 1}}]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("write /data: no space left on device", Unavailable, "Docker Engine is unavailable: no space left there"),
        ("The command 'pip install' returned a non-zero code: 1", InvalidInput, "returned a non-zero code"),
        ("manifest for base:1 not found: token=abcdefghijkl", InvalidInput, "token=\\*\\*\\*"),
    ],
)
def test_what_ends_a_build(
    faulty: Faulty, builder, request_, error: str, kind: type[MlgitopsError], words: str
) -> None:
    """A failed build is one error, without secrets, and nothing is pushed."""
    faulty.engine.builds = [[*BUILT, {"error": error}]]
    with pytest.raises(kind, match=words):
        builder.build(at(faulty.host, request_))
    assert [path for path, _ in faulty.engine.asked] == ["build"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("unauthorized: authentication required", Denied),
        ("denied: requested access to the resource is denied", Denied),
        ("name unknown: repository name not known to registry", NotFound),
    ],
)
def test_what_a_push_is_refused_for(faulty: Faulty, builder, request_, error: str, kind: type[MlgitopsError]) -> None:
    """A refused push is not tried again."""
    faulty.engine.builds, faulty.engine.pushes = [BUILT], [[{"error": error}]]
    with pytest.raises(kind):
        builder.build(at(faulty.host, request_))
    assert not faulty.engine.pushes


def test_a_push_that_breaks_off_is_tried_again(faulty: Faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A push that was cut, or whose registry was unreachable, goes on with the layers that are missing."""
    digest = faulty.holds(b"{}")
    cut: list[dict[str, Any]] = [{"status": "Pushing"}, {"broken": True}]
    faulty.engine.builds = [BUILT]
    faulty.engine.pushes = [cut, [{"error": "dial tcp: connection refused"}], pushed(digest)]
    assert str(builder.build(at(faulty.host, request_)).digest) == digest
    assert not faulty.engine.pushes


def test_a_build_that_breaks_off(faulty: Faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """An engine that ends in the middle of a build is unavailable, and what was half built is not pushed."""
    faulty.engine.builds = [[*BUILT, {"broken": True}]]
    with pytest.raises(Unavailable, match="it broke off"):
        builder.build(at(faulty.host, request_))
    assert [path for path, _ in faulty.engine.asked] == ["build"]


def test_a_digest_that_the_registry_does_not_have(faulty: Faulty, builder, request_: BuildRequest) -> None:
    """What the engine says it pushed is believed only as far as the registry has it."""
    faulty.engine.builds, faulty.engine.pushes = [BUILT], [pushed(str(Digest.of(b"never pushed")))]
    with pytest.raises(DigestMismatch):
        builder.build(at(faulty.host, request_))


def test_a_tag_that_somebody_else_pushed(faulty: Faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A tag that names another image right after the push is a conflict."""
    digest = faulty.holds(b"{}")
    faulty.holds(b'{"theirs": true}')
    faulty.engine.builds, faulty.engine.pushes = [BUILT], [pushed(digest)]
    with pytest.raises(Conflict, match="somebody else pushed it"):
        builder.build(at(faulty.host, request_))


def test_credentials_of_others_are_not_shown(faulty: Faulty, tmp_path: Path, request_: BuildRequest) -> None:
    """The engine gets the credentials of the registry that it pushes to, and nobody else's."""
    digest = faulty.holds(b"{}")
    other = Login(host="registry.example.com", credentials=Credentials(username=USER, password=PASSWORD))
    faulty.engine.builds, faulty.engine.pushes = [BUILT], [pushed(digest)]
    ChosenBuilder(tmp_path / "layouts", tmp_path / "builds", Told(), other).build(at(faulty.host, request_))
    assert [json.loads(base64.urlsafe_b64decode(shown)) for shown in faulty.engine.shown] == [{}]


def test_logs_are_redacted_and_few(faulty: Faulty, builder, request_, tmp_path: Path, monkeypatch, told: Told) -> None:
    """A log holds no secret, and the oldest logs of an image repository make room."""
    monkeypatch.setattr(logs, "KEPT", 3)
    digest = faulty.holds(b"{}")
    secret = "ghp_" + "a" * 30
    for number in range(5):
        faulty.holds(b"{}")
        faulty.registry.manifests[f"t{number}"] = b"{}"
        step = {"stream": f"Step 1/1 : ENV X={secret}\n"}
        faulty.engine.builds, faulty.engine.pushes = [[step]], [pushed(digest)]
        builder.build(replace(at(faulty.host, request_), tag=f"t{number}"))
        os.utime(next(tmp_path.glob(f"builds/**/t{number}.log")), (number, number))
    kept = sorted(tmp_path.glob("builds/**/*.log"))
    assert [one.name for one in kept] == ["t2.log", "t3.log", "t4.log"]
    assert all("ENV X=***" in one.read_text() for one in kept)
    assert secret not in "\n".join(told.words)


def test_there_is_no_engine(builder: ChosenBuilder, request_: BuildRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine it is said what to do, and that it can be tried later."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(Unavailable, match="say where it is with DOCKER_HOST"):
        builder.build(request_)


def test_the_dockerfile_must_be_committed(faulty: Faulty, builder: ChosenBuilder, request_: BuildRequest) -> None:
    """A Dockerfile that the revision does not have is named, before the engine is asked for anything."""
    with pytest.raises(InvalidInput, match=r"docker/Dockerfile: does not exist"):
        builder.build(at(faulty.host, request_, dockerfile="docker/Dockerfile"))
    assert not faulty.engine.asked
