"""The token: in a header, in a cookie, or once in the address."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from happier.web.access import Access
from happier.web.middleware.problem import HEALTH, TOKEN, headers_of, send_problem
from happier.web.tokens import Token

COOKIE = "happier_token"
NEEDED = "a token is needed: open the address with ?token=TOKEN, or send a header Authorization: Bearer TOKEN"


class TokenMiddleware:
    """Refuses requests without a valid token (401), except health checks.

    The address with ``?token=`` sets a cookie and redirects to itself without the token, so that the token
    does not stay in the address bar.

    Args:
        app: what to protect.
        access: knows the tokens.
        root_path: path that the server's addresses begin with.
    """

    def __init__(self, app: ASGIApp, *, access: Access, root_path: str = "") -> None:
        self._app, self._access, self._root_path = app, access, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, trade its token for a cookie, or refuse it."""
        if scope["type"] != "http" or scope["path"] == HEALTH:
            return await self._app(scope, receive, send)
        token = self._token_of(scope)
        if token is not None:
            scope[TOKEN] = token
            return await self._app(scope, receive, send)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and scope["path"] == "/" and given and self._access.find(given[-1]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            home = f"{self._root_path}/"
            answer = Response(status_code=303, headers={"location": f"{home}?{rest}" if rest else home})
            answer.headers["cache-control"] = "no-store"
            secure = scope["scheme"] == "https"
            answer.set_cookie(COOKIE, given[-1], httponly=True, samesite="strict", path=home, secure=secure)
            return await answer(scope, receive, send)
        # A wrong one, one that has ended, and none want different things of the reader.
        detail = "this token is unknown or has expired" if given or _given(scope) else NEEDED
        return await send_problem(scope, receive, send, 401, detail, {"www-authenticate": "Bearer"})

    def _token_of(self, scope: Scope) -> Token | None:
        return next(filter(None, map(self._access.find, _given(scope))), None)


def _given(scope: Scope) -> list[str]:
    """What a request's headers give as its token."""
    headers = headers_of(scope)
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    found = [bearer.strip()] if kind.lower() == "bearer" else []
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return found
    return found if cookie is None else [*found, cookie.value]
