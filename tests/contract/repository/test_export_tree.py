"""Writing a pushed commit's tree to a folder, whatever somebody put into it."""

import subprocess

import pygit2
import pytest
from pygit2.enums import FileMode

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.export import export_tree
from mlgitops.core.errors import InvalidInput, NotFound


@pytest.fixture
def write(tmp_path):
    """Write a commit with entries of any kind, past every client's checks, and export it."""
    bare, target = tmp_path / "a.git", tmp_path / "out"
    init_bare(bare)
    repository = pygit2.Repository(str(bare))

    def tree(entries) -> pygit2.Oid:
        lines = []
        for name, (mode, content) in entries.items():
            identity = tree(content) if isinstance(content, dict) else content
            if isinstance(identity, bytes):
                identity = repository.create_blob(identity)
            lines.append((name, f"{mode:o} {name}\0".encode() + identity.raw))
        lines.sort()
        return repository.odb.write(pygit2.enums.ObjectType.TREE, b"".join(line for _, line in lines))

    def export(entries):
        signature = pygit2.Signature("a", "b")
        commit = repository.create_commit(None, signature, signature, "m", tree(entries), [])
        export_tree(bare, str(commit), target)
        return target

    return export


def file(content=b"x"):
    return FileMode.BLOB, content


def link(destination: str):
    return FileMode.LINK, destination.encode()


def folder(**entries):
    return FileMode.TREE, entries


def test_files_links_and_modes_are_written(write):
    """Regular files, executable bits, and links that stay inside are written as they are in the commit."""
    target = write(
        {
            "run": (FileMode.BLOB_EXECUTABLE, b"#!"),
            "deep": folder(data=file(b"\x00\xff"), up=link("../run"), gone=link("missing/file")),
            "empty": file(b""),
        }
    )
    assert (target / "deep/data").read_bytes() == b"\x00\xff"
    assert (target / "run").stat().st_mode & 0o777 == 0o755
    assert (target / "deep/data").stat().st_mode & 0o777 == 0o644
    assert (target / "deep/up").readlink().as_posix() == "../run"
    assert sorted(path.name for path in target.rglob("*")) == ["data", "deep", "empty", "gone", "run", "up"]


@pytest.mark.parametrize(
    "entries",
    [
        {"l": link("/etc/passwd")},
        {"l": link("../outside")},
        {"d": folder(l=link("../../outside"))},
        # inside by its text alone, but not through the link it leads through
        {"p": folder(q=folder(s=link("../.."), x=link("s/../outside")))},
        {"a": link("b"), "b": link("a")},
        {"l": link("")},
        {"l": link("a\0b")},
        {"m": (FileMode.COMMIT, pygit2.Oid(hex="1" * 40))},
        {"..": file()},
        {".git": folder(config=file())},
        {".GIT": folder(hooks=folder(x=file()))},
        {"a\\b": file()},
        {"a\nb": file()},
    ],
    ids=repr,
)
def test_what_leaves_the_folder_is_refused(write, tmp_path, entries):
    """Links that lead out, submodules and names that must not be written are refused before anything is written."""
    with pytest.raises(InvalidInput):
        write({"fine": file(), **entries})
    assert not (tmp_path / "out").exists()


def test_all_faults_are_told(write):
    """Every entry that cannot be written is told, not the first."""
    with pytest.raises(InvalidInput) as refused:
        write({"a": link("/x"), "b": link("../x"), "c": file()})
    assert [problem.path for problem in refused.value.problems] == ["a", "b"]


def test_target_must_be_empty(write, tmp_path):
    """A folder that holds something is not written into."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        write({"a": file()})


def test_unknown_commit_is_not_found(tmp_path):
    """A commit the repository lacks is NotFound, and a name for one is refused."""
    init_bare(tmp_path / "a.git")
    with pytest.raises(NotFound):
        export_tree(tmp_path / "a.git", "1" * 40, tmp_path / "out")
    with pytest.raises(InvalidInput):
        export_tree(tmp_path / "a.git", "main", tmp_path / "out")


def test_export_equals_git_archive(tmp_path):
    """A tree is exported as git itself would write it."""
    subprocess.run(["git", "init", "-q", tmp_path / "w"], check=True)
    for number in range(5):
        path = tmp_path / "w" / f"d{number % 2}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    run = ["git", "-C", tmp_path / "w", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "add", "."], check=True)
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", tmp_path / "w", tmp_path / "w.git"], check=True)
    revision = subprocess.check_output([*run, "rev-parse", "HEAD"], text=True).strip()
    export_tree(tmp_path / "w.git", revision, tmp_path / "out")
    subprocess.run(["diff", "-r", "-x", ".git", tmp_path / "w", tmp_path / "out"], check=True)
