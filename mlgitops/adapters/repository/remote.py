"""A repository behind https or ssh: a cached bare clone, fetched before each read, pushed with a lease."""

import base64
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final, Literal

import pygit2
from pygit2.enums import CredentialType

from mlgitops.adapters.redacting import redactor
from mlgitops.adapters.repository.location import Credentials, Location
from mlgitops.adapters.repository.packing import pack_when_many
from mlgitops.adapters.repository.push import push_all
from mlgitops.adapters.repository.transport import Move, commit_at
from mlgitops.core.errors import Conflict, Denied, InvalidInput, MlgitopsError, NotFound, Unavailable

_CONNECT_MILLISECONDS: Final = 20_000
_SILENCE_MILLISECONDS: Final = 60_000
_CACHE_PATIENCE_SECONDS: Final = 300.0
_LOOK_AGAIN_SECONDS: Final = 0.02
_TRACKED: Final = "refs/tracked/"
_WORDS_LIMIT: Final = 2_000
"""Characters of a server's words that are kept."""
_RACE: Final = re.compile(
    r"failed to update ref|cannot lock ref|already exists|non-fast-?forward|fetch first|stale info|incorrect old value",
    re.IGNORECASE,
)
_UNSAID: Final = "it did not say whether it did"
_STATUS: Final = re.compile(r"unexpected http status code: (\d+)")
_SSH_HOME: Final = threading.Lock()
"""libgit2 finds the trusted host keys below one home directory for the whole process."""

pygit2.settings.server_connect_timeout = _CONNECT_MILLISECONDS
pygit2.settings.server_timeout = _SILENCE_MILLISECONDS


class _Callbacks(pygit2.RemoteCallbacks):
    """Answers a server's questions once, and keeps its words."""

    def __init__(self, location: Location, credentials: Credentials) -> None:
        super().__init__()
        self.words = ""
        self._location, self._credentials = location, credentials
        self._asked = 0

    def credentials(
        self, _url: str, username_from_url: str | None, allowed_types: CredentialType
    ) -> pygit2.Username | pygit2.UserPass | pygit2.Keypair:
        """Give the credentials once; a server that asks again has refused them."""
        given, name = self._credentials, self._location.username or username_from_url
        if allowed_types & CredentialType.USERNAME:
            return pygit2.Username(name or "git")
        self._asked += 1
        if self._asked > 1:
            raise Denied("access to", self._location.url, "the server refused the credentials")
        if allowed_types & CredentialType.USERPASS_PLAINTEXT and self._location.kind == "http":
            if given.token is None:
                raise Denied("access to", self._location.url, "the server asks for credentials, and none are set")
            if self._location.clear:
                raise Denied("sending a token to", self._location.url, "http would show it to the network; use https")
            return pygit2.UserPass(name or given.username, given.token)
        if allowed_types & CredentialType.SSH_KEY:
            if given.key is None:
                return pygit2.KeypairFromAgent(name or "git")
            public = given.key.with_name(given.key.name + ".pub")
            beside = str(public) if public.exists() else None
            return pygit2.Keypair(name or "git", beside, str(given.key), given.passphrase or "")
        raise Denied("access to", self._location.url, f"the server wants {allowed_types!r}, which the tool cannot give")

    def certificate_check(self, _certificate: None, valid: bool, host: bytes) -> bool:  # noqa: FBT001
        """Trust what TLS or the file of known hosts trusts, and nothing else."""
        if not valid:
            name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
            place = self._credentials.known_hosts or "~/.ssh/known_hosts"
            what = f"its key is not in {place}" if self._location.kind == "ssh" else "its certificate is not trusted"
            raise Denied("connecting to", name, what)
        return True

    def sideband_progress(self, string: str) -> None:
        """Keep what the server, or a hook there, says."""
        self.words = (self.words + string)[-_WORDS_LIMIT:]


class _PushCallbacks(_Callbacks):
    """Holds the lease of a push, and notes the server's verdict on every reference."""

    def __init__(self, location: Location, credentials: Credentials, moves: Sequence[Move]) -> None:
        super().__init__(location, credentials)
        self.verdicts: dict[str, str | None] = {}
        self._expected = {move.ref: move.expected for move in moves}

    def push_negotiation(self, updates: list[pygit2.remotes.PushUpdate]) -> None:
        """Stop before anything is sent when a reference moved; the server compares again when it writes."""
        for update in updates:
            expected, found = self._expected[update.dst_refname], _oid(update.src)
            if found != expected:
                raise _conflict(update.dst_refname, expected, found)

    def push_update_reference(self, refname: str, message: str | None) -> None:
        """Note the verdict: None is yes. libgit2 itself raises nothing for a no."""
        self.verdicts[refname] = message


class RemoteTransport:
    """Fetches into, and pushes from, a clone below the cache folder; one process at a time."""

    def __init__(self, location: Location, cache: Path, credentials: Credentials | None) -> None:
        given = credentials or Credentials()
        if location.password and given.token is None and location.kind == "http":
            given = Credentials(token=location.password, username=location.username or given.username)
        if location.kind == "ssh" and given.known_hosts and not given.known_hosts.is_file():
            raise InvalidInput(f"there is no file of known hosts at {given.known_hosts}")
        if location.kind == "ssh" and given.key and not given.key.is_file():
            raise InvalidInput(f"there is no private key at {given.key}")
        self._location, self._credentials = location, given
        key = hashlib.sha256(location.url.encode()).hexdigest()[:20]
        self._path = cache / f"{key}.git"
        self._lock = cache / f"{key}.lock"
        self._guard = threading.RLock()
        self._inode = -1
        with self._session():
            pass

    @property
    def repository(self) -> pygit2.Repository:
        """The cached clone."""
        return self._repository

    def fetch(self, ref: str) -> pygit2.Oid | None:
        """Return where a reference is on the server, its commits fetched; None when it does not exist."""
        with self._session():
            tip = self._fetch(ref)
            if tip is not None and not self._is_commit(tip):
                # The clone was damaged: it knows the reference but lacks its objects.
                self._discard()
                tip = self._fetch(ref)
            return self._peeled(tip)

    def tips(self) -> Sequence[pygit2.Oid]:
        """Return where the references fetched so far were."""
        names = [name for name in self._repository.listall_references() if name.startswith(_TRACKED)]
        found = (commit_at(self._repository, name) for name in names)
        return [tip for tip in found if tip is not None]

    def move(self, moves: Sequence[Move]) -> None:
        """Push all moves, or none."""
        with self._session():
            if not self._push_with_git(moves):
                self._push_with_libgit2(moves)
            with suppress(pygit2.GitError, OSError):  # it has landed, whether a full disk lets that be noted or not
                for move in moves:
                    self._track(move.ref, move.target)
        pack_when_many(self._path)

    def _push_with_git(self, moves: Sequence[Move]) -> bool:
        """Push through git where it is installed; False where it gets no answer.

        Only git asks a server for all references or none, and only git leaves out what the server has without reading
        it: libgit2 walks all files of the commit below.
        """
        given = self._credentials
        if given.passphrase or not shutil.which("git"):
            return False
        outcome = push_all(self._path, self._location.url, moves, self._opening())
        if outcome.landed:
            return True
        if outcome.answered:
            refused = next((move for move in moves if move.ref in outcome.verdicts), moves[0])
            raise self._refusal(refused, outcome.verdicts.get(refused.ref, ""), outcome.words)
        if given.token and "could not read Username" in outcome.words:  # git would ask a person for another token
            raise Denied("access to", self._location.url, "the server refused the credentials")
        # The server may have moved them all the same. What keeps it from answering is told here in a known form.
        return all(self._fetch(move.ref) == move.target for move in moves)

    def _push_with_libgit2(self, moves: Sequence[Move]) -> None:
        callbacks = _PushCallbacks(self._location, self._credentials, moves)
        with self._translated(callbacks):
            self._remote().push(
                [f"{move.target}:{move.ref}" for move in moves], callbacks=callbacks, proxy=self._proxy()
            )
        refused = [move for move in moves if callbacks.verdicts.get(move.ref, _UNSAID) is not None]
        if refused:
            self._take_back([move for move in moves if move not in refused])
            verdict = callbacks.verdicts.get(refused[0].ref) or _UNSAID
            raise self._refusal(refused[0], verdict, "; ".join(filter(None, callbacks.words.splitlines())))

    def _opening(self) -> dict[str, str]:
        """Return the variables that open the server to git; a command line could be read by others."""
        given, name = self._credentials, self._location.username
        if self._location.kind == "ssh":
            trusted = f"-o UserKnownHostsFile={shlex.quote(str(given.known_hosts))}" if given.known_hosts else ""
            key = f"-o IdentitiesOnly=yes -i {shlex.quote(str(given.key))}" if given.key else ""
            return {"GIT_SSH_COMMAND": f"ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=yes {trusted} {key}"}
        if given.token is None or self._location.clear:
            return {}
        pair = base64.b64encode(f"{name or given.username}:{given.token}".encode()).decode()
        return {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{self._location.url}.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {pair}",
        }

    def _fetch(self, ref: str) -> pygit2.Oid | None:
        remote, callbacks = self._remote(), _Callbacks(self._location, self._credentials)
        with self._translated(callbacks):
            remote.connect(callbacks=callbacks, proxy=self._proxy())
            advertised = {head.name: head.oid for head in remote.list_heads(connect=False)}
            tip = advertised.get(ref)
            tracked = _TRACKED + ref.removeprefix("refs/")
            if tip is None:
                self._track(ref, None)
            elif self._value(tracked) != tip:
                # `+`: a branch that was rewritten is seen as it is now.
                remote.fetch([f"+{ref}:{tracked}"], callbacks=callbacks, proxy=self._proxy())
        return tip

    def _value(self, name: str) -> pygit2.Oid | None:
        try:
            target = self._repository.lookup_reference(name).target
        except KeyError:
            return None
        return target if isinstance(target, pygit2.Oid) else None

    def _is_commit(self, tip: pygit2.Oid) -> bool:
        try:
            return self._peeled(tip) is not None
        except (KeyError, pygit2.GitError):
            return False

    def _peeled(self, tip: pygit2.Oid | None) -> pygit2.Oid | None:
        return None if tip is None else self._repository[tip].peel(pygit2.Commit).id

    def _track(self, ref: str, tip: pygit2.Oid | None) -> None:
        name = _TRACKED + ref.removeprefix("refs/")
        if tip is not None:
            self._repository.create_reference_direct(name, tip, True)
        elif name in self._repository.references:
            self._repository.references.delete(name)

    def _take_back(self, landed: Sequence[Move]) -> None:
        """Return references to where they were: without git, nobody can ask a server for all or nothing."""
        for move in landed:
            back = Move(ref=move.ref, expected=move.target, target=move.target)
            callbacks = _PushCallbacks(self._location, self._credentials, [back])
            source = f"+{move.expected}" if move.expected else ""
            with self._translated(callbacks):
                self._remote().push([f"{source}:{move.ref}"], callbacks=callbacks, proxy=self._proxy())
            if (verdict := callbacks.verdicts.get(move.ref)) is not None:
                raise Denied("taking back", move.ref, f"it was written, a reference beside it was refused: {verdict}")

    def _refusal(self, move: Move, verdict: str, words: str) -> MlgitopsError:
        # Of references that move together, the verdict says that they did not, and only the words say why.
        raced = _RACE.search(f"{verdict} {words}" if "atomic" in verdict else verdict)
        if raced:
            found = self._fetch(move.ref)
            if found != move.expected:
                return _conflict(move.ref, move.expected, found)
        if verdict is _UNSAID or raced:
            return Unavailable(self._location.url, f"the server could not move {move.ref}: {self._clean(verdict)}")
        return Denied("push to", move.ref, self._clean(f"{verdict}: {words}" if words else verdict))

    def _remote(self) -> pygit2.Remote:
        return self._repository.remotes.create_anonymous(self._location.url)

    def _proxy(self) -> Literal[True] | None:
        return True if self._location.kind == "http" else None

    def _clean(self, text: str) -> str:
        given = (self._credentials.token, self._credentials.passphrase, self._location.password)
        return redactor(*given)(text)[:_WORDS_LIMIT]

    @contextmanager
    def _translated(self, callbacks: _Callbacks) -> Iterator[None]:
        """Turn libgit2's errors into this package's, without the location's secrets."""
        home = self._ssh_home() if self._location.kind == "ssh" else nullcontext()
        try:
            with home:
                yield
        except (pygit2.GitError, OSError, ValueError) as error:
            # The cause is cut off: libgit2's own text may hold what `_clean` removes.
            raise self._translate(self._clean(str(error)), error, callbacks) from None

    def _translate(self, text: str, error: Exception, callbacks: _Callbacks) -> MlgitopsError:
        place, status = self._location.url, _STATUS.search(text)
        code = int(status[1]) if status else 0
        if "non-fastforward" in text or "not present locally" in text:
            return Conflict("the reference", None, None, text)
        if isinstance(error, pygit2.AuthError) or code in {401, 403} or "authenticat" in text.lower():
            return Denied("access to", place, text)
        if isinstance(error, pygit2.CertificateError):
            return Denied("connecting to", place, text)
        if code == 404:
            return NotFound("git repository", place)
        if "redirect" in text:
            return Denied("following a redirect from", place, f"{text}; give the address it leads to")
        words = self._clean(" ".join(callbacks.words.split()))
        return Unavailable(place, f"{text}: {words}" if words else text)

    @contextmanager
    def _ssh_home(self) -> Iterator[None]:
        """Let libgit2 find the trusted host keys, and only those."""
        with _SSH_HOME, TemporaryDirectory(prefix="mlgitops-ssh-") as folder:
            before = pygit2.settings.homedir
            trusted = self._credentials.known_hosts or Path(os.path.expanduser("~/.ssh/known_hosts"))  # noqa: PTH111
            (Path(folder) / ".ssh").mkdir(mode=0o700)
            if trusted.is_file():
                shutil.copyfile(trusted, Path(folder) / ".ssh" / "known_hosts")
            pygit2.settings.homedir = folder
            try:
                yield
            finally:
                pygit2.settings.homedir = before or ""

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Hold the clone for this thread and process alone, made anew where it is missing or half made."""
        with self._guard, self._alone():
            self._open()
            yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that the kernel frees however a process ends.

        A library would be a tenth of what a command takes to edit and push: each command starts anew and imports it.
        """
        deadline = time.monotonic() + _CACHE_PATIENCE_SECONDS
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(str(self._lock), f"no clone can be kept there: {error.strerror}") from error
        try:
            while not _locked(descriptor):
                if time.monotonic() > deadline:
                    seconds = int(_CACHE_PATIENCE_SECONDS)
                    raise Unavailable(str(self._path), f"another process has held the cached clone for {seconds} s")
                time.sleep(_LOOK_AGAIN_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _open(self) -> None:
        try:
            self._open_or_make()
        except (OSError, pygit2.GitError) as error:
            words = (isinstance(error, OSError) and error.strerror) or str(error)
            raise Unavailable(str(self._path), f"no clone can be kept there: {words}") from error

    def _open_or_make(self) -> None:
        with suppress(OSError):
            if self._path.joinpath("config").stat().st_ino == self._inode:
                return
        try:
            repository = pygit2.Repository(str(self._path))
            complete = repository.is_bare and str(repository.config["mlgitops.location"]) == self._location.url
        except (pygit2.GitError, KeyError, OSError):
            complete = False
        if not complete:
            self._make()
        self._repository = pygit2.Repository(str(self._path))
        self._inode = self._path.joinpath("config").stat().st_ino

    def _make(self) -> None:
        """Make the clone beside its place and move it there, so that one that is there is whole."""
        for remains in self._path.parent.glob(f"{self._path.name}*"):
            if remains.is_dir():
                shutil.rmtree(remains)
            else:
                remains.unlink()
        made = Path(mkdtemp(prefix=f"{self._path.name}.", dir=self._path.parent))
        repository = pygit2.init_repository(str(made), bare=True)
        # A redirect could lead a token to another server.
        repository.config["http.followRedirects"] = "false"
        repository.config["mlgitops.location"] = self._location.url
        made.rename(self._path)

    def _discard(self) -> None:
        self._inode = -1
        shutil.rmtree(self._path, ignore_errors=True)
        self._open()


def _locked(descriptor: int) -> bool:
    """Take the lock of a file where nobody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _oid(value: pygit2.Oid) -> pygit2.Oid | None:
    """Return an identity; None for the zeros that git writes for 'does not exist'."""
    return value if any(value.raw) else None


def _conflict(ref: str, expected: pygit2.Oid | None, found: pygit2.Oid | None) -> Conflict:
    return Conflict(ref, str(expected) if expected else None, str(found) if found else None)
