"""What both embedded HTTP servers do alike: JSON answers, and JSON for every error."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

MAXIMUM_BODY_BYTES: Final = 16 * 1024 * 1024


def json_answer(
    value: Mapping[str, Any], headers: Mapping[str, str] | None = None, *, status: int = 200
) -> web.Response:
    """Return a JSON answer."""
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=data, content_type="application/json", headers=headers, status=status)


@web.middleware
async def json_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn every error into the protocols' `{"error": …}`; nothing of the inside is shown."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        text = error.text or error.reason
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            text = f"the body is larger than {MAXIMUM_BODY_BYTES} bytes"
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return json_answer({"error": text}, allow, status=error.status)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - a server answers, whatever happens inside
        print(f"{request.method} {request.rel_url.raw_path}: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
        return json_answer({"error": "internal error"}, status=500)
