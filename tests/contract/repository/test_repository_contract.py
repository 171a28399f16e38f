"""What every place of a repository promises: a folder, http and ssh behave as one."""

import subprocess
import time

import pytest

from mlgitops.core.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from mlgitops.ports.repository import Change, Person, Repository
from tests.contract.repository.conftest import Place

MAIN = "refs/heads/main"
LEDGER = "refs/heads/mlgitops/ledger"


def change(files, message="change", **values) -> Change:
    return Change(message=message, files=files, **values)


@pytest.fixture
def repository(place: Place) -> Repository:
    return place.open()


@pytest.fixture
def first(repository: Repository) -> str:
    files = {"README": b"hello\n", "environments/production/a/rollout.yaml": b"number: 1\n"}
    return repository.create({MAIN: change(files, "begin")})[MAIN]


def test_missing_reference_is_an_empty_tree(repository):
    """A reference that does not exist has no revision, no files and nothing to read."""
    snapshot = repository.snapshot(MAIN)
    assert (snapshot.revision, snapshot.paths(), snapshot.read("README")) == (None, (), None)


def test_writes_are_read_back(place, repository, first):
    """What was written is what this repository, another client and git itself read."""
    tip = repository.update(MAIN, first, [change({"environments/production/a/x.yaml": b"\x00\xff"})])
    for reader in (repository, place.open("another")):
        snapshot = reader.snapshot(MAIN)
        assert snapshot.revision == tip == place.git("rev-parse", MAIN)
        assert snapshot.read("environments/production/a/x.yaml") == b"\x00\xff"
        assert snapshot.paths("environments") == (
            "environments/production/a/rollout.yaml",
            "environments/production/a/x.yaml",
        )
    assert place.git("fsck", "--strict", "--no-dangling") == ""


def test_what_differs_between_two_revisions_is_named(repository, first):
    """Files that came, went or changed between two revisions are named, and no other."""
    second = repository.update(MAIN, first, [change({"a/b": b"1", "README": b"more\n", "c": b"1"})])
    third = repository.update(MAIN, second, [change({"c": None, "environments/production/a/rollout.yaml": b"2\n"})])
    assert repository.changed(first, third) == ("README", "a/b", "environments/production/a/rollout.yaml")
    assert repository.changed(third, second) == ("c", "environments/production/a/rollout.yaml")
    assert repository.changed(first, first) == ()
    with pytest.raises(NotFound):
        repository.changed("0" * 40, first)


def test_update_creates_a_missing_reference(place, repository):
    """Expecting nothing, an update makes the reference, and only once."""
    tip = repository.update(MAIN, None, [change({"a": b"1"})])
    assert place.git("rev-parse", MAIN) == tip
    with pytest.raises(Conflict) as lost:
        place.open("another").update(MAIN, None, [change({"a": b"2"})])
    assert (lost.value.expected, lost.value.found) == (None, tip)


def test_lost_race_moves_nothing(place, repository, first):
    """An update computed from an older revision is refused with both revisions, and the winner's commit stays."""
    won = place.open("another").update(MAIN, first, [change({"a": b"winner"})])
    with pytest.raises(Conflict) as lost:
        repository.update(MAIN, first, [change({"a": b"loser"})])
    assert (lost.value.subject, lost.value.expected, lost.value.found) == (MAIN, first, won)
    assert repository.snapshot(MAIN).read("a") == b"winner"
    assert place.git("rev-list", "--count", MAIN) == "2"


def test_deleted_reference_is_a_lost_race(place, repository, first):
    """An update of a branch that somebody deleted does not bring it back."""
    place.git("update-ref", "-d", MAIN)
    with pytest.raises(Conflict) as lost:
        repository.update(MAIN, first, [change({"a": b"1"})])
    assert lost.value.found is None
    assert repository.snapshot(MAIN).revision is None


def test_nothing_altered_makes_no_commit(place, repository, first):
    """A change that alters no byte makes no commit and no push, and the expected revision is returned."""
    same = [change({"README": b"hello\n"}), change({"missing/file": None}), change({})]
    place.requests.clear()
    assert repository.update(MAIN, first, same) == first
    assert repository.update(MAIN, first, []) == first
    assert repository.update(LEDGER, None, [change({"missing": None})]) is None
    assert place.git("rev-list", "--count", MAIN) == "1"
    assert not [request for request in place.requests if "receive-pack" in request[1]]


def test_chain_of_commits_is_one_push(place, repository, first):
    """Several changes become a chain of commits, in order, pushed once; those without effect are left out."""
    place.hook("post-receive", f"cat >> {place.folder}/pushes")
    changes = [change({"a": b"1"}, "one"), change({"a": b"1"}, "nothing"), change({"a": b"2"}, "two")]
    tip = repository.update(MAIN, first, changes)
    assert place.git("log", "--format=%s", MAIN).split("\n") == ["two", "one", "begin"]
    assert (place.folder / "pushes").read_text() == f"{first} {tip} {MAIN}\n"


def test_deleting_the_last_file_deletes_its_folders(place, repository, first):
    """Deleting the last file of a folder removes the folder and those above it that are left empty."""
    tip = repository.update(MAIN, first, [change({"environments/production/a/rollout.yaml": None})])
    assert place.git("ls-tree", "--name-only", tip) == "README"
    tip = repository.update(MAIN, tip, [change({"README": None})])
    assert repository.snapshot(MAIN).paths() == ()
    assert place.git("rev-parse", MAIN) == tip


def test_file_and_folder_change_places(repository, first):
    """One change may turn a file into a folder of that name."""
    repository.update(MAIN, first, [change({"README": None, "README/inner": b"1"})])
    assert repository.snapshot(MAIN).paths("README") == ("README/inner",)


def test_executable_bit_is_kept(place, repository, first):
    """Editing a file keeps its executable bit."""
    clone = place.clone()
    (clone / "run.sh").write_text("one")
    (clone / "run.sh").chmod(0o755)
    subprocess.run(["git", "-C", clone, "add", "."], check=True)
    run = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    subprocess.run([*run, "push", "-q", "origin", "HEAD:main"], check=True)
    tip = repository.update(MAIN, repository.snapshot(MAIN).revision, [change({"run.sh": b"two"})])
    assert place.git("ls-tree", tip, "run.sh").startswith("100755")


def test_create_makes_all_references(place, repository):
    """Several references are created at once, each with one commit that has no parent."""
    made = repository.create({MAIN: change({"a": b"1"}, "main"), LEDGER: change({}, "ledger")})
    assert made == {MAIN: place.git("rev-parse", MAIN), LEDGER: place.git("rev-parse", LEDGER)}
    assert place.git("rev-list", "--count", MAIN, LEDGER) == "2"


def test_create_is_all_or_nothing(place, repository, first):
    """When one of the references exists, none is created."""
    with pytest.raises(Conflict) as lost:
        place.open("another").create({LEDGER: change({"b": b"1"}), MAIN: change({"a": b"1"})})
    assert (lost.value.subject, lost.value.found) == (MAIN, first)
    assert place.git("for-each-ref", "--format=%(refname)") == MAIN


def test_create_refused_for_one_creates_none(place, repository):
    """When the server takes one reference and refuses the other, the one it took is taken back."""
    place.hook("update", "case $1 in *ledger) echo not that one >&2; exit 1;; esac\n")
    with pytest.raises(Denied, match="not that one"):
        repository.create({MAIN: change({"a": b"1"}), LEDGER: change({"b": b"1"})})
    assert place.git("for-each-ref") == ""


def test_hook_refuses_in_its_words(place, repository, first):
    """A refusal by a server's hook is Denied with the hook's words, and nothing moved."""
    place.hook("pre-receive", 'echo "production is frozen until Monday" >&2; exit 1\n')
    with pytest.raises(Denied, match="production is frozen until Monday"):
        repository.update(MAIN, first, [change({"a": b"1"})])
    assert place.git("rev-parse", MAIN) == first


def test_lost_race_beside_hooks_is_a_conflict(place, repository, first):
    """Where hooks run, a lost race still is a Conflict with both revisions."""
    place.hook("pre-receive", "exit 0\n")
    won = place.open("another").update(MAIN, first, [change({"a": b"1"})])
    with pytest.raises(Conflict) as lost:
        repository.update(MAIN, first, [change({"a": b"2"})])
    assert (lost.value.expected, lost.value.found) == (first, won)


def test_rewritten_branch_is_seen_as_it_is(place, repository, first):
    """After a forced push, the branch is what it is now, and what it was cannot be updated."""
    later = repository.update(MAIN, first, [change({"a": b"1"})])
    assert repository.snapshot(MAIN).revision == later
    rewritten = place.git("commit-tree", "-m", "rewritten", place.git("rev-parse", f"{first}^{{tree}}"))
    place.git("update-ref", MAIN, rewritten)
    snapshot = repository.snapshot(MAIN)
    assert (snapshot.revision, snapshot.read("a")) == (rewritten, None)
    with pytest.raises(Conflict):
        repository.update(MAIN, later, [change({"b": b"1"})])


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../outside",
        "a/../../b",
        "a//b",
        "./a",
        "a/",
        "",
        ".git/config",
        "a/.GIT/hooks",
        ".g\u200cit/config",
        ".git./x",
        "git~1/x",
        "a\x00b",
        "a\nb",
        "a\\b",
        "a/" + "x" * 256,
        "\ud800",
        "a\u2028b",
    ],
)
def test_hostile_paths_are_refused(path_place, path):
    """A path that could leave the repository, reach git's own files or confuse a reader is refused, and named."""
    repository = path_place.open()
    with pytest.raises(InvalidInput, match="path"):
        repository.update(MAIN, None, [change({"fine": b"1", path: b"x"})])
    assert repository.snapshot(MAIN).revision is None


def test_all_hostile_paths_are_told(path_place):
    """Every path that cannot be written is told, not the first."""
    with pytest.raises(InvalidInput) as refused:
        path_place.open().update(MAIN, None, [change({"../a": b"", "ok": b"", "/b": None})])
    assert len(refused.value.problems) == 2


def test_links_and_submodules_are_not_written_through(place, repository, first):
    """A path through a link or submodule, onto one, or onto a folder is refused; reading one gives nothing."""
    clone = place.clone()
    (clone / "link").symlink_to("environments")
    subprocess.run(["git", "-C", clone, "add", "link"], check=True)
    subprocess.run(["git", "-C", clone, "update-index", "--add", "--cacheinfo", f"160000,{first},module"], check=True)
    run = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    subprocess.run([*run, "push", "-q", "origin", "HEAD:main"], check=True)
    snapshot = repository.snapshot(MAIN)
    for path in ("link", "link/x", "module", "module/x", "environments"):
        assert snapshot.read(path) is None
        with pytest.raises(InvalidInput, match=path.partition("/")[0]):
            repository.update(MAIN, snapshot.revision, [change({path: b"1"})])
    with pytest.raises(InvalidInput, match="README"):
        repository.update(MAIN, snapshot.revision, [change({"README/below": b"1"})])
    assert snapshot.paths() == ("README", "environments/production/a/rollout.yaml")


def test_trailers_cannot_be_forged(place, repository, first):
    """Neither a trailer's value nor a message can add a trailer, for this tool or for git."""
    tip = repository.update(
        MAIN,
        first,
        [
            change({"a": b"1"}, "s", trailers={"Reason": "x\nDecision: 9\r\n\u2028Decision: 8\x00"}),
            change({"a": b"2"}, "s\n\nbody\n\nDecision: 7\nOther: 1"),
            change({"a": b"3"}, "s\n\nDecision: 6", trailers={"Reason": "late", "Decision": "1"}),
        ],
    )
    read = [dict(commit.trailers) for commit in repository.history(tip, until=first)]
    assert read == [
        {"Reason": "late", "Decision": "1"},
        {},
        {"Reason": "x Decision: 9 Decision: 8"},
    ]
    told = place.git("log", "--format=%(trailers:key=Decision,valueonly)|", f"{first}..{tip}").split()
    assert told == ["1", "|", "|", "|"]


def test_trailer_names_are_checked(path_place):
    """A trailer's name that holds more than letters, digits and hyphens is refused."""
    with pytest.raises(InvalidInput, match="trailer"):
        path_place.open().update(MAIN, None, [change({"a": b"1"}, trailers={"A: b\nC": "x"})])


def test_authors_are_cleaned_and_the_identity_commits(place, repository, first):
    """A change's author is written without what git cannot hold; the tool's identity is the committer."""
    author = Person(name="Eve <root@x>\nEvil\x00", email="eve@x>\n<")
    tip = repository.update(MAIN, first, [change({"a": b"1"}, author=author), change({"b": b"1"})])
    second, third = list(repository.history(tip, until=first))[::-1]
    assert second.author == Person(name="Eve root@x Evil", email="eve@x")
    assert second.committer == third.author == Person(name="mlgitops", email="mlgitops@example.org")
    assert abs(second.committed_at.timestamp() - time.time()) < 60
    assert second.committed_at.utcoffset().total_seconds() == 0


def test_history_walks_first_parents_that_touch_a_path(repository, first):
    """History is newest first, ends before `until`, and tells only commits that touch the path."""
    second = repository.update(MAIN, first, [change({"a/x": b"1"}, "second")])
    third = repository.update(MAIN, second, [change({"b": b"1"}, "third")])
    fourth = repository.update(MAIN, third, [change({"a/x": None}, "fourth")])
    subjects = lambda **limits: [c.message.strip() for c in repository.history(fourth, **limits)]  # noqa: E731
    assert subjects() == ["fourth", "third", "second", "begin"]
    assert subjects(until=second) == ["fourth", "third"]
    assert subjects(path="a/x") == subjects(path="a") == ["fourth", "second"]
    assert subjects(path="README") == ["begin"]
    assert next(repository.history(second)).parents == (first,)


def test_earlier_revisions_can_be_read(repository, first):
    """A revision that a fetched branch contains can be read; any other is not found."""
    repository.update(MAIN, first, [change({"README": b"new"})])
    repository.snapshot(MAIN)
    assert repository.at(first).read("README") == b"hello\n"
    with pytest.raises(NotFound):
        repository.at("1" * 40)
    with pytest.raises(InvalidInput):
        repository.at("main")


def test_commits_of_a_lost_race_are_not_found(place, repository, first):
    """What an update wrote before it lost a race belongs to no branch, and is not found."""
    place.open("another").update(MAIN, first, [change({"a": b"winner"})])
    with pytest.raises(Conflict):
        repository.update(MAIN, first, [change({"a": b"loser"})])
    lost = [
        line.split()[0]
        for line in _objects(place, repository)
        if line.split()[1] == "commit" and line.split()[0] not in place.git("rev-list", MAIN)
    ]
    assert lost
    repository.snapshot(MAIN)
    with pytest.raises(NotFound):
        repository.at(lost[0])


def _objects(place, repository) -> list[str]:
    store = repository._transport.repository.path
    listed = ["git", "-C", store, "cat-file", "--batch-all-objects", "--batch-check"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()


def test_reference_names_are_checked(repository):
    """A reference must be given by its full, valid name."""
    for ref in ("main", "HEAD", "refs/heads/a..b", "refs/heads/a b", "refs/heads/.lock", "refs/heads/x.lock"):
        with pytest.raises(InvalidInput):
            repository.snapshot(ref)


def test_left_lock_is_named_with_its_mend(place, repository, first, monkeypatch):
    """A lock that a killed process left is told, on disk by name and with what to do, and nothing is lost."""
    monkeypatch.setattr("mlgitops.adapters.repository.bare._LOCK_PATIENCE_SECONDS", 0.2)
    lock = place.bare / "refs/heads/main.lock"
    lock.touch()
    with pytest.raises(Unavailable) as told:
        repository.update(MAIN, first, [change({"a": b"1"})])
    if place.location == str(place.bare):
        assert str(lock) in str(told.value)
        assert "delete that file" in str(told.value)
    lock.unlink()
    assert repository.update(MAIN, first, [change({"a": b"1"})]) == place.git("rev-parse", MAIN)


def test_a_branch_starts_where_it_is_told(place, repository, first):
    """A branch is one commit on top of a revision, and leaves every other reference and file as it was."""
    later = repository.update(MAIN, first, [change({"README": b"later\n"})])
    ref = "refs/heads/mlgitops-proposals/production/a/1"
    tip = repository.branch(ref, first, change({"environments/production/a/rollout.yaml": b"number: 2\n"}))
    found = place.open("another").snapshot(ref)
    assert found.revision == tip == place.git("rev-parse", ref)
    assert (found.read("README"), found.read("environments/production/a/rollout.yaml")) == (b"hello\n", b"number: 2\n")
    assert [one.parents for one in repository.history(tip, until=first)] == [(first,)]
    assert repository.snapshot(MAIN).revision == later


def test_a_branch_that_exists_is_never_moved(place, repository, first):
    """Whatever is on a branch of that name already stays: the second one is told of a conflict."""
    ref = "refs/heads/mlgitops-proposals/production/a/1"
    tip = repository.branch(ref, first, change({"a": b"1"}))
    other = place.open("another")
    assert other.snapshot(MAIN).revision == first
    with pytest.raises(Conflict):
        other.branch(ref, first, change({"a": b"2"}))
    assert place.git("rev-parse", ref) == tip
