"""What every builder promises: an image by digest that depends on the source and nothing else."""

import importlib.metadata
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlgitops.adapters.builder.docker import DockerBuilder
from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.core.configuration import DockerBuild
from mlgitops.core.errors import InvalidInput
from mlgitops.core.names import ImageReference
from mlgitops.ports.builder import Builder, BuildRequest
from tests.support.docker_engine import real_engine
from tests.support.registry import real_registry

NUMPY = importlib.metadata.version("numpy")


DOCKERFILE = "FROM scratch\nCOPY . /app/\nWORKDIR /app\n"


@dataclass(frozen=True)
class Dockerised:
    """A builder with a Docker Engine, asked for the images that the embedded one is asked for."""

    below: DockerBuilder
    host: str

    def build(self, request: BuildRequest) -> ImageReference:
        (request.source / "Dockerfile").write_text(DOCKERFILE)
        os.utime(request.source / "Dockerfile", (1_000_000, 1_000_000))
        wanted = replace(request, repository=f"{self.host}/{request.repository}", docker=DockerBuild())
        try:
            image = self.below.build(wanted)
        finally:
            (request.source / "Dockerfile").unlink()
        return replace(image, repository=image.repository.removeprefix(f"{self.host}/"))


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """Start one engine for all tests here."""
    with real_engine() as address:
        yield address


@pytest.fixture(params=["embedded", "docker"])
def builder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    if request.param == "embedded":
        yield EmbeddedBuilder(tmp_path / "registry")
        return
    monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("engine"))
    with real_registry(tmp_path / "real") as host:
        yield Dockerised(DockerBuilder(tmp_path / "builds", lambda _: None, lambda _: None), host)


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "train.py").write_text("print('training')\n")
    (source / "package" / "__init__.py").write_text("")
    (source / "package" / "layers.py").write_text("UNITS = 16\n")
    (source / "unused.py").write_text("raise SystemExit\n")
    (source / "requirements.txt").write_text(f"numpy=={NUMPY}\n")
    return BuildRequest(
        source=source,
        files=["train.py", "package/__init__.py", "package/layers.py"],
        requirements="requirements.txt",
        entrypoint=("python", "train.py"),
        repository="team/digits",
        tag="v1",
        annotations={"org.opencontainers.image.title": "digits"},
    )


def test_same_source_same_digest(builder: Builder, request_: BuildRequest) -> None:
    """Building the same source again gives the same image, whatever times, modes and order the files have."""
    first = builder.build(request_)
    for file in request_.source.rglob("*"):
        os.utime(file, (1_000_000, 1_000_000))
    (request_.source / "train.py").chmod(0o600)
    again = builder.build(replace(request_, files=list(reversed(request_.files))))
    assert again == first
    assert first.repository == "team/digits"


@pytest.mark.parametrize("name", ["train.py", "package/layers.py", "requirements.txt"])
def test_another_source_another_digest(builder: Builder, request_: BuildRequest, name: str) -> None:
    """A changed byte of any training input gives another image."""
    first = builder.build(request_)
    with (request_.source / name).open("a") as stream:
        stream.write("# changed\n")
    assert builder.build(request_) != first


def test_files_that_are_no_inputs_do_not_matter(builder: Builder, request_: BuildRequest) -> None:
    """Only the declared files decide."""
    first = builder.build(request_)
    (request_.source / "unused.py").write_text("something else")
    (request_.source / "README.md").write_text("new")
    assert builder.build(request_) == first


def test_command_and_permission_to_run_matter(builder: Builder, request_: BuildRequest) -> None:
    """What changes how the image runs changes the image."""
    first = builder.build(request_)
    assert builder.build(replace(request_, entrypoint=("python", "other.py"))) != first
    (request_.source / "train.py").chmod(0o755)
    assert builder.build(request_) != first


def test_the_tag_does_not_matter(builder: Builder, request_: BuildRequest) -> None:
    """A tag is for people and leaves the digest alone."""
    assert builder.build(request_) == builder.build(replace(request_, tag="v2"))


@pytest.mark.parametrize(
    "path", ["../outside.py", "/etc/passwd", "missing.py", "a/../train.py", "./train.py", "", "a\\b", "a\nb"]
)
def test_files_outside_the_source_are_refused(builder: Builder, request_: BuildRequest, path: str) -> None:
    """A path that leaves the source, or leads nowhere in it, is refused."""
    (request_.source.parent / "outside.py").write_text("secret")
    with pytest.raises(InvalidInput):
        builder.build(replace(request_, files=["train.py", path]))


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.py", "missing"])
def test_links_that_leave_the_source_are_refused(builder: Builder, request_: BuildRequest, target: str) -> None:
    """A link cannot bring a file of the building machine into an image."""
    (request_.source.parent / "outside.py").write_text("secret")
    (request_.source / "link.py").symlink_to(target)
    with pytest.raises(InvalidInput, match="link"):
        builder.build(replace(request_, files=["train.py", "link.py"]))


def test_links_to_undeclared_files_are_refused(builder: Builder, request_: BuildRequest) -> None:
    """A link to a file that is no training input would change the image without changing the release."""
    (request_.source / "link.py").symlink_to("unused.py")
    with pytest.raises(InvalidInput, match="not among the training inputs"):
        builder.build(replace(request_, files=["train.py", "link.py"]))
    builder.build(replace(request_, files=["train.py", "link.py", "unused.py"]))


def test_special_files_are_refused(builder: Builder, request_: BuildRequest) -> None:
    """A named pipe is refused at once instead of waited for."""
    os.mkfifo(request_.source / "pipe")
    with pytest.raises(InvalidInput, match="pipe"):
        builder.build(replace(request_, files=["train.py", "pipe"]))


def test_names_that_are_not_text_are_refused(builder: Builder, request_: BuildRequest) -> None:
    """A file name that is not UTF-8 is refused."""
    name = os.fsdecode(b"package/\xff.py")
    (request_.source / name).write_text("")
    for files in (["train.py", name], ["train.py", "package"]):
        with pytest.raises(InvalidInput, match="UTF-8"):
            builder.build(replace(request_, files=files))


@pytest.mark.parametrize(
    "repository", ["../x", "a/../x", "/abs", "Digits", "a//b", "a/", "", "a/blobs", "x" * 300, "a b", "a@b"]
)
def test_hostile_image_repositories_are_refused(builder: Builder, request_: BuildRequest, repository: str) -> None:
    """A repository's name leads nowhere but into the registry."""
    with pytest.raises(InvalidInput):
        builder.build(replace(request_, repository=repository))


@pytest.mark.parametrize("tag", ["", "a b", "../x", "-v1", "x" * 129, "a\n"])
def test_hostile_tags_are_refused(builder: Builder, request_: BuildRequest, tag: str) -> None:
    """A tag has the form that every registry accepts."""
    with pytest.raises(InvalidInput):
        builder.build(replace(request_, tag=tag))


@pytest.mark.parametrize("entrypoint", [(), ("",), ("python", "a\0b")])
def test_a_command_is_needed(builder: Builder, request_: BuildRequest, entrypoint) -> None:
    """An image without a command that can run is refused."""
    with pytest.raises(InvalidInput):
        builder.build(replace(request_, entrypoint=entrypoint))


def test_every_problem_is_told_at_once(builder: Builder, request_: BuildRequest) -> None:
    """A person hears of all missing files in one go."""
    with pytest.raises(InvalidInput) as caught:
        builder.build(replace(request_, files=["one.py", "two.py", "train.py"]))
    assert [problem.path for problem in caught.value.problems] == ["one.py", "two.py"]


def test_unlocked_requirements_are_refused(builder: Builder, request_: BuildRequest) -> None:
    """Requirements that lock nothing are refused with their lines."""
    (request_.source / "requirements.txt").write_text(f"# comment\nnumpy=={NUMPY}\nscipy>=1\n")
    with pytest.raises(InvalidInput) as caught:
        builder.build(request_)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("requirements.txt", 3)


def test_large_sources_are_refused(request_: BuildRequest, tmp_path: Path) -> None:
    """Data that was declared as code is refused before it fills a registry."""
    (request_.source / "train.py").write_bytes(b"#" * 5000)
    with pytest.raises(InvalidInput, match="at most"):
        EmbeddedBuilder(tmp_path / "registry", context_bytes=4000).build(request_)
    with pytest.raises(InvalidInput, match="at most"):
        EmbeddedBuilder(tmp_path / "registry", context_files=3).build(request_)


def test_source_is_left_alone(builder: Builder, request_: BuildRequest) -> None:
    """A build writes nothing into the source."""
    before = {path: path.stat().st_mtime_ns for path in Path(request_.source).rglob("*")}
    builder.build(request_)
    assert {path: path.stat().st_mtime_ns for path in Path(request_.source).rglob("*")} == before
