"""`gc`: what a rollback could need stays, and what went is never rolled out again."""

from pathlib import Path

import pytest

from mlgitops.adapters.store.folder import FolderStore
from mlgitops.app import deciding, rollbacks
from mlgitops.app.collecting import collect
from mlgitops.app.context import World
from mlgitops.core.errors import Denied
from tests.support.world import MODEL, Engine, Quality, live, push, quick_world, settle, state_of, view_of

GOOD = Quality(accuracy=0.95, wrong=0.05)


@pytest.fixture
def kept(tmp_path: Path) -> tuple[World, Engine, FolderStore, list[str]]:
    """Four releases that served one after the other, each trusted, with their models in a store."""
    world, engine = quick_world()
    names = []
    for code in ("one", "two", "three", "four"):
        names.append(live(world, engine, code, GOOD))
        settle(world, engine, 61)
    store = FolderStore(tmp_path, "mlgitops-store")
    for name in names:
        folder = tmp_path / "models" / MODEL / name / "1"
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(b"model")
    return world, engine, store, names


def left(store: FolderStore) -> set[str]:
    return {uri.rpartition("/")[2] for uri in store.paths(f"models/{MODEL}")}


def test_what_rollbacks_need_stays(kept: tuple[World, Engine, FolderStore, list[str]]) -> None:
    """The champion and what two rollbacks in a row return to are kept, however few newest ones are asked for."""
    world, _, store, names = kept
    gone = collect(world, store, keep=1, dry_run=False)
    assert [one.release for one in gone] == names[:1]
    assert left(store) == set(names[1:])
    assert gone[0].size_bytes == len(b"model")


def test_a_dry_run_deletes_and_writes_nothing(kept: tuple[World, Engine, FolderStore, list[str]]) -> None:
    """A dry run names what would go."""
    world, _, store, names = kept
    before = view_of(world).ledger.revision
    assert [one.release for one in collect(world, store, keep=1, dry_run=True)] == names[:1]
    assert left(store) == set(names)
    assert view_of(world).ledger.revision == before


def test_what_went_is_never_rolled_out_again(kept: tuple[World, Engine, FolderStore, list[str]]) -> None:
    """A release without a model is refused, by hand and by automation."""
    world, engine, store, names = kept
    collect(world, store, keep=1, dry_run=False)
    with pytest.raises(Denied, match="gc"):
        deciding.promote(world, MODEL, names[0], None, reason="x", force=True)
    rollbacks.rollback(world, MODEL, None, reason="x")
    settle(world, engine, 1)
    assert state_of(world).champion == names[2]


def test_killed_between_record_and_deletion_goes_on(
    kept: tuple[World, Engine, FolderStore, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger knows before the store forgets; the next run deletes what the killed one did not."""
    world, _, store, names = kept

    def killed(_: object, uri: str) -> int:
        raise KeyboardInterrupt(uri)

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            collect(world, store, keep=1, dry_run=False)
    assert view_of(world).ledger.release(MODEL, names[0]).collected
    collect(world, store, keep=1, dry_run=False)
    assert names[0] not in left(store)


def test_what_waits_to_be_taken_up_stays(kept: tuple[World, Engine, FolderStore, list[str]]) -> None:
    """A promotion on main that nobody took up yet keeps its model."""
    world, engine, store, names = kept
    push(world, "five", quality=GOOD, engine=engine)
    deciding.promote(world, MODEL, names[0], None, reason="x", force=False)
    collect(world, store, keep=1, dry_run=False)
    assert names[0] in left(store)
