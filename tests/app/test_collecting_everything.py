"""`gc` takes everything that old releases left, and nothing that anybody could need."""

import copy
import dataclasses
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlgitops.adapters.builder.embedded import EmbeddedBuilder
from mlgitops.adapters.builder.keeping import ImageKeeper
from mlgitops.adapters.cluster.keeping import JobKeeper
from mlgitops.adapters.cluster.state import write_json
from mlgitops.adapters.evaluator.keeping import EvaluationKeeper
from mlgitops.adapters.metrics.keeping import SampleKeeper
from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app import rollbacks
from mlgitops.app.collecting import Garbage, collect
from mlgitops.app.context import World
from mlgitops.app.writing import write
from mlgitops.core.configuration import fingerprint
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.release import Release
from mlgitops.ports.builder import BuildRequest
from mlgitops.ports.repository import Change
from tests.support.world import ENVIRONMENTS, MODEL, Engine, Quality, live, push, quick_world, seen_by, settle, view_of

GOOD = Quality(accuracy=0.95, wrong=0.05)
LONG_AGO = time.time() - 10 * 86_400


@dataclasses.dataclass
class Place:
    """Five releases, four of which served, with all that they leave: the second and the third share their data."""

    world: World
    engine: Engine
    folder: Path
    names: list[str]

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder / "store", "mlgitops-store")

    @property
    def keepers(self):
        folder = self.folder
        return (
            ImageKeeper(folder / "registry", folder / "images"),
            JobKeeper(folder / "cluster"),
            EvaluationKeeper(folder / "evaluations"),
            SampleKeeper(folder / "metrics"),
        )

    def gc(self, keep: int | None = 1, *, dry_run: bool = False) -> list[Garbage]:
        return collect(self.world, self.store, self.keepers, keep=keep, dry_run=dry_run)

    def files(self) -> dict[str, int]:
        known = {}
        for one in self.folder.rglob("*"):
            if one.is_file() and one.name not in (".lock", "index.json"):
                known[str(one.relative_to(self.folder))] = one.stat().st_size
        return known

    def put(self, text: str, folder: str) -> str:
        source = self.folder.parent / f"{fingerprint(text)[:8]}.npz"
        source.write_text(text)
        return self.store.put(source, folder)[0]

    def age(self, root: Path | None = None) -> None:
        for one in (root or self.folder).rglob("*"):
            os.utime(one, (LONG_AGO, LONG_AGO), follow_symlinks=False)

    def image(self, text: str) -> str:
        source = self.folder.parent / "source"
        source.mkdir(exist_ok=True)
        (source / "train.py").write_text(text)
        (source / "requirements.txt").write_text("")
        request = BuildRequest(
            source=source,
            files=("train.py",),
            requirements="requirements.txt",
            entrypoint=("python", "train.py"),
            repository="digits",
            tag=text.replace(" ", "-"),
        )
        return str(EmbeddedBuilder(self.folder / "registry").build(request))

    def furnish(self, release: Release, data: str) -> None:
        """Leave everything that a release leaves."""
        name, code = release.name, release.submission.subject
        image = self.image(code)
        submission = dataclasses.replace(
            release.submission,
            image=image,
            variables={"MLGITOPS_DATA_URI": self.put(data, f"data/{MODEL}")},
            evaluation_uri=self.put(f"evaluation of {data}", f"evaluation/{MODEL}"),
            source_uri=self.put(code, f"source/{MODEL}"),
        )

        def decide(view):
            view.ledger.put_release(dataclasses.replace(view.ledger.release(MODEL, name), submission=submission))
            return "test: furnish"

        write(self.world, decide, lambda _: ())
        for path in (f"store/models/{MODEL}/{name}/1/saved_model.pb", f"store/checkpoints/{MODEL}/{name}/ckpt-1"):
            self.write(path, b"bytes of " + name.encode())
        self.write(f"images/{image.rpartition(':')[2]}/app/train.py", code.encode())
        job = f"cluster/jobs/training/{MODEL}-{name}/0"
        self.write(f"{job}/logs/{MODEL}-{name}-chief-0/head", b"epoch 1\n")
        write_json(self.folder / job / "object.json", {"deleted_at": "2026-11-30T12:00:00+00:00"})
        key = f"{name}-0123456789ab"
        self.write(f"evaluations/{fingerprint(key)[:32]}/request.json", b'{"key": "%s"}' % key.encode())
        self.write(f"evaluations/{fingerprint(key)[:32]}/outcome.json", b"{}")

    def world_release(self, name: str) -> Release:
        return view_of(self.world).ledger.release(MODEL, name)

    def share(self, name: str, uri: str) -> None:
        """Let a release have been trained on data of another one."""

        def decide(view):
            release = view.ledger.release(MODEL, name)
            submission = dataclasses.replace(release.submission, variables={"MLGITOPS_DATA_URI": uri})
            view.ledger.put_release(dataclasses.replace(release, submission=submission))
            return "test: share"

        write(self.world, decide, lambda _: ())

    def configure(self, text: str) -> None:
        main = self.world.repository.snapshot(MAIN)
        change = Change(message="configure", files={"environments.yaml": text.encode()})
        self.world.repository.update(MAIN, main.revision, [change])

    def write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Five releases: the first four served one after the other, the fifth was refused."""
    world, engine = quick_world()
    names = []
    for code in ("one", "two", "three", "four"):
        names.append(live(world, engine, code, GOOD))
        settle(world, engine, 61)
    names.append(push(world, "worse", quality=Quality(accuracy=0.3), engine=engine).name)
    settle(world, engine, 15)
    engine.clock.time = datetime.now(UTC)  # files have the time of this machine
    place = Place(world, engine, tmp_path_factory.mktemp("life") / "home", names)
    for number, name in enumerate(names):
        place.furnish(place.world_release(name), ("one", "shared", "shared", "four", "five")[number])
        place.write(f"metrics/samples/production/{MODEL}/{number + 1}.jsonl", b"{}\n")
    place.write(f"metrics/samples/production/{MODEL}/0.jsonl", b"{}\n")
    return place


@pytest.fixture
def place(life: Place, tmp_path: Path) -> Place:
    """A copy of that life, of which nobody used anything for days."""
    engine = copy.deepcopy(life.engine)
    shutil.copytree(life.folder, tmp_path / "home", symlinks=True)
    place = Place(seen_by(engine, engine.repository), engine, tmp_path / "home", life.names)
    place.age()
    return place


def of(found: list[Garbage], name: str) -> set[str]:
    return {one.kind for one in found if one.release == name}


def test_everything_of_an_old_release_goes(place: Place) -> None:
    """Model, checkpoints, data, evaluation set, source, image, logs, evaluation and samples go with their release."""
    found = place.gc()
    assert of(found, place.names[0]) == {
        "model",
        "checkpoints",
        "data",
        "evaluation-set",
        "source",
        "image",
        "log",
        "evaluation",
        "samples",
    }
    assert {one.release for one in found} == {place.names[0]}
    assert all(one.size_bytes > 0 and one.reason for one in found)
    assert not [path for path in place.files() if place.names[0] in path]


def test_what_could_be_needed_keeps_everything(place: Place) -> None:
    """Whatever is asked for, the champion and what two rollbacks return to lose not one byte."""
    before = place.files()
    found = place.gc(1)
    lost = {one.release for one in found}
    assert not lost & {*place.names[1:4]}
    for name in place.names[1:4]:
        assert {path for path in before if name in path} == {path for path in place.files() if name in path}
    assert [one for one in place.files() if one.startswith("store/data")] != []
    rollbacks.rollback(place.world, MODEL, None, reason="x")
    settle(place.world, place.engine, 1)
    assert place.store.path(place.world_release(place.names[2]).submission.evaluation_uri).is_file()


def test_a_dry_run_says_what_goes_and_how_large_it_is(place: Place) -> None:
    """A dry run changes no byte, and what it says, sizes included, is what the real run then frees."""
    before = place.files()
    foretold = place.gc(dry_run=True)
    assert place.files() == before
    real = place.gc()
    assert real == foretold
    freed = sum(before.values()) - sum(place.files().values())
    assert freed == sum(one.size_bytes for one in real)


def test_what_several_use_stays_with_the_last(place: Place) -> None:
    """Data and the image's lock, which the old release shares with a kept one, stay; what it had alone goes."""
    shared = place.world_release(place.names[1]).submission.variables["MLGITOPS_DATA_URI"]
    place.share(place.names[0], shared)
    place.age()
    found = place.gc()
    assert "data" not in {one.kind for one in found if one.uri == shared.rpartition("/")[0]}
    assert place.store.path(shared).is_file()
    for name in place.names[1:]:
        image = place.world_release(name).submission.image
        assert next(one for one in place.keepers[0].kept() if one.name == image)


def test_what_a_push_is_about_to_name_stays(place: Place) -> None:
    """Data and images that no release names stay for a day: a push may be testing; afterwards they are left over."""
    uri, image = place.put("fresh", f"data/{MODEL}"), place.image("fresh")
    assert not {one.uri for one in place.gc()} & {uri.rpartition("/")[0]}
    assert place.store.path(uri).is_file()
    assert image in {one.name for one in place.keepers[0].kept()}
    place.age()
    left = place.gc()
    assert {(one.kind, one.release) for one in left} >= {("data", None), ("image", None)}
    assert image not in {one.name for one in place.keepers[0].kept()}


def test_what_a_push_finds_again_stays(place: Place) -> None:
    """Old data and an old image that a push finds in their places, and is about to name, are used now."""
    old = place.world_release(place.names[0]).submission
    place.put("one", f"data/{MODEL}")
    assert place.image("code one") == old.image
    found = place.gc()
    assert not {"data", "image"} & of(found, place.names[0])
    assert place.store.path(old.variables["MLGITOPS_DATA_URI"]).is_file()
    assert place.image("code one") == old.image


def test_retention_is_a_matter_of_kind(place: Place) -> None:
    """`retention` says how many of the newest keep each kind of thing; who serves keeps all of them."""
    text = ENVIRONMENTS + "keepReleases: 10\nretention: {logs: 0, checkpoints: 1}\n"
    place.configure(text)
    found = place.gc(None)
    assert {(one.kind, one.release) for one in found} == {
        ("log", place.names[0]),
        ("checkpoints", place.names[0]),
        ("log", place.names[4]),
    }


def test_an_open_training_keeps_everything(place: Place) -> None:
    """A release that still trains loses nothing, however many newer ones there are."""
    place.engine.trains_at_once = False
    training = push(place.world, "six", engine=place.engine)
    settle(place.world, place.engine, 1, passes=3)
    place.furnish(training, "six")
    newer = push(place.world, "seven", engine=place.engine)
    place.furnish(newer, "seven")
    place.age()
    assert not {one.release for one in place.gc(1)} & {training.name, newer.name}


@pytest.mark.parametrize("deletions", [0, 2, 4, 5, 7, 9])
def test_killed_anywhere_it_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch, deletions: int) -> None:
    """Killed before any of its deletions, the next run ends where an undisturbed one does; nothing is half gone."""
    count = [0]

    def killed(call):
        def counting(*words, **named):
            count[0] += 1
            if count[0] > deletions:
                raise KeyboardInterrupt
            return call(*words, **named)

        return counting

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed(shutil.rmtree))
        patch.setattr(Path, "unlink", killed(Path.unlink))
        try:
            place.gc()
        except KeyboardInterrupt:
            kept = place.world_release(place.names[0])
            assert kept.collected or place.store.path(kept.submission.artifact_uri).is_dir()
    place.age(place.folder / "store" / ".leaving")
    place.gc()
    assert not [path for path in place.files() if place.names[0] in path]
    assert not [path for path in place.files() if "leaving" in path or ".gone" in path]


def test_a_release_elsewhere_keeps_everything(place: Place) -> None:
    """What serves in an environment that was taken out of environments.yaml loses nothing."""
    text = ENVIRONMENTS.replace("name: production\n    namespace: production", "name: other\n    namespace: other")
    place.configure(text)
    assert not {one.release for one in place.gc(1)} & {*place.names[1:4]}


def test_what_was_used_since_is_put_back(tmp_path: Path) -> None:
    """A `put` between the look at a folder and its deletion wins: the folder is there afterwards."""
    store = FolderStore(tmp_path / "store", "mlgitops-store")
    source = tmp_path / "a"
    source.write_text("a")
    uri, digest = store.put(source, "data/x")
    folder = tmp_path / "store" / "data" / "x" / digest.hex
    os.utime(folder, (LONG_AGO, LONG_AGO))
    real = Path.rename

    def late(self, target):
        if self == folder:
            os.utime(folder)
        return real(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", late)
        assert store.delete(uri.rpartition("/")[0], unless_used_since=datetime.now(UTC) - timedelta(days=1)) == 0
    assert store.path(uri).read_text() == "a"
