"""A model's folder: what it says, how it differs, and how it is mended without touching what people wrote."""

import pytest

from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.manifest.owned import RolloutFields
from mlgitops.core.names import Digest
from mlgitops.core.projection import Desired, Target

FOLDER = Folder(environment="production", model="digits", namespace="production", serving={})


def target(release: str) -> Target:
    uri = f"pvc://store/models/{release}"
    return Target(release=release, storage_uri=uri, artifact_digest=str(Digest.of(release.encode())))


def wanted(number: int = 1, **changes: object) -> Desired:
    fields = RolloutFields(number=number, release="a" * 12, plan="p", plan_digest=str(Digest.of(b"p")))
    return Desired(**{"rollout": fields, "stable": target("a" * 12), **changes})  # type: ignore[arg-type]


def applied(files: dict[str, bytes], desired: Desired, number: int) -> dict[str, bytes]:
    changed = {**files, **folders.project(files.get, FOLDER, desired, number)}
    return {path: data for path, data in changed.items() if data is not None}


CANARY = wanted(2, canary=target("b" * 12), weight_percent=10, cohort="2-1")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("inferenceservice.yaml", b"models/aaaa", b"models/cccc"),
        ("inferenceservice-canary.yaml", b"models/bbbb", b"models/cccc"),
        ("route.yaml", b"weight: 10\n", b"weight: 20\n"),
        ("route.yaml", b'2-1"', b'2-2"'),
        ("kustomization.yaml", b"  - route.yaml\n", b""),
    ],
)
def test_every_owned_field_is_watched_and_mended(name: str, old: bytes, new: bytes) -> None:
    """A hand on any owned field is told with file and value, and a projection sets exactly that field back."""
    files = applied({}, CANARY, 1)
    path = FOLDER.path(name)
    assert old in files[path] or old.replace(b'"', b"") in files[path]
    found = old if old in files[path] else old.replace(b'"', b"")
    edited = {**files, path: files[path].replace(found, new if found == old else new.replace(b'"', b""))}
    words = folders.differences(edited.get, FOLDER, CANARY)
    assert words
    assert all(path in one for one in words)
    assert set(folders.project(edited.get, FOLDER, CANARY, 1)) == {path}
    assert folders.differences(applied(edited, CANARY, 1).get, FOLDER, CANARY) == ()


@pytest.mark.parametrize("name", ["inferenceservice.yaml", "inferenceservice-canary.yaml", "route.yaml"])
def test_a_missing_file_is_told_and_written_again(name: str) -> None:
    """A file that somebody deleted is a difference, and comes back."""
    files = applied({}, CANARY, 1)
    without = {path: data for path, data in files.items() if path != FOLDER.path(name)}
    assert any("missing" in one for one in folders.differences(without.get, FOLDER, CANARY))
    assert set(applied(without, CANARY, 1)) == set(files)


def test_what_people_add_is_no_difference_and_stays() -> None:
    """Comments, other fields and other resources belong to people: not told, not touched."""
    files = applied({}, CANARY, 1)
    path = FOLDER.path("kustomization.yaml")
    edited = {**files, path: files[path] + b"# ours\ncommonLabels:\n  team: vision\n"}
    assert folders.differences(edited.get, FOLDER, CANARY) == ()
    after = applied(edited, wanted(), 2)
    assert after[path].endswith(b"# ours\ncommonLabels:\n  team: vision\n")
    assert FOLDER.path("inferenceservice-canary.yaml") not in after


def test_nothing_served_leaves_no_manifest() -> None:
    """A model that is withdrawn leaves no service, no route and nothing listed."""
    after = applied(applied({}, CANARY, 1), Desired(), 2)
    assert set(after) == {FOLDER.path("generation"), FOLDER.path("kustomization.yaml")}
    assert folders.differences(after.get, FOLDER, Desired()) == ()


def test_generation_is_a_number_or_none() -> None:
    """A folder without the file shows generation 0; the number in it is read as written."""
    nothing: dict[str, bytes] = {}
    assert folders.generation(nothing.get, FOLDER) == 0
    assert folders.generation({FOLDER.path("generation"): b"17\n"}.get, FOLDER) == 17


def test_a_broken_rollout_file_asks_for_nothing() -> None:
    """What nobody can read is no promotion: it is told with its path, and written anew by the next projection."""
    path = FOLDER.path("rollout.yaml")
    files = {**applied({}, CANARY, 1), path: b"{"}
    assert folders.rollout(files.get, FOLDER) is None
    assert any(path in one for one in folders.unreadable(files.get, FOLDER))
    assert folders.rollout(applied(files, CANARY, 2).get, FOLDER) == CANARY.rollout
