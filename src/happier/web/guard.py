"""What every request passes before the application sees it, and every answer on its way out.

Host and Origin are checked against DNS rebinding and requests from other sites, a token is asked for where
the server listens beyond this machine, bodies are bounded in size and time, and at most so many requests
are under way at once: further ones are told to come back (429) instead of bringing the server down.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("happier.web")

COOKIE = "happier_token"
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# The page needs nothing from elsewhere and no inline code; blob: is the preview of a chosen image.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


@dataclass(frozen=True)
class Limits:
    """Bounds of the server.

    Attributes:
        upload_bytes: of a request's body.
        body_seconds: in which a body must have arrived.
        request_seconds: in which an answer must be ready.
        requests: under way at once; more are answered with 429.
        workers: threads that search, embed and scale images.
    """

    upload_bytes: int = 20 << 20
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    requests: int = 256
    workers: int = 4


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        hosts: names the server is called by, without port; empty allows any (behind a token only).
        token: secret that must come with a request; None on this machine alone.
    """

    hosts: frozenset[str] = LOCAL_NAMES
    token: str | None = None


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, access: Access, limits: Limits) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        reply = _Reply(send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refused := self._refuse(scope, headers):
            await reply.problem(*refused)
        elif self._access.token is not None and not self._is_known(scope, headers):
            await self._ask_for_token(scope, reply)
        elif self._under_way >= self._limits.requests:
            await reply.problem(429, "the server is busy; try again in a moment", retry=True)
        else:
            self._under_way += 1
            try:
                await self._serve(scope, receive, reply)
            finally:
                self._under_way -= 1

    async def _serve(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        body = _Body(receive, self._limits)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                await self._app(scope, body, reply)
        except TimeoutError:
            await reply.problem(503, "this took too long and was given up", retry=True)
        except Exception:
            # One broken request must not take the others with it.
            log.exception("a request failed: %s %s", scope["method"], scope["path"])
            await reply.problem(500, "the server failed on this request; its log says why")

    def _refuse(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._access.hosts and _without_port(host).lower() not in self._access.hosts:
            return 421, "this server does not go by that name; allow it with --allow-host NAME"
        if scope["method"] not in _SAFE_METHODS:
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                return 403, "requests from other sites are refused"
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return 403, "requests from other sites are refused"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._limits.upload_bytes:
            return 413, f"the body is larger than {self._limits.upload_bytes:,} bytes"
        return None

    def _is_known(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        if scope["path"] == "/api/health":
            return True
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._matches(bearer.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._matches(cookie.value)

    def _matches(self, given: str) -> bool:
        assert self._access.token is not None
        return hmac.compare_digest(given.encode(), self._access.token.encode())

    async def _ask_for_token(self, scope: Scope, reply: _Reply) -> None:
        """The address with ``?token=`` trades the token for a cookie, so that it leaves the address bar."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and scope["path"] == "/" and given and self._matches(given[-1]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            cookie = f"{COOKIE}={self._access.token}; Path=/; HttpOnly; SameSite=Strict"
            await reply.redirect("/?" + rest if rest else "/", cookie)
        else:
            await reply.problem(401, "open the address with ?token=... that the server printed", realm=True)


class _Body:
    """A request's body, counted and timed as it comes in."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._seen = 0
        self._deadline: float | None = asyncio.get_running_loop().time() + limits.body_seconds

    async def __call__(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body took longer than {self._limits.body_seconds:g} seconds to arrive"
            raise HTTPException(408, detail, headers={"connection": "close"}) from None
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._limits.upload_bytes:
                detail = f"the body is larger than {self._limits.upload_bytes:,} bytes"
                raise HTTPException(413, detail, headers={"connection": "close"})
            if not message.get("more_body", False):
                self._deadline = None
        return message


class _Reply:
    """The way out: adds the headers that every answer carries, and knows whether one has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            present = {name.lower() for name, _ in message.get("headers", ())}
            extra = [pair for pair in HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await self._send(message)

    async def problem(self, status: int, detail: str, *, retry: bool = False, realm: bool = False) -> None:
        """An error as JSON, unless an answer is already on its way."""
        if self._begun:
            return
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if retry:
            headers.append((b"retry-after", b"1"))
        if realm:
            headers.append((b"www-authenticate", b"Bearer"))
        if status == 413:
            headers.append((b"connection", b"close"))  # the body is not waited for
        body = json.dumps({"detail": detail}).encode()
        await self._answer(status, headers, body)

    async def redirect(self, to: str, cookie: str) -> None:
        """Send the browser on, with a cookie."""
        headers = [
            (b"location", to.encode()),
            (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"),
        ]
        await self._answer(303, headers, b"")

    async def _answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
