"""The names to which a server answers. Given.

A web page may make its own name point to this machine, so that its scripts can send requests to any server here (DNS
rebinding). The browser still sends the page's own name as `Host`, so the server can recognise such requests.
Source: RFC 9110, sections 7.2 (Host) and 15.5.20 (421 Misdirected Request).
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .api_error import ApiError

__all__ = ["LocalHosts", "is_local"]


class LocalHosts:
    """An application that refuses requests whose `Host` is neither a name of this machine nor one of `names`."""

    def __init__(self, app: ASGIApp, names: Collection[str]):
        self._app, self._names = app, {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "localhost")  # every browser sends this header
        app = self._app if is_local(host, self._names) else _refusal(host)
        await app(scope, receive, send)


def is_local(host: str, names: Collection[str] = ()) -> bool:
    """Tell whether a Host header names this machine, or is one of `names` (in lower case). The port does not matter."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return name in {"localhost", *names} or ipaddress.ip_address(name).is_loopback
    except ValueError:  # neither a known name nor an address
        return False


def _refusal(host: str) -> JSONResponse:
    error = ApiError(
        421,
        f"Host: expected localhost or another name of this machine, got {host!r}. To let clients use other names, "
        "start the server with --api-key",
        code="unknown_host",
    )
    return JSONResponse(error.body, error.status)
