"""How a registry is logged in to: which credentials are its own, and what it wants to see of them.

Credentials are bound to a registry's host and are shown to nobody else: a model repository chooses where its images
go, and must not thereby choose who learns a password.

Source: OCI Distribution Specification 1.1; CNCF Distribution, docs/spec/auth/token.md and oauth.md.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from mlgitops.core.errors import Denied, InvalidInput, Unavailable

HUB: Final = "docker.io"
HUB_ADDRESS: Final = "registry-1.docker.io"
"""Where Docker Hub answers, which is not what its images are called."""
SECONDS: Final = (20.0, 60.0)
"""Longest silence while connecting, and while waiting for an answer."""
ANSWER_BYTES: Final = 1 << 20
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3})(:\d+)?")
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What opens one registry."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """Given by some registries in place of name and password."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Credentials for one registry that the operator named."""

    host: str
    credentials: Credentials


Find = Callable[[str], Credentials | None]
"""Returns the credentials of a registry's host; None where there are none."""


def address_of(host: str) -> str:
    """Return where a registry answers: over TLS, but on this machine."""
    if _LOOPBACK.fullmatch(host):
        return f"http://{host}"
    return f"https://{HUB_ADDRESS if host == HUB else host}"


def find_credentials(login: Login | None) -> Find:
    """Return what finds credentials: `login` for its own host, Docker's configuration and its helpers for any other."""

    def find(host: str) -> Credentials | None:
        if login is not None and login.host == host:
            return login.credentials
        return _of_docker(host)

    return find


def _of_docker(host: str) -> Credentials | None:
    """Ask `config.json` (in `DOCKER_CONFIG`, else `~/.docker`) and the credential helper that it names."""
    from docker import auth, errors

    try:
        found = auth.resolve_authconfig(auth.load_config(), host)
    except errors.DockerException as error:  # its text may hold what a helper said
        raise InvalidInput(f"Docker's credentials for {host} cannot be read ({type(error).__name__})") from error
    if not found:
        return None
    given = {name.lower(): value or "" for name, value in found.items()}
    return Credentials(
        username=given.get("username", ""),
        password=given.get("password", ""),
        identity_token=given.get("identitytoken", ""),
    )


class Authorization(AuthBase):
    """Shows a registry what it asked for, and shows it to no other address."""

    def __init__(self, session: requests.Session, host: str, scope: str, credentials: Credentials | None) -> None:
        """Answer for the registry `host`; `scope` is all that is ever asked for."""
        self._session, self._host, self._scope, self._credentials = session, host, scope, credentials
        self._origin = urlsplit(address_of(host))[:2]
        self._header = ""

    @property
    def known(self) -> bool:
        """Whether there are credentials at all."""
        return self._credentials is not None

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header to a request to the registry; also keeps requests from looking into `.netrc`."""
        if self._header and urlsplit(request.url or "")[:2] == self._origin:
            request.headers["Authorization"] = self._header
        return request

    def answer(self, challenge: str) -> bool:
        """Take in what a refusal asks for (`WWW-Authenticate`); returns whether it is worth asking again."""
        scheme, _, rest = challenge.partition(" ")
        parameters = dict(_PARAMETER.findall(rest))
        if scheme.lower() == "bearer" and "realm" in parameters:
            self._header = f"Bearer {self._token(parameters)}"
            return True
        given = self._credentials
        if scheme.lower() == "basic" and given is not None and not given.identity_token and not self._header:
            request = requests.Request("GET", address_of(self._host), auth=_pair(given)).prepare()
            self._header = request.headers["Authorization"]
            return True
        return False

    def _token(self, parameters: Mapping[str, str]) -> str:
        realm, given = parameters["realm"], self._credentials
        if urlsplit(realm).scheme != "https" and urlsplit(realm)[:2] != self._origin:
            raise Denied("logging in to", self._host, "it asks to send credentials over an open connection")
        asked = {"service": parameters.get("service", ""), "scope": self._scope}
        try:
            if given is not None and given.identity_token:
                form = {"grant_type": "refresh_token", "refresh_token": given.identity_token, "client_id": "mlgitops"}
                method, query, body = "POST", None, {**asked, **form}
            else:
                method, query, body = "GET", asked, None
            with self._session.request(
                method,
                realm,
                params=query,
                data=body,
                auth=_pair(given),
                timeout=SECONDS,
                allow_redirects=False,
                stream=True,
            ) as response:
                return self._token_of(response)
        except requests.RequestException as error:
            raise Unavailable(f"registry {self._host}", f"no token could be had: {type(error).__name__}") from error

    def _token_of(self, response: requests.Response) -> str:
        if response.status_code in {400, 401, 403, 404}:
            raise Denied("logging in to", self._host, refused(self._host, known=self.known))
        if response.status_code != 200:
            raise Unavailable(f"registry {self._host}", f"no token could be had: status {response.status_code}")
        try:
            told: Any = json.loads(limited(response))
            token = told.get("token") or told["access_token"]
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise Unavailable(f"registry {self._host}", "what should be a token is none") from error
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Unavailable(f"registry {self._host}", "what should be a token is none")
        return token


def refused(host: str, *, known: bool) -> str:
    """Say why a login failed, and what to do."""
    if known:
        return f"the credentials were refused; log in again with `docker login {host}`"
    return (
        f"no credentials for {host} are known; log in with `docker login {host}`, "
        "or set MLGITOPS_REGISTRY, MLGITOPS_REGISTRY_USER and MLGITOPS_REGISTRY_PASSWORD"
    )


def limited(response: requests.Response, limit: int = ANSWER_BYTES) -> bytes:
    """Read an answer that is not too long; `Unavailable` for one that is."""
    parts, size = [], 0
    for part in response.iter_content(65_536):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise Unavailable(f"registry {urlsplit(response.url).netloc}", f"an answer is longer than {limit} bytes")
    return b"".join(parts)


def _pair(given: Credentials | None) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Return what shows name and password, or nothing; never what `.netrc` holds."""
    if given is None or given.identity_token or not (given.username or given.password):
        return lambda request: request
    return requests.auth.HTTPBasicAuth(given.username.encode(), given.password.encode())
