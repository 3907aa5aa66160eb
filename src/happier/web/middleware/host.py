"""Host and Origin: against DNS rebinding and requests from other sites."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from happier.web.middleware.problem import headers_of, send_problem

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HostMiddleware:
    """Refuses requests for other host names (421), and requests from other sites that change something (403).

    Args:
        app: what to protect.
        hosts: host names the server accepts, without port; empty allows any.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "http":
            headers = headers_of(scope)
            if self._hosts and _without_port(headers.get("host", "")).lower() not in self._hosts:
                detail = "this server does not answer to that host name; allow it with --allow-host NAME"
                return await send_problem(scope, receive, send, 421, detail)
            if scope["method"] not in _SAFE_METHODS and _is_from_another_site(headers):
                return await send_problem(scope, receive, send, 403, "requests from other sites are refused")
        return await self._app(scope, receive, send)


def _is_from_another_site(headers: Mapping[str, str]) -> bool:
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:  # not an address at all
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
