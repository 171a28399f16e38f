"""One image repository of a registry: blobs sent once, cut uploads resumed, and the digest as the registry tells it.

Own code over `requests`: oras-py 0.2 begins a cut upload anew, and of what it did it tells a response, no digest.

Source: OCI Distribution Specification 1.1, sections pull, push and content discovery.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import requests

from mlgitops.adapters.builder.layout import DOCUMENT_BYTES, INDEX_TYPE, MANIFEST_TYPE
from mlgitops.adapters.builder.login import SECONDS, Authorization, Find, address_of, limited, refused
from mlgitops.adapters.redacting import redacted
from mlgitops.core.errors import Denied, DigestMismatch, InvalidInput, MlgitopsError, NotFound, Unavailable
from mlgitops.core.names import Digest, registry_host

MANIFEST_TYPES: Final = (
    MANIFEST_TYPE,
    INDEX_TYPE,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
ATTEMPTS: Final = 5
"""How often one thing is tried before it is `Unavailable`; an upload that got on begins to count anew."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
WORDS: Final = 300
"""Characters of a registry's words that are kept."""
_RANGE: Final = re.compile(r"(?:bytes=)?0-(\d+)")
_FULL: Final = re.compile(r"no space left|disk quota exceeded|insufficient storage", re.IGNORECASE)
_LATER: Final = frozenset({408, 425, 429})
T = TypeVar("T")


class RegistryFull(Unavailable):
    """The registry has no room; asking at once again does not help."""


class Registry:
    """Writes to, and reads from, one image repository."""

    def __init__(self, repository: str, find: Find, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Use an image repository like `registry.example.com/team/digits`.

        Raises:
            InvalidInput: Its name holds no registry, or the credentials' configuration cannot be read.
        """
        host = registry_host(repository)
        if host is None:
            raise InvalidInput(
                f"image repository {repository!r:.160} names no registry, like registry.example.com/team"
            )
        self._host, self._name, self._repository = host, repository.removeprefix(f"{host}/"), repository
        self._base = f"{address_of(host)}/v2/{self._name}"
        self._session, self._sleep = requests.Session(), sleep
        scope = f"repository:{self._name}:pull,push"
        self._authorization = Authorization(self._session, host, scope, find(host))

    def has(self, digest: Digest) -> bool:
        """Say whether a blob is there already."""
        return self._persistently(lambda: self._ask("HEAD", f"{self._base}/blobs/{digest}", {200, 404}) == 200)

    def digest(self, reference: str) -> Digest | None:
        """Return the digest of the manifest under a tag or digest, computed from its bytes; None where there is none.

        Raises:
            DigestMismatch: The registry tells another digest than its bytes have.
        """
        return self._persistently(lambda: self._manifest(reference))

    def put_manifest(self, data: bytes, media_type: str, reference: str) -> None:
        """Write a manifest whose blobs are there, under a tag or its digest."""
        url, headers = f"{self._base}/manifests/{reference}", {"Content-Type": media_type}
        self._persistently(lambda: self._ask("PUT", url, {200, 201}, headers=headers, body=lambda: data))

    def upload(self, digest: Digest, file: Path, size_bytes: int) -> None:
        """Send a blob; one that is cut goes on where the registry says it stopped.

        Raises:
            Denied: The registry refuses the login, or the blob.
            NotFound: It knows no such image repository.
            Unavailable: It cannot be reached, or is full.
        """
        upload = _Upload(digest, file, size_bytes)
        failures, furthest = 0, 0
        while not upload.ended:
            try:
                self._advance(upload)
            except RegistryFull:
                raise
            except Unavailable as error:
                failures = 0 if upload.offset > furthest else failures + 1
                furthest = max(furthest, upload.offset)
                if failures >= ATTEMPTS:
                    raise
                self._pause(error, failures)

    def _advance(self, upload: "_Upload") -> None:
        """Find out how far an upload is, and end it; raises Unavailable where it was cut again."""
        if upload.cut:
            if self._ask("HEAD", f"{self._base}/blobs/{upload.digest}", {200, 404}) == 200:
                upload.ended = True  # the last answer alone was lost
                return
            self._look(upload)
        if upload.place is None:
            upload.place, upload.offset = self._located("POST", f"{self._base}/blobs/uploads/", {202}), 0
        upload.cut = True
        while upload.offset < upload.size_bytes:
            self._send(upload)
        place = upload.place
        url = f"{place}{'&' if urlsplit(place).query else '?'}digest={upload.digest}"
        self._ask("PUT", url, {201, 204}, headers={"Content-Length": "0"})
        upload.ended = True

    def _look(self, upload: "_Upload") -> None:
        """Ask how much of an upload arrived; it begins anew where the registry does not know it any more."""
        if upload.place is None:
            return
        place, upload.place = upload.place, None
        with suppress(Denied, NotFound), self._request("GET", place, {204}) as response:
            arrived = _RANGE.fullmatch(response.headers.get("Range", ""))
            upload.offset = int(arrived[1]) + 1 if arrived else 0
            upload.place = self._next(response) if "Location" in response.headers else place
        if upload.offset <= 1 or upload.offset > upload.size_bytes:  # "0-0" is one byte, and also what none is told as
            upload.place = None

    def _send(self, upload: "_Upload") -> None:
        """Send all that is left of an upload."""
        assert upload.place is not None
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Range": f"{upload.offset}-{upload.size_bytes - 1}",
        }
        with upload.file.open("rb") as stream:

            def rest() -> Any:
                stream.seek(upload.offset)
                return stream

            with self._request("PATCH", upload.place, {202, 204}, headers=headers, body=rest) as response:
                arrived = _RANGE.fullmatch(response.headers.get("Range", ""))
                offset = int(arrived[1]) + 1 if arrived else upload.size_bytes
                upload.place = self._next(response)
        if not upload.offset < offset <= upload.size_bytes:
            raise Unavailable(f"registry {self._host}", "it took no bytes of an upload")
        upload.offset = offset

    def _manifest(self, reference: str) -> Digest | None:
        url, headers = f"{self._base}/manifests/{reference}", {"Accept": ", ".join(MANIFEST_TYPES)}
        with self._request("GET", url, {200, 404}, headers=headers) as response:
            if response.status_code == 404:
                return None
            found = Digest.of(self._reading(lambda: limited(response, DOCUMENT_BYTES)))
            told = response.headers.get("Docker-Content-Digest", str(found))
        if told != str(found):
            raise DigestMismatch(f"manifest {reference} of {self._repository}", f"{told:.80}", str(found))
        return found

    # --- asking -------------------------------------------------------------------------------------------------------

    def _persistently(self, ask: Callable[[], T]) -> T:
        failures = 0
        while True:
            try:
                return ask()
            except RegistryFull:
                raise
            except Unavailable as error:
                failures += 1
                if failures >= ATTEMPTS:
                    raise
                self._pause(error, failures)

    def _pause(self, error: Unavailable, failures: int) -> None:
        pause = error.retry_after_seconds or FIRST_PAUSE_SECONDS * 2**failures / 2
        self._sleep(min(pause, LONGEST_PAUSE_SECONDS))

    def _ask(self, method: str, url: str, good: Collection[int], **more: Any) -> int:
        with self._request(method, url, good, **more) as response:
            return response.status_code

    def _located(self, method: str, url: str, good: Collection[int]) -> str:
        with self._request(method, url, good, headers={"Content-Length": "0"}) as response:
            return self._next(response)

    def _next(self, response: requests.Response) -> str:
        """Return where an upload goes on; no registry may lead it from TLS to an open connection."""
        place = urljoin(response.url, response.headers.get("Location", ""))
        if urlsplit(place).scheme not in {"https", urlsplit(self._base).scheme}:
            raise Denied("pushing to", self._repository, "the registry leads the upload to an open connection")
        return place

    def _request(
        self,
        method: str,
        url: str,
        good: Collection[int],
        *,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], Any] = lambda: None,
    ) -> requests.Response:
        """Ask, and once more with what the registry wants to see; a status that is not good is an error."""
        for last in (False, True):
            response = self._reading(
                lambda: self._session.request(
                    method,
                    url,
                    data=body(),
                    headers=dict(headers or {}),
                    auth=self._authorization,
                    timeout=SECONDS,
                    allow_redirects=method in {"GET", "HEAD"},
                    stream=True,
                )
            )
            if response.status_code in good:
                return response
            with response:
                challenge = response.headers.get("WWW-Authenticate", "")
                if response.status_code != 401 or last or not self._authorization.answer(challenge):
                    raise self._error(response)
        raise AssertionError("the second answer is returned or raised")

    def _reading(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Denied("connecting to", self._host, "its certificate is not trusted") from error
            raise Unavailable(f"registry {self._host}", "the encrypted connection broke") from error
        except (requests.RequestException, OSError) as error:
            raise Unavailable(f"registry {self._host}", type(error).__name__) from error

    def _error(self, response: requests.Response) -> MlgitopsError:
        """Return what a refusal means."""
        status, service = response.status_code, f"registry {self._host}"
        code, words = _told(self._reading(lambda: limited(response)))
        if status == 507 or _FULL.search(words):
            return RegistryFull(service, "no space left there")
        if status >= 500 or status in _LATER:
            after = response.headers.get("Retry-After", "")
            seconds = float(after) if after.isdecimal() else None
            return Unavailable(service, f"status {status} {words}".strip(), retry_after_seconds=seconds)
        if status == 401:
            return Denied("pushing to", self._repository, refused(self._host, known=self._authorization.known))
        if status == 404 and code != "BLOB_UPLOAD_UNKNOWN":
            return NotFound("image repository", self._repository)
        return Denied("pushing to", self._repository, f"status {status} {words}".strip())


class _Upload:
    """One blob on its way."""

    def __init__(self, digest: Digest, file: Path, size_bytes: int) -> None:
        self.digest, self.file, self.size_bytes = digest, file, size_bytes
        self.place: str | None = None
        """Where the registry takes the rest; None before it began."""
        self.offset = 0
        """Bytes that the registry has."""
        self.cut = False
        """Whether it may have been begun before."""
        self.ended = False


def _told(body: bytes) -> tuple[str, str]:
    """Return the first code of a registry's error, and all of them with their words, cut and without secrets."""
    try:
        errors = json.loads(body)["errors"]
        parts = [
            (str(one["code"]), f"{one['code']}: {one.get('message', '')} {one.get('detail') or ''}") for one in errors
        ]
        code = parts[0][0]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        code, parts = "", [("", body.decode(errors="replace"))]
    words = "; ".join(text.strip() for _, text in parts)
    return code, redacted("".join(one if one.isprintable() else " " for one in words))[:WORDS]
