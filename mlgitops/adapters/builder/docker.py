"""Builds training images with a Docker Engine, from the model repository's Dockerfile, and pushes them.

The engine gets the declared inputs and nothing else: the context is made here, from the files that a release is named
by. What is named afterwards is the digest that the registry tells, never the engine's own id and never a tag.
"""

import json
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import docker
import requests
from docker.errors import APIError, DockerException
from urllib3.exceptions import HTTPError

from mlgitops.adapters.builder.context import CONTEXT_BYTES, CONTEXT_FILES, check_words, collect, entry
from mlgitops.adapters.builder.layout import check_tag, parse_repository
from mlgitops.adapters.builder.login import Credentials, Find, refused
from mlgitops.adapters.builder.logs import Write, kept_log
from mlgitops.adapters.builder.pushing import compare_tag, confirm
from mlgitops.adapters.builder.registry import ATTEMPTS, FIRST_PAUSE_SECONDS, Registry
from mlgitops.adapters.builder.requirements import parse_lock
from mlgitops.adapters.files import open_regular
from mlgitops.adapters.redacting import redacted
from mlgitops.core.configuration import DockerBuild
from mlgitops.core.errors import Denied, InvalidInput, MlgitopsError, NotFound, Problem, Unavailable
from mlgitops.core.names import Digest, ImageReference, registry_host
from mlgitops.ports.builder import BuildRequest

COMMAND_LABEL: Final = "dev.mlgitops.command"
"""Label with the command that trains, which the training job states, too."""
SERVICE: Final = "Docker Engine"
SILENCE_SECONDS: Final = 1800.0
"""Longest time in which a build says nothing."""
WORDS: Final = 2_000
"""Characters of a failed build that are told; the whole log is kept."""
_STEP: Final = re.compile(r"Step \d+/\d+ : .*")
_FULL: Final = re.compile(r"no space left|disk quota exceeded", re.IGNORECASE)
_LOGIN: Final = re.compile(
    r"unauthorized|no basic auth credentials|authentication required|access denied", re.IGNORECASE
)
_REFUSED: Final = re.compile(r"denied|forbidden|quota|manifest invalid|too large", re.IGNORECASE)
Tell = Callable[[str], None]


class DockerBuilder:
    """Implements `ports.builder.Builder` on a Docker Engine: `DOCKER_HOST`, else the machine's own."""

    def __init__(self, logs: Path, tell: Tell, find: Find, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Build and push with an engine.

        Args:
            logs: Folder for build logs.
            tell: Told what goes on, in words.
            find: Finds the credentials of a registry.
            sleep: Waits between attempts, in seconds.
        """
        self._logs, self._tell, self._find, self._sleep = logs, tell, find, sleep

    def build(self, request: BuildRequest) -> ImageReference:
        """Build and push an image.

        A build that the engine's cache does not answer gives another digest each time, as layers hold times; where the
        tag named another image before, that is told.

        Raises:
            InvalidInput: Files or a lock that cannot be built from, as `context.collect`; a Dockerfile that does not
                build, with the end of what the build said.
            Denied: The registry refuses the login, or the image.
            NotFound: It knows no such image repository.
            Conflict: Somebody else moved the tag in the same moment.
            DigestMismatch: The registry has not what the engine says it pushed.
            Unavailable: Engine or registry cannot be reached, or are full.
        """
        check_words(request)
        check_tag(request.tag)
        parse_repository(request.repository)
        registry = Registry(request.repository, self._find, sleep=self._sleep)
        with _context(request) as context, closing(_engine()) as client:
            with kept_log(self._logs, request.repository, request.tag) as log:
                self._built(client, request, context, log)
            before = registry.digest(request.tag)
            image = ImageReference(request.repository, self._pushed(client, request))
        confirm(registry, image)
        compare_tag(registry, image, request.tag, before, self._tell)
        return image

    def _built(self, client: Any, request: BuildRequest, context: IO[bytes], log: Write) -> None:
        """Have the engine build and tag an image."""
        recipe = request.docker or DockerBuild()
        said = partial(
            client.build,
            fileobj=context,
            custom_context=True,
            dockerfile=recipe.dockerfile,
            buildargs=dict(recipe.arguments),
            target=recipe.target or "",
            platform=recipe.platform,
            labels={**request.annotations, COMMAND_LABEL: json.dumps(list(request.entrypoint))},
            tag=f"{request.repository}:{request.tag}",
            rm=True,
            forcerm=True,
            decode=True,
        )
        end = ""
        for part in _answers(said):
            text = str(part.get("stream") or "")
            log(text)
            end = (end + text)[-WORDS:]
            if _STEP.match(text):
                self._tell(f"{request.repository}: {redacted(text.strip())}")
            if "error" in part:
                log(f"{part['error']}\n")
                raise _build_error(str(part["error"]), end, recipe.dockerfile)

    def _pushed(self, client: Any, request: BuildRequest) -> Digest:
        """Have the engine push, again where that was cut: it sends what is missing; returns the digest it tells."""
        failures = 0
        while True:
            try:
                return self._push(client, request)
            except Unavailable:
                failures += 1
                if failures >= ATTEMPTS:
                    raise
                self._sleep(FIRST_PAUSE_SECONDS * 2**failures / 2)

    def _push(self, client: Any, request: BuildRequest) -> Digest:
        host = registry_host(request.repository) or ""
        credentials, digest = self._find(host), ""
        self._tell(f"{request.repository}: pushing {request.tag}")
        shown = _shown(credentials)
        said = partial(client.push, request.repository, request.tag, stream=True, decode=True, auth_config=shown)
        for part in _answers(said):
            if "error" in part:
                raise _push_error(str(part["error"]), request.repository, host, known=credentials is not None)
            if part.get("status") in {"Pushed", "Layer already exists"}:
                self._tell(f"{request.repository}: layer {part.get('id', '')}: {str(part['status']).lower()}")
            aux = part.get("aux")
            digest = str(aux.get("Digest", "")) if isinstance(aux, dict) else digest
        if not digest:
            raise Unavailable(SERVICE, "it did not say what it pushed")
        return Digest(digest)


def _engine() -> Any:
    """Return a client of the engine; `Unavailable` with what to do where there is none."""
    try:
        client = docker.DockerClient.from_env(timeout=SILENCE_SECONDS).api
        client.ping()
    except (DockerException, requests.RequestException, OSError) as error:
        reason = "none answers; start it, say where it is with DOCKER_HOST, or build with `image.builder: embedded`"
        raise Unavailable(SERVICE, reason) from error
    return client


@contextmanager
def _context(request: BuildRequest) -> Iterator[IO[bytes]]:
    """Lend a build's context: the declared files, with nothing in it that differs between machines."""
    recipe = request.docker or DockerBuild()
    names = (*request.files, request.requirements, recipe.dockerfile)
    once = tuple(dict.fromkeys(names))
    sources = collect(request.source, once, size_limit=CONTEXT_BYTES, count_limit=CONTEXT_FILES)
    problems: list[Problem] = []
    with open_regular(sources[request.requirements].path) as stream:
        parse_lock(stream.read(CONTEXT_BYTES), request.requirements, problems)
    if problems:
        raise InvalidInput(problems)
    try:
        with tempfile.TemporaryFile() as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name, one in sorted(sources.items()):
                    with open_regular(one.path) as stream:
                        mode = 0o755 if one.executable else 0o644
                        archive.addfile(entry(name, tarfile.REGTYPE, mode, one.size_bytes), stream)
            file.seek(0)
            yield file
    except OSError as error:
        raise Unavailable("the folder for temporary files", error.strerror or type(error).__name__) from error


def _answers(ask: Callable[[], Iterable[Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield what the engine says, part by part, a refusal among it; its library's other errors become ours."""
    try:
        for part in ask():
            if isinstance(part, dict):
                yield part
    except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
        told = str(error.explanation) if isinstance(error, APIError) else ""
        if _FULL.search(told) or (isinstance(error, APIError) and error.is_client_error()):
            yield {"error": told}
            return
        raise Unavailable(SERVICE, f"it broke off: {redacted(str(error))[:200]}") from error


def _build_error(error: str, end: str, dockerfile: str) -> MlgitopsError:
    if _FULL.search(error):
        return Unavailable(SERVICE, "no space left there")
    told = redacted("\n".join([*end.strip().splitlines()[-12:], error.strip()]))
    mend = "mend it, or an argument of it under `image.arguments`; nothing was submitted"
    return InvalidInput([Problem(message=f"does not build:\n{told[-WORDS:]}", path=dockerfile, mend=mend)])


def _push_error(error: str, repository: str, host: str, *, known: bool) -> MlgitopsError:
    if _FULL.search(error):
        return Unavailable(f"registry {host}", "no space left there")
    if _LOGIN.search(error):
        return Denied("pushing to", repository, refused(host, known=known))
    if re.search(r"name unknown|repository .*not found", error, re.IGNORECASE):
        return NotFound("image repository", repository)
    if _REFUSED.search(error):
        return Denied("pushing to", repository, redacted(error)[:300])
    return Unavailable(f"registry {host}", redacted(error)[:300])


def _shown(credentials: Credentials | None) -> dict[str, str]:
    """Return credentials as the engine takes them; empty ones keep the library from looking elsewhere."""
    if credentials is None:
        return {}
    if credentials.identity_token:
        return {"identitytoken": credentials.identity_token}
    return {"username": credentials.username, "password": credentials.password}
