"""A GitHub on loopback over a real repository, written from the published API description and strict about calls.

It serves the calls that the tool makes and no others; what it does not know, it refuses, and `refused` keeps it, so
that a test fails on a call that GitHub would not take. People's deeds (`merge`, `close`, …) are methods.

Source: https://docs.github.com/en/rest/pulls, /issues, /commits, version 2022-11-28
"""

import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal

import pygit2

TOKEN = "github_pat_11AAAAAAA0123456789abcdefghijklmnopqrstuvwxyz"
BOT = "mlgitops-bot"
SPOKEN: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
MOST: Final = 65_536
Answer = tuple[int, Any]


class RefusedError(Exception):
    """What GitHub answers with an error."""

    def __init__(self, status: int, message: str, *errors: str) -> None:
        self.status, self.message, self.errors = status, message, errors
        super().__init__(message)


@dataclass
class Pull:
    """A pull request as the server keeps it."""

    number: int
    branch: str
    base: str
    title: str
    body: str
    author: str
    head: str
    state: str = "open"
    merged_at: str | None = None
    closed_by: str | None = None
    fork: bool = False
    comments: list[int] = field(default_factory=list)


@dataclass
class GitHubServer:
    """One repository on a forge."""

    path: Path
    url: str = ""
    pulls: dict[int, Pull] = field(default_factory=dict)
    texts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Comments by identity."""
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    answers: list[tuple[int, Mapping[str, str], bytes]] = field(default_factory=list)
    """What to answer to the next calls instead of doing them."""
    lost: int = 0
    """Calls that write, of which the next ones are done and their answer is lost."""
    tells_who: bool = True
    """Whether `GET /user` is answered; an installation of an App may not ask."""
    most_per_page: int = 2

    @property
    def address(self) -> str:
        return f"{self.url}/repos/acme/environments"

    @property
    def git(self) -> pygit2.Repository:
        return pygit2.Repository(str(self.path))

    def tip(self, branch: str) -> str | None:
        reference = self.git.references.get(f"refs/heads/{branch}")
        return None if reference is None else str(reference.target)

    # What people do.
    def merge(self, number: int, how: Literal["merge", "squash"] = "merge", by: str = "Bob") -> str:
        """Merge as the button does; a conflict is refused, as there."""
        one, git = self.pulls[number], self.git
        assert one.state == "open"
        head, base = git[one.head], git[str(self.tip(one.base))]
        assert isinstance(head, pygit2.Commit)
        assert isinstance(base, pygit2.Commit)
        index = git.merge_commits(base, head)
        if index.conflicts is not None:
            raise RefusedError(405, "Pull Request is not mergeable")
        who = pygit2.Signature(by, f"{by.lower()}@example.org")
        author = who if how == "merge" else pygit2.Signature(one.author, f"{one.author}@users.noreply.example.org")
        words = f"Merge pull request #{number} from acme/{one.branch}\n\n{one.title}"
        if how == "squash":
            words = f"{one.title} (#{number})\n\n* {head.message}"
        parents = [base.id, head.id] if how == "merge" else [base.id]
        tree = index.write_tree(git)
        revision = git.create_commit(f"refs/heads/{one.base}", author, who, words, tree, parents)
        one.state, one.merged_at, one.closed_by = "closed", "2026-11-30T12:00:00Z", by
        return str(revision)

    def close(self, number: int, by: str = "Bob") -> None:
        self.pulls[number].state, self.pulls[number].closed_by = "closed", by

    def delete_branch(self, branch: str, by: str = "Bob") -> None:
        """Delete a branch: its open pull requests are closed by that."""
        self.git.references.delete(f"refs/heads/{branch}")
        for one in self.pulls.values():
            if one.branch == branch and one.state == "open":
                self.close(one.number, by)

    def push(self, branch: str, files: Mapping[str, bytes], by: str = "Bob") -> str:
        """Put a person's commit on a branch."""
        git = self.git
        parent = git[str(self.tip(branch))]
        assert isinstance(parent, pygit2.Commit)
        index = pygit2.Index()
        index.read_tree(parent.tree)
        for path, data in files.items():
            index.add(pygit2.IndexEntry(path, git.create_blob(data), pygit2.enums.FileMode.BLOB))
        who = pygit2.Signature(by, f"{by.lower()}@example.org")
        tree = index.write_tree(git)
        return str(git.create_commit(f"refs/heads/{branch}", who, who, f"{by}'s", tree, [parent.id]))

    def say(self, number: int, text: str, by: str = "Bob") -> int:
        """Comment as a person."""
        return self._say(number, text, by)

    # What is asked over HTTP.
    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
        for pattern, allowed in _ROUTES.items():
            found = re.fullmatch(pattern, path)
            if found and method in allowed:
                return allowed[method](self, *found.groups(), query=query, body=body)
        raise RefusedError(404, "Not Found")

    def show(self, one: Pull) -> dict[str, Any]:
        tip = self.tip(one.branch)
        if one.state == "open" and tip is not None and not one.fork:
            one.head = tip
        own = {"id": 1, "full_name": "acme/environments"}
        other = {"id": 2, "full_name": "mallory/environments"}
        return {
            "number": one.number,
            "state": one.state,
            "merged_at": one.merged_at,
            "title": one.title,
            "body": one.body or None,
            "html_url": f"https://github.example/acme/environments/pull/{one.number}",
            "user": {"login": one.author, "type": "User"},
            "head": {"ref": one.branch, "sha": one.head, "repo": other if one.fork else own},
            "base": {"ref": one.base, "sha": self.tip(one.base), "repo": own},
        }

    def list_pulls(self, *, query: Mapping[str, str], body: Any) -> Answer:
        _only(query, {"state", "base", "head", "per_page", "page"})
        found = [one for _, one in sorted(self.pulls.items(), reverse=True)]
        state = query.get("state", "open")
        if state not in {"open", "closed", "all"}:
            raise RefusedError(422, "Validation Failed")
        found = [one for one in found if state in {"all", one.state}]
        found = [one for one in found if query.get("base", one.base) == one.base]
        if "head" in query:
            owner, _, branch = query["head"].partition(":")
            found = [one for one in found if one.branch == branch and (owner == "mallory") == one.fork]
        return 200, [self.show(one) for one in found]

    def open_pull(self, *, query: Mapping[str, str], body: Any) -> Answer:
        _only(query, set())
        _fields(body, {"title": MOST, "head": 255, "base": 255, "body": MOST})
        tip = self.tip(body["head"])
        if tip is None:
            raise RefusedError(422, "Validation Failed", "head is invalid")
        if tip == self.tip(body["base"]):
            raise RefusedError(422, "Validation Failed", "No commits between base and head")
        if any(one.branch == body["head"] and one.state == "open" for one in self.pulls.values()):
            raise RefusedError(422, "Validation Failed", f"A pull request already exists for acme:{body['head']}.")
        one = Pull(len(self.pulls) + 1, body["head"], body["base"], body["title"], body["body"], BOT, tip)
        self.pulls[one.number] = one
        return 201, self.show(one)

    def change_pull(self, number: str, *, query: Mapping[str, str], body: Any) -> Answer:
        one = self._pull(number)
        if set(body) == {"state"} and body["state"] == "closed":
            if one.state == "open":
                one.state, one.closed_by = "closed", BOT
        else:
            _fields(body, {"title": 256, "body": MOST})
            one.title, one.body = body["title"], body["body"]
        return 200, self.show(one)

    def issue(self, number: str, *, query: Mapping[str, str], body: Any) -> Answer:
        one = self._pull(number)
        return 200, {"number": one.number, "closed_by": one.closed_by and {"login": one.closed_by}}

    def list_comments(self, number: str, *, query: Mapping[str, str], body: Any) -> Answer:
        _only(query, {"per_page", "page"})
        return 200, [self.texts[identity] for identity in self._pull(number).comments]

    def add_comment(self, number: str, *, query: Mapping[str, str], body: Any) -> Answer:
        _fields(body, {"body": MOST})
        return 201, self.texts[self._say(int(number), body["body"], BOT)]

    def change_comment(self, identity: str, *, query: Mapping[str, str], body: Any) -> Answer:
        _fields(body, {"body": MOST})
        self.texts[int(identity)]["body"] = body["body"]
        return 200, self.texts[int(identity)]

    def combined(self, revision: str, *, query: Mapping[str, str], body: Any) -> Answer:
        _only(query, {"per_page", "page"})
        newest = {one["context"]: one for one in self.statuses.get(revision, [])}
        return 200, {"state": "pending", "sha": revision, "statuses": list(newest.values())}

    def add_status(self, revision: str, *, query: Mapping[str, str], body: Any) -> Answer:
        _fields(body, {"state": 10, "context": 255, "description": 140})
        if body["state"] not in {"error", "failure", "pending", "success"} or revision not in self.git:
            raise RefusedError(422, "Validation Failed")
        self.statuses.setdefault(revision, []).append(body)
        return 201, body

    def user(self, *, query: Mapping[str, str], body: Any) -> Answer:
        if not self.tells_who:
            raise RefusedError(403, "Resource not accessible by integration")
        return 200, {"login": BOT, "type": "User"}

    def _pull(self, number: str) -> Pull:
        if int(number) not in self.pulls:
            raise RefusedError(404, "Not Found")
        return self.pulls[int(number)]

    def _say(self, number: int, text: str, by: str) -> int:
        identity = 1000 + len(self.texts)
        kind = "Bot" if by == BOT and not self.tells_who else "User"
        self.texts[identity] = {"id": identity, "body": text, "user": {"login": by, "type": kind}}
        self._pull(str(number)).comments.append(identity)
        return identity


_REPOSITORY = "/repos/acme/environments"
_ROUTES: Final[Mapping[str, Mapping[str, Callable[..., Answer]]]] = {
    "/user": {"GET": GitHubServer.user},
    f"{_REPOSITORY}/pulls": {"GET": GitHubServer.list_pulls, "POST": GitHubServer.open_pull},
    rf"{_REPOSITORY}/pulls/(\d+)": {"PATCH": GitHubServer.change_pull},
    rf"{_REPOSITORY}/issues/(\d+)": {"GET": GitHubServer.issue},
    rf"{_REPOSITORY}/issues/(\d+)/comments": {"GET": GitHubServer.list_comments, "POST": GitHubServer.add_comment},
    rf"{_REPOSITORY}/issues/comments/(\d+)": {"PATCH": GitHubServer.change_comment},
    rf"{_REPOSITORY}/commits/([0-9a-f]{{40}})/status": {"GET": GitHubServer.combined},
    rf"{_REPOSITORY}/statuses/([0-9a-f]{{40}})": {"POST": GitHubServer.add_status},
}


def _only(query: Mapping[str, str], known: set[str]) -> None:
    if set(query) - known:
        raise RefusedError(422, f"unknown parameters {sorted(set(query) - known)}")


def _fields(body: Any, known: Mapping[str, int]) -> None:
    if not isinstance(body, dict) or set(body) != set(known):
        raise RefusedError(422, f"expected {sorted(known)}, got {body!r:.100}")
    if any(not isinstance(body[name], str) or len(body[name]) > most for name, most in known.items()):
        raise RefusedError(422, "Validation Failed", "a field is too long, or no text")


class _Handler(BaseHTTPRequestHandler):
    forge: GitHubServer

    def _serve(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.forge.calls.append(f"{self.command} {parts.path}")
        if self.forge.answers:
            status, headers, data = self.forge.answers.pop(0)
            self._send(status, data, headers)
            return
        try:
            status, told = self._checked(parts.path, query, raw)
        except RefusedError as error:
            self.forge.refused.append(f"{self.command} {self.path}: {error.status} {error.message} {error.errors}")
            errors = [{"message": one} for one in error.errors]
            self._send(error.status, json.dumps({"message": error.message, "errors": errors}).encode(), {})
            return
        if self.forge.lost and self.command != "GET":
            self.forge.lost -= 1
            self.close_connection = True
            return
        told, more = self._page(told, parts.path, query) if isinstance(told, list) else (told, {})
        self._send(status, json.dumps(told).encode(), more)

    def _checked(self, path: str, query: Mapping[str, str], raw: bytes) -> Answer:
        told = self.headers
        if told.get("Authorization") != f"Bearer {TOKEN}":
            raise RefusedError(401, "Bad credentials")
        if any(told.get(name) != value for name, value in SPOKEN.items()) or "User-Agent" not in told:
            raise RefusedError(400, "headers are missing")
        if raw and told.get("Content-Type") != "application/json":
            raise RefusedError(415, "not JSON")
        return self.forge.answer(self.command, path, query, json.loads(raw) if raw else None)

    def _page(self, told: list[Any], path: str, query: Mapping[str, str]) -> tuple[list[Any], dict[str, str]]:
        size, page = min(int(query.get("per_page", 30)), self.forge.most_per_page), int(query.get("page", 1))
        following = urllib.parse.urlencode({**query, "page": page + 1})
        link = {"Link": f'<{self.forge.url}{path}?{following}>; rel="next"'} if page * size < len(told) else {}
        return told[(page - 1) * size : page * size], link

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def github(path: Path) -> Iterator[GitHubServer]:
    """Serve a bare repository's forge on loopback."""
    forge = GitHubServer(path)
    handler = type("Handler", (_Handler,), {"forge": forge})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        forge.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()
