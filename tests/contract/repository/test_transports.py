"""What a server may do to the tool, and what it must never get from it."""

import base64
import dataclasses
import os
import shutil
import subprocess
import sys
import threading

import pytest
from pygit2.enums import CredentialType

from mlgitops.adapters.repository.bare import head, init_bare
from mlgitops.adapters.repository.commits import Signing
from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials, parse_location
from mlgitops.adapters.repository.push import push_all
from mlgitops.adapters.repository.remote import _Callbacks
from mlgitops.core.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from mlgitops.ports.repository import Change, Person

MAIN = "refs/heads/main"
BEGIN = Change(message="begin", files={"a": b"1"})


def whole(error: BaseException) -> str:
    """Everything an error shows, its causes included."""
    seen: BaseException | None = error
    text = ""
    while seen is not None:
        text += f"{seen!r} {seen} {vars(seen)}"
        seen = seen.__cause__
    return text


def test_wrong_token_is_denied_without_the_token(http_place):
    """A refused token is Denied, asked for once, and appears nowhere in the error."""
    repository = http_place.open(credentials=Credentials(token="wr0ng-t0ken"))
    for attempt in (lambda: repository.snapshot(MAIN), lambda: repository.create({MAIN: BEGIN, MAIN + "2": BEGIN})):
        http_place.requests.clear()
        with pytest.raises(Denied) as refused:
            attempt()
        assert "wr0ng-t0ken" not in whole(refused.value)
        assert len([given for *_, given in http_place.requests if given]) == 1


def test_missing_token_is_denied(http_place):
    """A server that wants a token where none is set is Denied, saying so."""
    with pytest.raises(Denied, match="none are set"):
        http_place.open(credentials=None).snapshot(MAIN)


def test_token_in_the_url_is_used_and_hidden(http_place, token, tmp_path):
    """A token inside a URL opens the server, and is shown and stored nowhere."""
    location = http_place.location.replace("//", f"//x-access-token:{token}@")
    repository = open_repository(location, identity=Person(name="a", email="b"), cache=tmp_path / "cache")
    repository.create({MAIN: BEGIN})
    assert token not in repr(parse_location(location)) + repr(Credentials(token=token, passphrase=token))
    stored = subprocess.run(["grep", "-r", token, tmp_path / "cache"], capture_output=True, check=False)
    assert stored.returncode == 1
    wrong = location.replace(token, "wr0ng-t0ken")
    repository = open_repository(wrong, identity=Person(name="a", email="b"), cache=tmp_path / "cache")
    with pytest.raises(Denied) as refused:
        repository.snapshot(MAIN)
    assert "wr0ng-t0ken" not in whole(refused.value)


@pytest.mark.parametrize("where", ["in a variable", "in the address"])
def test_no_token_is_on_a_command_line(http_place, token, tmp_path, monkeypatch, where):
    """What git is started with, and what git starts, any account of the machine can read: no token is in it."""
    git, seen, programs = shutil.which("git"), tmp_path / "seen", tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>'{seen}'\nGIT_TRACE='{seen}' exec '{git}' \"$@\"\n"
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    if where == "in the address":
        http_place.location = http_place.location.replace("//", f"//x-access-token:{token}@")
        http_place.credentials = None
    repository = http_place.open()
    repository.create({MAIN: BEGIN})
    repository.update(MAIN, repository.snapshot(MAIN).revision, [Change(message="more", files={"b": b"2"})])
    lines = seen.read_text()
    assert lines.count("push --porcelain") >= 2
    assert "remote-http" in lines, "what git itself starts is seen, too"
    assert token not in lines
    assert base64.b64encode(f"x-access-token:{token}".encode()).decode() not in lines


@pytest.mark.parametrize("text", ["gopher://u:s3cret@h/x", "http://u:s3cret@h:notaport/x", "https://u:s3cret@/x"])
def test_wrong_locations_are_told_without_secrets(text):
    """A location the tool cannot use is InvalidInput, without the secret inside it."""
    with pytest.raises(InvalidInput) as refused:
        parse_location(text)
    assert "s3cret" not in whole(refused.value)


@pytest.mark.parametrize(
    ("text", "kind", "url"),
    [
        ("/srv/a.git", "path", "/srv/a.git"),
        ("file:///srv/a%20b.git", "path", "/srv/a b.git"),
        ("https://u:p@example.org:8443/a.git", "http", "https://example.org:8443/a.git"),
        ("http://[::1]:80/a", "http", "http://[::1]:80/a"),
        ("ssh://git@example.org:2222/a.git", "ssh", "ssh://git@example.org:2222/a.git"),
        ("git@example.org:team/a.git", "ssh", "git@example.org:team/a.git"),
        ("./here:there", "path", "./here:there"),
    ],
)
def test_locations(text, kind, url):
    """Paths, URLs and scp-like locations are told apart."""
    place = parse_location(text)
    assert (place.kind, place.url) == (kind, url)


def test_redirects_are_not_followed(http_place, serve_http, tmp_path):
    """A redirect to another server is refused, and that server gets no request, so no token."""
    with serve_http(tmp_path) as other, serve_http(tmp_path, redirect=f"http://localhost:{other.server_port}") as first:
        http_place.location = f"http://127.0.0.1:{first.server_port}/environments.git"
        with pytest.raises(Denied, match="redirect"):
            http_place.open().snapshot(MAIN)
        assert first.requests
        assert other.requests == []


def test_a_token_is_not_sent_in_clear(token):
    """Only https and loopback get a token: elsewhere http would show it to the network."""
    ask = CredentialType.USERPASS_PLAINTEXT
    for text in ("https://example.org/a.git", "http://127.0.0.1:3000/a.git"):
        asked = _Callbacks(parse_location(text), Credentials(token=token))
        assert asked.credentials(text, None, ask).credential_tuple == ("x-access-token", token)
    asked = _Callbacks(parse_location("http://example.org/a.git"), Credentials(token=token))
    with pytest.raises(Denied, match="https"):
        asked.credentials("http://example.org/a.git", None, ask)


def test_unreachable_server_is_unavailable(http_place, ssh_place):
    """A server that is not there is Unavailable, over http as over ssh, for reading as for writing."""
    http_place.location = "http://127.0.0.1:9/a.git"
    ssh_place.location = "ssh://git@127.0.0.1:9/a.git"
    for place in (http_place, ssh_place):
        repository = place.open()
        for attempt in (
            lambda repository=repository: repository.snapshot(MAIN),
            lambda repository=repository: repository.update(MAIN, None, [BEGIN]),
        ):
            with pytest.raises(Unavailable):
                attempt()


@pytest.mark.parametrize(("status", "error"), [(403, Denied), (404, NotFound), (500, Unavailable), (503, Unavailable)])
def test_statuses_of_a_server(http_place, serve_http, tmp_path, status, error):
    """A server's status is told for what it is: a no, a missing repository, or no answer."""
    with serve_http(tmp_path, status=status) as server:
        http_place.location = f"http://127.0.0.1:{server.server_port}/environments.git"
        with pytest.raises(error):
            http_place.open().snapshot(MAIN)


def test_unknown_host_key_is_refused(ssh_place, tmp_path):
    """A server whose key is not known, or is another, is refused before anything is sent."""
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.write_text("")
    line = ssh_place.credentials.known_hosts.read_text()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    other.write_text(line.split()[0] + " " + " ".join((tmp_path / "k.pub").read_text().split()[:2]) + "\n")
    for known in (empty, other):
        opens = Credentials(key=ssh_place.credentials.key, known_hosts=known)
        with pytest.raises(Denied, match="key"):
            ssh_place.open(credentials=opens).snapshot(MAIN)


def test_wrong_ssh_key_is_denied(ssh_place, tmp_path):
    """An ssh key the server does not take is Denied, and one that is missing is told at once."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True)
    known = ssh_place.credentials.known_hosts
    with pytest.raises(Denied):
        ssh_place.open(credentials=Credentials(key=tmp_path / "k", known_hosts=known)).snapshot(MAIN)
    with pytest.raises(InvalidInput, match="private key"):
        ssh_place.open(credentials=Credentials(key=tmp_path / "none", known_hosts=known))


@pytest.mark.parametrize("damage", ["half made", "objects gone", "not a repository"])
def test_damaged_clone_is_made_again(http_place, damage):
    """A cached clone that is half made or damaged is thrown away and made again."""
    tip = http_place.open().create({MAIN: BEGIN})[MAIN]
    (clone,) = (http_place.folder / "cache").glob("*.git")
    if damage == "half made":
        (clone / "HEAD").unlink()
    elif damage == "objects gone":
        subprocess.run(["find", clone / "objects", "-type", "f", "-delete"], check=True)
    else:
        subprocess.run(["rm", "-rf", clone], check=True)
        clone.write_text("?")
    assert http_place.open().snapshot(MAIN).revision == tip


def test_clone_thrown_away_while_in_use(http_place):
    """A repository that is open keeps working when its cached clone is thrown away."""
    repository = http_place.open()
    tip = repository.create({MAIN: BEGIN})[MAIN]
    subprocess.run(["rm", "-rf", *(http_place.folder / "cache").glob("*.git")], check=True)
    assert repository.snapshot(MAIN).read("a") == b"1"
    assert repository.update(MAIN, tip, [Change(message="next", files={"a": b"2"})]) == head(http_place.bare, MAIN)


def test_only_asked_for_references_are_fetched(http_place):
    """A fetch brings the asked for reference, and no other."""
    repository = http_place.open()
    repository.create({MAIN: BEGIN, "refs/heads/other": Change(message="other", files={"b": b"2"})})
    fresh = http_place.open("fresh")
    fresh.snapshot(MAIN)
    (clone,) = (http_place.folder / "fresh").glob("*.git")
    listed = subprocess.check_output(["git", "-C", clone, "for-each-ref", "--format=%(refname)"], text=True)
    assert listed.split() == ["refs/tracked/heads/main"]


def test_threads_share_a_repository(place):
    """Threads that write through one opened repository lose nothing."""
    repository = place.open()
    repository.create({MAIN: BEGIN})

    def write(name: str) -> None:
        while True:
            before = repository.snapshot(MAIN)
            try:
                repository.update(MAIN, before.revision, [Change(message=name, files={name: b"x"})])
            except Conflict:
                continue
            return

    threads = [threading.Thread(target=write, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repository.snapshot(MAIN).paths() == ("a", "t0", "t1", "t2", "t3")


def test_without_git_several_references_are_taken_back(http_place, monkeypatch):
    """Where there is no git program, references the server took beside a refused one are taken back."""
    monkeypatch.setattr("mlgitops.adapters.repository.remote.shutil.which", lambda name: None)
    repository = http_place.open()
    made = repository.create({MAIN: BEGIN, "refs/heads/b": BEGIN})
    assert set(made.values()) == {head(http_place.bare, MAIN)} == {head(http_place.bare, "refs/heads/b")}
    http_place.hook("update", "case $1 in *no) exit 1;; esac\n")
    with pytest.raises(Denied, match="hook declined"):
        repository.create({"refs/heads/yes": BEGIN, "refs/heads/no": BEGIN})
    assert head(http_place.bare, "refs/heads/yes") is None


def test_hooks_on_disk_do_not_see_secrets(path_place, monkeypatch):
    """A hook of a repository on disk runs, without this process's secrets in its environment."""
    monkeypatch.setenv("MLGITOPS_TOKEN", "s3cret")
    path_place.hook("post-receive", f"env > {path_place.folder}/seen")
    path_place.open().update(MAIN, None, [BEGIN])
    seen = (path_place.folder / "seen").read_text()
    assert "PATH=" in seen
    assert "s3cret" not in seen


def test_lock_left_beside_hooks_is_named(path_place, monkeypatch):
    """Where hooks run on disk, a left lock is named with its mend as well."""
    monkeypatch.setattr("mlgitops.adapters.repository.bare._LOCK_PATIENCE_SECONDS", 0.2)
    repository = path_place.open()
    tip = repository.create({MAIN: BEGIN})[MAIN]
    path_place.hook("pre-receive", "exit 0\n")
    lock = path_place.bare / "refs/heads/main.lock"
    lock.touch()
    with pytest.raises(Unavailable, match=r"main\.lock.*delete that file"):
        repository.update(MAIN, tip, [Change(message="next", files={"a": b"2"})])


def test_name_in_the_way_is_a_conflict(path_place):
    """A reference cannot be made where another's name is in the way, before or after; none of a set is left."""
    repository = path_place.open()
    repository.create({"refs/heads/a": BEGIN})
    for refs in (["refs/heads/a/b"], ["refs/heads/x", "refs/heads/a/b"]):
        with pytest.raises(Conflict, match="in the way"):
            repository.create(dict.fromkeys(refs, BEGIN))
    with pytest.raises(InvalidInput, match="below another"):
        repository.create({"refs/heads/c": BEGIN, "refs/heads/c/d": BEGIN})
    assert path_place.git("for-each-ref", "--format=%(refname)") == "refs/heads/a"


def test_failure_in_the_middle_of_a_set_leaves_nothing(path_place, monkeypatch):
    """When one reference of a set cannot be written after all were locked, the others are taken back and unlocked."""
    repository = path_place.open()
    transport = repository._transport
    compare = transport._compare

    def obstruct(moves):
        compare(moves)
        (path_place.bare / "refs/heads/n/full").mkdir(parents=True)

    monkeypatch.setattr(transport, "_compare", obstruct)
    with pytest.raises(Unavailable):
        repository.create({f"refs/heads/{name}": BEGIN for name in "mno"})
    assert path_place.git("for-each-ref") == ""
    assert list(path_place.bare.rglob("*.lock")) == []


def test_folder_that_is_no_bare_repository_is_refused(tmp_path):
    """A missing folder is NotFound; a repository with a working tree is refused with the reason."""
    options = {"identity": Person(name="a", email="b"), "cache": tmp_path / "cache"}
    with pytest.raises(NotFound):
        open_repository(str(tmp_path / "none"), **options)
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    with pytest.raises(InvalidInput, match="bare"):
        open_repository(str(tmp_path / "tree"), **options)


def test_identity_must_be_writable(path_place):
    """An identity that git cannot write down is refused when the repository is opened."""
    for person in (Person(name="a\nb", email="x"), Person(name="<a>", email="x"), Person(name="", email="x")):
        with pytest.raises(InvalidInput, match="identity"):
            path_place.open(identity=person)


def test_init_is_idempotent_and_head_follows(tmp_path):
    """`init_bare` makes a repository whose HEAD is the default branch, once; `head` tells where a branch is."""
    path = tmp_path / "deep" / "a.git"
    for _ in range(2):
        init_bare(path, "trunk")
        assert head(path, "refs/heads/trunk") is None
    assert (path / "HEAD").read_text() == "ref: refs/heads/trunk\n"
    repository = open_repository(f"file://{path}", identity=Person(name="a", email="b"), cache=tmp_path)
    tip = repository.update("refs/heads/trunk", None, [BEGIN])
    init_bare(path, "other")
    assert head(path, "refs/heads/trunk") == tip


def test_user_settings_do_not_matter(http_place, tmp_path, monkeypatch):
    """The user's git settings, like a rewritten URL or forced signing, change nothing."""
    (tmp_path / ".gitconfig").write_text('[url "http://127.0.0.1:9/"]\n insteadOf = http://\n[push]\n gpgSign = true\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    http_place.open().create({MAIN: BEGIN, "refs/heads/b": BEGIN})
    assert head(http_place.bare, MAIN)


@pytest.mark.parametrize("program", ["ssh", "gpg"])
def test_signed_commits_verify(path_place, tmp_path, monkeypatch, program):
    """Signed commits carry a signature that git itself verifies."""
    settings = ["-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={tmp_path}/allowed"]
    key = tmp_path / "key"
    if program == "ssh":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (tmp_path / "allowed").write_text("mlgitops@example.org " + key.with_suffix(".pub").read_text())
        signing = Signing(program="ssh", key=str(key))
    else:
        (tmp_path / "gnupg").mkdir(mode=0o700)
        monkeypatch.setenv("GNUPGHOME", str(tmp_path / "gnupg"))
        make = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "mlgitops@example.org", "ed25519", "sign"]
        subprocess.run(make, check=True, capture_output=True)
        signing, settings = Signing(program="gpg", key="mlgitops@example.org"), []
    tip = path_place.open(signing=signing).update(MAIN, None, [BEGIN])
    verify = ["git", *settings, "-C", path_place.bare, "verify-commit", tip]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    if program == "gpg":
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=False)


def test_signing_that_fails_writes_nothing(path_place, tmp_path):
    """When a commit cannot be signed, no reference moves."""
    with pytest.raises(Unavailable, match="signed"):
        path_place.open(signing=Signing(program="ssh", key=str(tmp_path / "none"))).update(MAIN, None, [BEGIN])
    assert head(path_place.bare, MAIN) is None


def test_a_push_whose_answer_is_lost_counts_as_landed(http_place, monkeypatch):
    """Where the server moved the reference and its answer was lost, the push landed, and nothing is pushed again."""
    repository = http_place.open()
    tip = repository.create({MAIN: BEGIN})[MAIN]

    def deaf(*arguments):
        outcome = push_all(*arguments)
        return dataclasses.replace(outcome, landed=False, verdicts={}, words="broken pipe", answered=False)

    monkeypatch.setattr("mlgitops.adapters.repository.remote.push_all", deaf)
    after = repository.update(MAIN, tip, [Change(message="next", files={"a": b"2"})])
    assert after == head(http_place.bare, MAIN) != tip
    assert http_place.git("rev-list", "--count", MAIN) == "2"


@pytest.mark.parametrize("refs", [[MAIN], [MAIN, "refs/heads/b"]])
def test_a_race_found_by_the_server_is_a_conflict(http_place, refs):
    """Whoever is beaten between the server's two looks at a reference is told of a conflict, alone or in a set."""
    repository = http_place.open()
    other = http_place.open("other").create({"refs/heads/other": Change(message="other", files={"b": b"2"})})
    http_place.hook("pre-receive", f"unset GIT_QUARANTINE_PATH; git update-ref {MAIN} {other['refs/heads/other']}\n")
    with pytest.raises(Conflict):
        repository.create(dict.fromkeys(refs, BEGIN))
    assert head(http_place.bare, "refs/heads/b") is None


def test_one_process_at_a_time_uses_a_clone(http_place, monkeypatch):
    """Who needs a cached clone that another process holds waits for it, and says so when it waited too long."""
    repository = http_place.open()
    (lock,) = (http_place.folder / "cache").glob("*.lock")
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, lock]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        monkeypatch.setattr("mlgitops.adapters.repository.remote._CACHE_PATIENCE_SECONDS", 0.1)
        with pytest.raises(Unavailable, match="another process"):
            repository.snapshot(MAIN)
        monkeypatch.setattr("mlgitops.adapters.repository.remote._CACHE_PATIENCE_SECONDS", 60.0)
        threading.Timer(0.3, other.stdin.close).start()
        assert repository.snapshot(MAIN).revision is None
