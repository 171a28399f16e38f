"""Short questions to the embedded servers, which listen on this machine only."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass

from mlgitops.core.errors import Unavailable

HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server said."""

    status: int
    """HTTP status."""
    body: bytes
    """The whole body."""


def call(
    port: int,
    method: str,
    path: str,
    *,
    service: str,
    body: bytes | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 2.0,
) -> Answer:
    """Ask the server on a loopback port one question and return its answer, whatever the status.

    Args:
        port: Where it listens.
        method: HTTP method.
        path: Path, already quoted.
        service: What to call it in an error.
        body: JSON to send; None for none.
        token: Bearer token; None for none.
        headers: More headers.
        timeout_seconds: For the connection and for each read.

    Raises:
        Unavailable: Nobody answers there, or not in time.
    """
    sent = {"Content-Type": "application/json", **(headers or {})}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_seconds)
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return Answer(status=answer.status, body=answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(service, f"no answer on {HOST}:{port} ({error})", retry_after_seconds=1) from error
    finally:
        connection.close()
