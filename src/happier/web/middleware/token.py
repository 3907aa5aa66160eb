"""The token: in a header, in a cookie, or once in the address."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from happier.web.middleware.problem import HEALTH, headers_of, send_problem

COOKIE = "happier_token"


class TokenMiddleware:
    """Refuses requests without the token (401), except health checks.

    The address with ``?token=`` sets a cookie and redirects to itself without the token, so that the token
    does not stay in the address bar.

    Args:
        app: what to protect.
        token: the secret.
    """

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, trade its token for a cookie, or refuse it."""
        if scope["type"] != "http" or scope["path"] == HEALTH or self._has_token(headers_of(scope)):
            return await self._app(scope, receive, send)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and scope["path"] == "/" and given and self._matches(given[-1]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            answer = Response(status_code=303, headers={"location": "/?" + rest if rest else "/"})
            answer.headers["cache-control"] = "no-store"
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            return await answer(scope, receive, send)
        detail = "open the address with ?token=... that the server printed"
        return await send_problem(scope, receive, send, 401, detail, {"www-authenticate": "Bearer"})

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._matches(bearer.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._matches(cookie.value)

    def _matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
