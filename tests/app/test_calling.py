"""`init --workflows` writes what calls the project's own workflows, for either kind of repository."""

import re
from pathlib import Path

import pytest
import yaml

from mlgitops.app.calling import initialise_workflows
from mlgitops.core.errors import InvalidInput, NotFound

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = f"example/mlgitops@{COMMIT}"
KINDS = {"mlgitops.yaml": {"train"}, "environments.yaml": {"reconcile", "promote", "rollback", "review"}}


def folder(tmp_path: Path, marker: str) -> Path:
    (tmp_path / marker).touch()
    return tmp_path


@pytest.mark.parametrize("marker", KINDS)
def test_each_kind_of_repository_gets_what_calls_a_workflow_that_is_there(tmp_path: Path, marker: str) -> None:
    """Every input and secret that is handed on is one that the called workflow has, by the commit that was named."""
    files = initialise_workflows(folder(tmp_path, marker), SOURCE)
    assert {Path(path).stem for path in files} == KINDS[marker]
    for path, data in files.items():
        assert (tmp_path / path).read_bytes() == data
        flow = yaml.load(data, yaml.BaseLoader)
        assert flow["permissions"] == {}
        (job,) = flow["jobs"].values()
        assert job["permissions"] == {"contents": "read"}
        called = re.fullmatch(rf"example/mlgitops/(\.github/workflows/[a-z]+\.yml)@{COMMIT}", job["uses"])
        assert called is not None
        takes = yaml.load((ROOT / called[1]).read_text(), yaml.BaseLoader)["on"]["workflow_call"]
        assert set(job["with"]) <= set(takes["inputs"])
        assert {name for name, one in takes["inputs"].items() if one.get("required") == "true"} <= set(job["with"])
        assert set(job.get("secrets", {})) == set(takes.get("secrets", {}))


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A workflow that somebody edited is never overwritten, also where it is a link; the others are written."""
    initialise_workflows(folder(tmp_path, "environments.yaml"), SOURCE)
    place = tmp_path / ".github" / "workflows"
    (place / "promote.yml").write_text("mine")
    (place / "rollback.yml").unlink()
    (place / "rollback.yml").symlink_to("nowhere")
    (place / "review.yml").unlink()
    assert set(initialise_workflows(tmp_path, SOURCE)) == {".github/workflows/review.yml"}
    assert (place / "promote.yml").read_text() == "mine"
    assert not (place / "nowhere").exists()


def test_nothing_is_written_by_a_dry_run(tmp_path: Path) -> None:
    """A dry run says what would be written."""
    assert initialise_workflows(folder(tmp_path, "mlgitops.yaml"), SOURCE, dry_run=True)
    assert not (tmp_path / ".github").exists()


@pytest.mark.parametrize(
    "source", ["", "example/mlgitops", "example/mlgitops@main", f"-x/y@{COMMIT}", f"a/b/c@{COMMIT}", f"a/b@{COMMIT}0"]
)
def test_only_a_whole_commit_is_called(tmp_path: Path, source: str) -> None:
    """A branch or a tag can be moved to other code that has the token, so neither is accepted."""
    with pytest.raises(InvalidInput, match="OWNER/NAME@COMMIT"):
        initialise_workflows(folder(tmp_path, "mlgitops.yaml"), source)
    assert not (tmp_path / ".github").exists()


def test_a_folder_that_is_neither_is_told(tmp_path: Path) -> None:
    """Where there is neither configuration nothing is written."""
    with pytest.raises(NotFound):
        initialise_workflows(tmp_path, SOURCE)
    assert not (tmp_path / ".github").exists()


def test_a_linked_folder_is_not_written_through(tmp_path: Path) -> None:
    """A link in place of the folder could lead anywhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".github").symlink_to("elsewhere")
    with pytest.raises(InvalidInput, match="is a link"):
        initialise_workflows(folder(tmp_path, "mlgitops.yaml"), SOURCE)
    assert list((tmp_path / "elsewhere").iterdir()) == []
