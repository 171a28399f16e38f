"""`init --dockerfile` writes an image that trains: pinned packages, no data, not root; and overwrites nothing."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import docker
import pytest

from mlgitops.app.dockerfile import initialise_dockerfile
from mlgitops.core.errors import InvalidInput, NotFound
from tests.support.docker_engine import real_engine

MODEL = """\
apiVersion: mlgitops.dev/v1
kind: Model
metadata: {name: digits}
inputs: INPUTS
data:
  - path: data/train.npz
requirements: requirements.txt
training: {script: train.py}
evaluation: {data: data/evaluation.npz, task: classification}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    (folder / "data").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "mlgitops.yaml").write_text(MODEL.replace("INPUTS", "[train.py, src]"))
    (folder / "train.py").write_text("import layers\n")
    (folder / "src" / "layers.py").write_text("UNITS = 16\n")
    (folder / "requirements.txt").write_text("numpy==2.4.6\n")
    (folder / "notes.txt").write_text("no input")
    (folder / "data" / "train.npz").write_text("data")
    (folder / "data" / "evaluation.npz").write_text("data")
    return folder


def test_it_writes_an_image_for_the_model(repository: Path) -> None:
    """The base image is an argument, the packages are the locked ones, and whoever trains is not root."""
    files = initialise_dockerfile(repository)
    assert set(files) == {"Dockerfile", ".dockerignore"}
    assert all((repository / name).read_bytes() == content for name, content in files.items())
    lines = (repository / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")][:2][1] == "FROM ${BASE_IMAGE}"
    assert "RUN python -m pip install --no-cache-dir -r requirements.txt" in lines
    assert lines[-1] == "USER 65532:65532"
    assert not [line for line in lines if "MLGITOPS" in line]


@pytest.mark.parametrize("text", ["from mlgitops import training\n", "if True:\n    import mlgitops.training\n"])
def test_what_imports_mlgitops_gets_it(repository: Path, text: str) -> None:
    """Code that imports `mlgitops.training`, also deep in a folder of inputs, finds it in the image."""
    (repository / "src" / "layers.py").write_text(text)
    assert b'-c requirements.txt "${MLGITOPS}"' in initialise_dockerfile(repository)["Dockerfile"]


def test_nothing_is_overwritten(repository: Path) -> None:
    """A Dockerfile that is there, or a link in its place, stays; what is missing is written all the same."""
    (repository / "Dockerfile").symlink_to("elsewhere")
    assert set(initialise_dockerfile(repository)) == {".dockerignore"}
    assert not (repository / "elsewhere").exists()
    assert initialise_dockerfile(repository) == {}


def test_a_dry_run_writes_nothing(repository: Path) -> None:
    """With `dry_run` the files are told, and none is there."""
    before = sorted(repository.rglob("*"))
    assert len(initialise_dockerfile(repository, dry_run=True)) == 2
    assert sorted(repository.rglob("*")) == before


def test_it_goes_where_the_configuration_says(repository: Path) -> None:
    """A Dockerfile that mlgitops.yaml names elsewhere is written there."""
    image = "image: {builder: docker, repository: localhost/x, dockerfile: docker/training}\n"
    (repository / "mlgitops.yaml").write_text(image + (repository / "mlgitops.yaml").read_text())
    assert "docker/training" in initialise_dockerfile(repository)


def test_it_needs_a_configuration(repository: Path) -> None:
    """Without a mlgitops.yaml nobody knows what belongs into an image; a path that a shell would read is refused."""
    text = (repository / "mlgitops.yaml").read_text()
    (repository / "mlgitops.yaml").write_text(text.replace("requirements.txt", "'locked; rm -r x.txt'"))
    with pytest.raises(InvalidInput, match="cannot stand in a Dockerfile"):
        initialise_dockerfile(repository)
    (repository / "mlgitops.yaml").unlink()
    with pytest.raises(NotFound):
        initialise_dockerfile(repository)


PYTHON = '#!/bin/busybox sh\n[ "$(/bin/busybox id -u)" = 0 ] && /bin/busybox echo "$@" >> /pip.log\n'
"""Stands for Python in the base image, which no registry is there for: it notes what it was asked."""


def base_image() -> bytes:
    """Return the file system of a base image: a shell, and what notes that pip was called."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("the program busybox is not installed (Debian: apt-get install busybox-static)")
    linked = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    assert "sh" in linked.stdout
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in {"bin/busybox": Path(busybox).read_bytes(), "usr/bin/python": PYTHON.encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
        shell = tarfile.TarInfo("bin/sh")
        shell.type, shell.linkname = tarfile.SYMTYPE, "busybox"
        archive.addfile(shell)
    return stream.getvalue()


@pytest.mark.parametrize("inputs", ["[train.py, src]", "['.']"])
def test_a_real_engine_builds_it(repository: Path, inputs: str) -> None:
    """Docker's own `build`, with the `.dockerignore`, makes an image of code and lock, without data, for a user."""
    content = base_image()
    (repository / "mlgitops.yaml").write_text(MODEL.replace("INPUTS", inputs))
    (repository / "src" / "layers.py").write_text("import mlgitops.training\n")
    initialise_dockerfile(repository)
    with real_engine() as address:
        client = docker.DockerClient(base_url=address, timeout=120)
        client.api.import_image_from_data(content, repository="base", tag="1")
        arguments = {"BASE_IMAGE": "base:1"}
        image, _ = client.images.build(path=str(repository), buildargs=arguments, network_mode="none", rm=True)
        container = client.api.create_container(image.id, "x")
        stream, _ = client.api.get_archive(container, "/app")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            names = {one.name for one in archive if one.isreg()}
        stream, _ = client.api.get_archive(container, "/pip.log")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            (log,) = archive
            file = archive.extractfile(log)
            assert file is not None
            called = file.read().decode().splitlines()
        client.close()
    code = {"app/train.py", "app/src/layers.py", "app/requirements.txt"}
    assert code <= names
    assert not [name for name in names if name.startswith("app/data")]
    assert ("app/notes.txt" in names) is (inputs == "['.']")
    assert called[0] == "-m pip install --no-cache-dir -r requirements.txt"
    assert called[1].startswith("-m pip install --no-cache-dir -c requirements.txt mlgitops==")
    assert image.attrs["Config"]["User"] == "65532:65532"
    assert image.attrs["Config"]["WorkingDir"] == "/app"
    assert os.environ.get("DOCKER_HOST") is None
