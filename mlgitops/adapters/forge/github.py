"""The `Forge` port on GitHub and GitHub Enterprise Server, over REST.

About ten calls are made, so this is the HTTP client that the project has already, and no client library: decision 0013
says why.

Source: https://docs.github.com/en/rest, version 2022-11-28
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

from mlgitops.adapters.forge.calling import Calls
from mlgitops.core.errors import Denied, NotFound, Unavailable
from mlgitops.ports.forge import PullRequest, PullRequestState, Status

LONGEST_BODY: Final = 65_536
LONGEST_TITLE: Final = 256
LONGEST_DESCRIPTION: Final = 140
_CUT: Final = "\n\n… (cut: it is longer than a forge takes)\n"
_MARK: Final = re.compile(r"<!-- mlgitops:([a-z-]{1,40}) -->\n")
"""What the tool's own comments begin with. A quoted one begins with `>`."""
Redact = Callable[[str], str]


class GitHub:
    """Implements `ports.forge.Forge`."""

    def __init__(
        self, address: str, token: str | None, *, redact: Redact, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Speak to one repository.

        Args:
            address: The repository, as the API knows it: `https://api.github.com/repos/owner/name`.
            token: A fine-grained or classic token, or one of a GitHub App's installation; needs pull requests and
                commit statuses, both to write.
            redact: Takes secrets out of whatever is written.
            sleep: Waits a number of seconds between attempts.
        """
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "mlgitops",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._calls = Calls(address=address.rstrip("/"), headers=headers, sleep=sleep)
        self._owner = self._calls.address.split("/")[-2]
        self._redact = redact

    def opened(self, base: str, prefix: str) -> Sequence[PullRequest]:
        """Return open pull requests of own branches; see the port."""
        found = self._calls.pages("/pulls", state="open", base=base)
        every = (self._pull_request(one) for one in found if self._is_own(one))
        return [one for one in every if one.branch.startswith(prefix)]

    def of_branch(self, branch: str) -> Sequence[PullRequest]:
        """Return every pull request of a branch, newest first; see the port."""
        found = self._calls.pages("/pulls", state="all", head=f"{self._owner}:{branch}")
        every = [self._pull_request(one) for one in found if self._is_own(one)]
        return sorted((one for one in every if one.branch == branch), key=lambda one: -one.number)

    def open(self, *, branch: str, base: str, title: str, body: str) -> PullRequest:
        """Open a pull request; see the port."""
        told = {"head": branch, "base": base, **self._texts(title, body)}
        return self._pull_request(self._calls.ask("POST", "/pulls", told))

    def update(self, number: int, *, title: str, body: str) -> None:
        """Change title and body; see the port."""
        self._calls.ask("PATCH", f"/pulls/{number}", self._texts(title, body))

    def close(self, number: int) -> None:
        """Close a pull request; see the port."""
        self._calls.ask("PATCH", f"/pulls/{number}", {"state": "closed"})

    def closed_by(self, number: int) -> str:
        """Return who closed it; see the port."""
        found = self._calls.ask("GET", f"/issues/{number}")
        closer = found.get("closed_by") if isinstance(found, dict) else None
        return str(closer.get("login", "")) if isinstance(closer, dict) else ""

    def comments(self, number: int) -> Mapping[str, str]:
        """Return the tool's comments by topic; see the port."""
        return {topic: body for topic, (_, body) in self._comments(number).items()}

    def comment(self, number: int, topic: str, body: str) -> None:
        """Say something about a topic in its one comment; see the port."""
        known = self._comments(number).get(topic)
        told = self._body(body)
        if known is None:
            marked = {"body": f"<!-- mlgitops:{topic} -->\n{told}"}
            self._calls.ask("POST", f"/issues/{number}/comments", marked)
        elif known[1] != told:
            self._calls.ask("PATCH", f"/issues/comments/{known[0]}", {"body": f"<!-- mlgitops:{topic} -->\n{told}"})

    def set_status(self, revision: str, status: Status) -> None:
        """Set a status where it differs; see the port."""
        told = self._redact(status.description)
        description = told if len(told) <= LONGEST_DESCRIPTION else f"{told[: LONGEST_DESCRIPTION - 1]}…"
        found = self._calls.ask("GET", f"/commits/{quote(revision)}/status", per_page="100")
        known = {one["context"]: (one["state"], one["description"]) for one in found.get("statuses", [])}
        if known.get(status.context) != (str(status.state), description):
            body = {"state": str(status.state), "context": status.context, "description": description}
            self._calls.ask("POST", f"/statuses/{quote(revision)}", body)

    def _texts(self, title: str, body: str) -> dict[str, str]:
        line = " ".join(self._redact(title).split())
        return {"title": line[:LONGEST_TITLE], "body": self._body(body)}

    def _body(self, body: str) -> str:
        told = self._redact(body).rstrip()
        limit = LONGEST_BODY - 100  # room for the mark of a comment
        return told if len(told) <= limit else told[: limit - len(_CUT)] + _CUT.rstrip()

    def _comments(self, number: int) -> dict[str, tuple[int, str]]:
        """Return identity and text of the tool's comments by topic: what others wrote is never taken for one."""
        found: dict[str, tuple[int, str]] = {}
        for one in self._calls.pages(f"/issues/{number}/comments"):
            text = str(one.get("body") or "").replace("\r\n", "\n")
            mark = _MARK.match(text)
            if mark and self._is_mine(one.get("user") or {}):
                found.setdefault(mark[1], (int(one["id"]), text[mark.end() :].rstrip()))
        return found

    @cached_property
    def _login(self) -> str | None:
        """Who the token belongs to; None for an installation of a GitHub App, which GitHub does not tell."""
        root = self._calls.address.rsplit("/repos/", 1)[0]
        about = Calls(address=root, headers=self._calls.headers, sleep=self._calls.sleep)
        try:
            return str(about.ask("GET", "/user")["login"])
        except (Denied, NotFound):
            return None

    def _is_mine(self, user: Mapping[str, Any]) -> bool:
        return user.get("type") == "Bot" if self._login is None else user.get("login") == self._login

    def _is_own(self, found: Mapping[str, Any]) -> bool:
        """Say whether a pull request comes from a branch of this repository; a fork can name its branches as it likes.

        The repository of a fork that was deleted is told as none.
        """
        try:
            head, base = found["head"]["repo"], found["base"]["repo"]
            return head is not None and head["id"] == base["id"]
        except (KeyError, TypeError) as error:
            raise self._strange(error) from error

    def _pull_request(self, found: Any) -> PullRequest:
        try:
            merged = found.get("merged_at") is not None
            closed = PullRequestState.MERGED if merged else PullRequestState.CLOSED
            return PullRequest(
                number=int(found["number"]),
                state=PullRequestState.OPEN if found["state"] == "open" else closed,
                branch=str(found["head"]["ref"]),
                base=str(found["base"]["ref"]),
                head=str(found["head"]["sha"]),
                title=str(found["title"]),
                body=str(found["body"] or "").replace("\r\n", "\n"),
                url=str(found["html_url"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._strange(error) from error

    def _strange(self, error: Exception) -> Unavailable:
        return Unavailable(self._calls.service, f"a pull request lacks what it must have: {error!s:.100}")
