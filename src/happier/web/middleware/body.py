"""Request bodies: received before the application is called, in memory, within bounds."""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from happier.web.limits import Limits
from happier.web.middleware.problem import client_of, headers_of, send_problem

# The rest of a refused body is not read.
_CLOSE = {"connection": "close"}


class BodyMiddleware:
    """Receives a request's body and passes it on in one piece.

    A body that is too large is refused with 413, one that takes too long with 408, and one for which there is
    no memory at the moment with 429. One client gets at most half of the memory for bodies.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._held: Counter[str] = Counter()  # bytes of each client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive the body, then call the application."""
        if scope["type"] != "http" or not _has_body(headers_of(scope)):
            return await self._app(scope, receive, send)
        client = client_of(scope)
        body = bytearray()
        try:
            refused = await self._receive(scope, receive, body, client)
            if refused is not None:
                status, detail = refused
                extra = _CLOSE if status != 429 else {**_CLOSE, "retry-after": "1"}
                return await send_problem(scope, receive, send, status, detail, extra)
            return await self._app(scope, _replay(bytes(body), receive), send)
        finally:
            self._held[client] -= len(body)
            if self._held[client] <= 0:
                del self._held[client]

    async def _receive(
        self, scope: Scope, receive: Receive, body: bytearray, client: str
    ) -> tuple[int, str] | None:
        """Fill the body; returns the status and the reason where it is refused."""
        limits = self._limits
        too_large = 413, f"the body is larger than {limits.upload_bytes:,} bytes"
        length = headers_of(scope).get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > limits.upload_bytes:
            return too_large
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return 400, "the connection was closed before the body had arrived"
                    part = message.get("body", b"")
                    body += part
                    self._held[client] += len(part)
                    if len(body) > limits.upload_bytes:
                        return too_large
                    if self._held[client] > limits.body_bytes // 2 or self._held.total() > limits.body_bytes:
                        return 429, "the server is receiving too many uploads; try again in a moment"
                    if not message.get("more_body", False):
                        return None
        except TimeoutError:
            return 408, f"the body took longer than {limits.body_seconds:g} seconds to arrive"


def _has_body(headers: dict[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that gives the whole body, then what comes after it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed
