"""Calls of a forge's REST API: bounded in time and size, repeated where that is safe, without a secret in any error."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import requests

from mlgitops.core.errors import Conflict, Denied, NotFound, Unavailable

PATIENCE_SECONDS: Final = 45.0
"""How long one call may take with all its repetitions: a pass must not wait for a forge for ever."""
ANSWER_SECONDS: Final = 15.0
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024
MOST_PAGES: Final = 50
_WORDS: Final = 300
_SAFE: Final = frozenset({"GET", "PATCH"})
"""Doing these twice is doing them once. A POST whose answer was lost may have been heard: the next look finds out."""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """One repository's calls."""

    address: str
    """The repository, as the API knows it: `https://api.github.com/repos/owner/name`."""
    headers: Mapping[str, str] = field(repr=False)
    """What every call carries; may hold the token."""
    sleep: Callable[[float], None]
    session: requests.Session = field(default_factory=requests.Session, repr=False)

    @property
    def service(self) -> str:
        """The forge's name for people: its host."""
        return urlsplit(self.address).hostname or "the forge"

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str) -> Any:
        """Return the parsed answer of one call; see `pages` for lists.

        Raises:
            Denied: The forge refused, in its words.
            NotFound: There is no such thing, or the token may not see it.
            Conflict: It was changed meanwhile, or exists already.
            Unavailable: No answer that can be read came in time.
        """
        return self._ask(method, f"{self.address}{path}", body, query)[0]

    def pages(self, path: str, **query: str) -> Iterator[Mapping[str, Any]]:
        """Yield the elements of a list, however many pages it has."""
        address, asked = f"{self.address}{path}", {"per_page": "100", **query}
        for _ in range(MOST_PAGES):
            found, following = self._ask("GET", address, None, asked)
            if not isinstance(found, list):
                raise Unavailable(self.service, f"{_path(address)} answered with something that is no list")
            yield from found
            if following is None:
                return
            if urlsplit(following)[:2] != urlsplit(self.address)[:2]:
                raise Unavailable(self.service, f"{_path(address)} sends the next page to another server")
            address, asked = following, {}
        raise Unavailable(self.service, f"{_path(address)} has more than {MOST_PAGES} pages")

    def _ask(
        self, method: str, address: str, body: Mapping[str, Any] | None, query: Mapping[str, str]
    ) -> tuple[Any, str | None]:
        until, attempt = monotonic() + PATIENCE_SECONDS, 0
        while True:
            attempt += 1
            status, headers, data, words = self._once(method, address, body, query)
            wait = _wait(method, status, headers, attempt)
            if wait is None:
                return self._read(method, address, status, headers, data)
            if attempt == 5 or monotonic() + wait > until:
                told = words or f"it answered {status}"
                raise Unavailable(self.service, f"{method} {_path(address)}: {told}", retry_after_seconds=wait)
            self.sleep(wait)

    def _once(
        self, method: str, address: str, body: Mapping[str, Any] | None, query: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes, str]:
        """Return status, headers and body of one attempt; status 0 and words where there was no answer."""
        try:
            with self.session.request(
                method,
                address,
                json=body,
                params=query,
                headers=self.headers,
                auth=_as_told,
                timeout=ANSWER_SECONDS,
                allow_redirects=False,  # the token goes where it was meant for
                stream=True,
            ) as answer:
                data, until = bytearray(), monotonic() + ANSWER_SECONDS
                for part in answer.iter_content(65_536):
                    data += part
                    if len(data) > LARGEST_ANSWER_BYTES or monotonic() > until:
                        raise Unavailable(self.service, f"the answer of {_path(address)} is too long or too slow")
                return answer.status_code, answer.headers, bytes(data), ""
        except (requests.RequestException, OSError) as error:
            # Not the error's own words: they hold the address, and could hold what it was asked with.
            return 0, {}, b"", type(error).__name__

    def _read(
        self, method: str, address: str, status: int, headers: Mapping[str, str], data: bytes
    ) -> tuple[Any, str | None]:
        if 300 <= status < 400:
            raise Denied("access to", _path(address), "the repository was moved: give its new address")
        if status >= 400:
            raise self._refusal(method, address, status, data)
        try:
            return json.loads(data or b"null"), _following(headers.get("Link", ""))
        except ValueError as error:
            raise Unavailable(self.service, f"{_path(address)} did not answer with JSON") from error

    def _refusal(self, method: str, address: str, status: int, data: bytes) -> Exception:
        what, words = f"{method} {_path(address)}", _said(data)
        if status == 401:
            return Denied("access to", self.service, f"it does not take the token ({words})")
        if status == 404:
            return NotFound(f"answer of {self.service} to", f"{what}: it is not there, or the token may not see it")
        if status == 409 or (status == 422 and "already exists" in words):
            return Conflict(what, None, None, words)
        return Denied("calling", f"{self.service}, {what},", words or str(status))


def _as_told(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave a call as it is: otherwise a line of the user's `.netrc` would replace the token."""
    return request


def _wait(method: str, status: int, headers: Mapping[str, str], attempt: int) -> float | None:
    """Return how long to wait before asking again, in seconds; None where there is an answer.

    Source: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    limited = status == 429 or (
        status == 403 and (headers.get("Retry-After") or headers.get("X-RateLimit-Remaining") == "0")
    )
    backoff: float = min(2.0**attempt, 20.0) * random.uniform(0.25, 0.5)  # noqa: S311 - jitter, not a secret
    if limited:  # nothing was done
        told = headers.get("Retry-After", "")
        return float(told) if told.isdigit() else 60.0 if status == 403 else backoff
    if status == 0 or status >= 500:
        if method not in _SAFE:
            return PATIENCE_SECONDS * 2
        return backoff
    return None


def _following(link: str) -> str | None:
    """Return the address of the next page."""
    found = requests.utils.parse_header_links(link) if link else []
    return next((one["url"] for one in found if one.get("rel") == "next"), None)


def _path(address: str) -> str:
    return urlsplit(address).path


def _said(data: bytes) -> str:
    """Return what a forge says of a refusal: its message, and those about single fields."""
    try:
        told = json.loads(data)
        errors = told.get("errors") or []
        details = [str(one.get("message") or one) if isinstance(one, dict) else str(one) for one in errors]
        words = "; ".join([str(told.get("message", "")), *details])
    except (ValueError, AttributeError, TypeError):
        words = data.decode(errors="replace")
    return "".join(one if one.isprintable() else " " for one in words)[:_WORDS]
