"""The embedded builder's images: valid OCI layouts, checked again byte for byte before they run."""

import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from mlgitops.adapters.builder.content import image_content
from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.adapters.builder.layout import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, Layout
from mlgitops.core.errors import DigestMismatch, InvalidInput, NotFound
from mlgitops.core.names import Digest, ImageReference
from mlgitops.ports.builder import BuildRequest

NUMPY = importlib.metadata.version("numpy")
PINNED = [
    "sha256:4a884b4c6d985de8c1f5d6156ea4fa328b077d89d3aa574b1114d7d9401dc55f",
    "sha256:7ec6c9798568bb4da62ddc4a1a52866ca4ff089ec88431a6ca60f15cbb76c46a",
]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "registry"


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "train.py").write_text("print('training')\n")
    (source / "package" / "run.sh").write_text("#!/bin/sh\n")
    (source / "package" / "run.sh").chmod(0o755)
    (source / "requirements.txt").write_text(f"numpy=={NUMPY}\n")
    return BuildRequest(
        source=source,
        files=["train.py", "package/run.sh"],
        requirements="requirements.txt",
        entrypoint=("python", "train.py"),
        repository="digits",
        tag="v1",
        annotations={"org.opencontainers.image.title": "digits"},
    )


def check_layout(folder: Path) -> dict[str, str]:
    """Check a layout against the specification, by other means than the builder's; returns digest by tag."""
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_text())
    assert index["schemaVersion"] == 2
    for blob in (folder / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name

    def read(descriptor):
        algorithm, _, value = descriptor["digest"].partition(":")
        data = (folder / "blobs" / algorithm / value).read_bytes()
        assert len(data) == descriptor["size"]
        return data

    for entry in index["manifests"]:
        assert entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
        manifest = json.loads(read(entry))
        assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
        config = json.loads(read(manifest["config"]))
        assert {"architecture", "os", "rootfs"} <= config.keys()
        assert config["rootfs"]["type"] == "layers"
        layers = [read(layer) for layer in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
    tags = [
        entry["annotations"]["org.opencontainers.image.ref.name"]
        for entry in index["manifests"]
        if "annotations" in entry
    ]
    assert len(tags) == len(set(tags))
    return {
        entry["annotations"]["org.opencontainers.image.ref.name"]: entry["digest"]
        for entry in index["manifests"]
        if "annotations" in entry
    }


def test_layout_follows_the_specification(registry: Path, request_: BuildRequest) -> None:
    """What is written is an OCI image layout whose every digest and size is right."""
    image = EmbeddedBuilder(registry).build(request_)
    assert check_layout(registry / "digits") == {"v1": str(image.digest)}


@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
def test_skopeo_reads_the_layout(registry: Path, request_: BuildRequest) -> None:
    """Another implementation reads the image and names the same digest."""
    image = EmbeddedBuilder(registry).build(request_)
    done = subprocess.run(["skopeo", "inspect", f"oci:{registry / 'digits'}:v1"], capture_output=True, check=True)
    assert json.loads(done.stdout)["Digest"] == str(image.digest)


def test_a_digest_pinned_for_all_machines(registry: Path, request_: BuildRequest) -> None:
    """The source layer's bytes are the same on every machine and interpreter: this digest is written down."""
    (request_.source / "requirements.txt").write_text("numpy==0 ; python_version < '3'\n")
    image = EmbeddedBuilder(registry).build(request_)
    layers = Layout(registry / "digits").document(image.digest)["layers"]
    assert [layer["digest"] for layer in layers] == PINNED


def test_layers_hold_the_declared_files_and_nothing_else(registry: Path, request_: BuildRequest) -> None:
    """One layer holds the lock, the other the source, both with plain owners, times and modes."""
    image = EmbeddedBuilder(registry).build(request_)
    layout = Layout(registry / "digits")
    listed = []
    for layer in layout.document(image.digest)["layers"]:
        with tarfile.open(layout.blob(Digest(layer["digest"]), layer["size"])) as archive:
            members = archive.getmembers()
        assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in members} == {(0, 0, "", "", 0)}
        listed.append([(one.name, oct(one.mode)) for one in members])
    assert listed == [
        [("app", "0o755"), ("app/requirements.txt", "0o644")],
        [("app", "0o755"), ("app/package", "0o755"), ("app/package/run.sh", "0o755"), ("app/train.py", "0o644")],
    ]


def test_a_tag_moves_and_old_images_stay(registry: Path, request_: BuildRequest) -> None:
    """A tag leads to the newest build under it, and the image it led to can still be had by digest."""
    builder = EmbeddedBuilder(registry)
    first = builder.build(request_)
    (request_.source / "train.py").write_text("print('other')\n")
    second = builder.build(request_)
    third = builder.build(replace(request_, tag="v2"))
    assert check_layout(registry / "digits") == {"v1": str(second.digest), "v2": str(third.digest)}
    assert image_content(registry, first, registry / "cache").root.is_dir()


def test_many_processes_build_at_once(registry: Path, request_: BuildRequest) -> None:
    """Tags written by several processes at once are all there afterwards."""
    program = (
        "import sys; from pathlib import Path; from mlgitops.adapters.builder.embedded import EmbeddedBuilder\n"
        "from mlgitops.ports.builder import BuildRequest\n"
        "for n in range(5): EmbeddedBuilder(Path(sys.argv[1])).build(BuildRequest(source=Path(sys.argv[2]),\n"
        "    files=['train.py'], requirements='requirements.txt', entrypoint=('python', 'train.py', str(n)),\n"
        "    repository='digits', tag=f'{sys.argv[3]}-{n}'))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, registry, request_.source, name]) for name in ("a", "b", "c")
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert set(check_layout(registry / "digits")) == {f"{name}-{n}" for name in "abc" for n in range(5)}


def test_a_kill_during_a_build_spoils_nothing(registry: Path, request_: BuildRequest) -> None:
    """A process killed before it lists its image leaves a valid layout, and the next build completes it."""
    program = (
        "import os, signal, sys; from pathlib import Path; from mlgitops.adapters.builder import embedded\n"
        "from mlgitops.ports.builder import BuildRequest\n"
        "embedded.Layout.tag = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "embedded.EmbeddedBuilder(Path(sys.argv[1])).build(BuildRequest(source=Path(sys.argv[2]), files=['train.py'],\n"
        "    requirements='requirements.txt', entrypoint=('python',), repository='digits', tag='x'))\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, registry, request_.source], check=False)
    assert killed.returncode == -9
    EmbeddedBuilder(registry).build(request_)
    assert set(check_layout(registry / "digits")) == {"v1"}


def test_content_is_what_was_built(registry: Path, request_: BuildRequest, tmp_path: Path) -> None:
    """A job sees the declared files, the command and the working directory of the image."""
    image = EmbeddedBuilder(registry).build(request_)
    content = image_content(registry, image, tmp_path / "cache")
    assert content.working_directory == "/app"
    assert content.entrypoint == ("python", "train.py")
    assert content.environment == {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    found = {path.relative_to(content.root).as_posix() for path in content.root.rglob("*") if path.is_file()}
    assert found == {"app/train.py", "app/package/run.sh", "app/requirements.txt"}
    assert os.access(content.root / "app/package/run.sh", os.X_OK)
    assert (content.root / "app/train.py").read_text() == "print('training')\n"


def test_content_does_not_follow_the_source(registry: Path, request_: BuildRequest, tmp_path: Path) -> None:
    """Once built, an image is independent of the working tree."""
    image = EmbeddedBuilder(registry).build(request_)
    shutil.rmtree(request_.source)
    assert (image_content(registry, image, tmp_path / "cache").root / "app/train.py").is_file()


@pytest.mark.parametrize("change", ["edit", "add", "remove", "link"])
def test_changed_extractions_are_made_anew(registry: Path, request_: BuildRequest, tmp_path: Path, change: str) -> None:
    """An extraction that a job got at is noticed and replaced before the next job runs."""
    image = EmbeddedBuilder(registry).build(request_)
    root = image_content(registry, image, tmp_path / "cache").root
    script = root / "app" / "train.py"
    if change == "add":
        (root / "app" / "json.py").write_text("evil")
    else:
        script.unlink()
        if change == "edit":
            script.write_text("evil")
        if change == "link":
            script.symlink_to("/etc/passwd")
    again = image_content(registry, image, tmp_path / "cache").root
    assert (again / "app" / "train.py").read_text() == "print('training')\n"
    assert not (again / "app" / "json.py").exists()


def test_every_changed_blob_is_found(registry: Path, request_: BuildRequest, tmp_path: Path) -> None:
    """A changed byte in the manifest, the configuration or a layer is a mismatch, never run."""
    image = EmbeddedBuilder(registry).build(request_)
    for blob in (registry / "digits" / "blobs" / "sha256").iterdir():
        data = blob.read_bytes()
        blob.chmod(0o644)
        blob.write_bytes(data.replace(b"a", b"b", 1))
        with pytest.raises(DigestMismatch):
            image_content(registry, image, tmp_path / "cache")
        blob.write_bytes(data)
    image_content(registry, image, tmp_path / "cache")


def test_absent_images_are_not_found(registry: Path, request_: BuildRequest, tmp_path: Path) -> None:
    """An image that was never built, or of another repository, is not found."""
    image = EmbeddedBuilder(registry).build(request_)
    for absent in (ImageReference("digits", Digest.of(b"x")), ImageReference("other", image.digest)):
        with pytest.raises(NotFound):
            image_content(registry, absent, tmp_path / "cache")


def test_the_lock_is_checked_again_before_it_runs(
    registry: Path, request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image built with other versions than this interpreter has is refused when it is to run."""
    image = EmbeddedBuilder(registry).build(request_)
    monkeypatch.setattr("mlgitops.adapters.builder.content.installed_versions", lambda: {"numpy": "1.0"})
    with pytest.raises(InvalidInput, match=r"1\.0 is installed"):
        image_content(registry, image, tmp_path / "cache")


def _image_of(
    registry: Path, *members: tuple[tarfile.TarInfo, bytes], config: dict[str, object] | None = None
) -> ImageReference:
    """Write an image of hand-made tar members, with right digests throughout."""
    layout = Layout(registry / "digits")
    with layout.scratch() as scratch:
        with tarfile.open(scratch, "w") as archive:
            for member, data in members:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        layer = layout.adopt(scratch, LAYER_TYPE)
    settings = {"WorkingDir": "/app", "Entrypoint": ["python"], **(config or {})}
    written = layout.write_document(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        },
        CONFIG_TYPE,
    )
    manifest = layout.write_document(
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": written, "layers": [layer]}, MANIFEST_TYPE
    )
    return ImageReference("digits", Digest(manifest["digest"]))


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        _member("../../evil"),
        _member("/etc/evil"),
        _member("app/../../evil"),
        _member("app/a\nb"),
        _member("app/a\\b"),
        _member("app/.wh.train.py"),
        _member("app/link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("app/inside", tarfile.SYMTYPE, "train.py"),
        _member("app/hard", tarfile.LNKTYPE, "/etc/passwd"),
        _member("app/device", tarfile.CHRTYPE),
        _member("app/pipe", tarfile.FIFOTYPE),
        _member("app/sparse", tarfile.GNUTYPE_SPARSE),
    ],
    ids=lambda member: member.name,
)
def test_hostile_archives_are_refused(registry: Path, tmp_path: Path, member) -> None:
    """A layer cannot write outside its folder or bring links and devices, however right its digest is."""
    image = _image_of(registry, (member, b""))
    with pytest.raises(InvalidInput):
        image_content(registry, image, tmp_path / "cache")
    assert not list(tmp_path.rglob("evil"))
    assert not (tmp_path / "cache" / image.digest.hex).exists()


def test_a_file_that_is_also_a_folder_is_refused(registry: Path, tmp_path: Path) -> None:
    """Paths that contradict each other are refused, and nothing half-extracted stays."""
    image = _image_of(registry, (_member("app/a"), b"x"), (_member("app/a/b"), b"y"))
    with pytest.raises(InvalidInput, match="both as a file and as a folder"):
        image_content(registry, image, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_archives_that_lie_about_sizes_are_refused(registry: Path, tmp_path: Path) -> None:
    """A layer that is cut off is refused."""
    layout = Layout(registry / "digits")
    image = _image_of(registry, (_member("app/a"), b"x" * 5000))
    manifest = layout.document(image.digest)
    with layout.scratch() as scratch:
        header = _member("app/a")
        header.size = 1 << 40
        scratch.write_bytes(header.tobuf() + b"x" * 100)
        layer = layout.adopt(scratch, LAYER_TYPE)
    config = layout.document(Digest(manifest["config"]["digest"]))
    config["rootfs"] = {"type": "layers", "diff_ids": [layer["digest"]]}
    manifest |= {"config": layout.write_document(config, CONFIG_TYPE), "layers": [layer]}
    written = layout.write_document(manifest, MANIFEST_TYPE)
    with pytest.raises(InvalidInput):
        image_content(registry, ImageReference("digits", Digest(written["digest"])), tmp_path / "cache")


@pytest.mark.parametrize(
    "config", [{"WorkingDir": "/app/../.."}, {"WorkingDir": "app"}, {"Entrypoint": [1]}, {"Env": ["A=\0"]}, {"Env": 5}]
)
def test_hostile_configurations_are_refused(registry: Path, tmp_path: Path, config) -> None:
    """An image's configuration cannot lead a job out of the image or crash the engine."""
    image = _image_of(registry, (_member("app/a"), b"x"), config=config)
    with pytest.raises(InvalidInput):
        image_content(registry, image, tmp_path / "cache")


@pytest.mark.parametrize("spoilt", ["[]", "{}", '{"layers": 5}', '{"config": []}', "not json", "[" * 100_000])
def test_hostile_manifests_are_refused(registry: Path, tmp_path: Path, spoilt: str) -> None:
    """A manifest that is none is refused, whatever it is instead."""
    layout = Layout(registry / "digits")
    with layout.scratch() as scratch:
        scratch.write_text(spoilt)
        descriptor = layout.adopt(scratch, MANIFEST_TYPE)
    with pytest.raises(InvalidInput):
        image_content(registry, ImageReference("digits", Digest(descriptor["digest"])), tmp_path / "cache")
