"""Requests that fail or take too long end without affecting others."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from happier.web.middleware.problem import REQUEST_ID, send_problem

log = logging.getLogger("happier.web")


class FailureMiddleware:
    """Answers with 503 after the time limit, and with 500 where the application raises an exception."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; an answer that has begun is left as it is."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._seconds):
                return await self._app(scope, receive, watched)
        except TimeoutError:
            status, detail, headers = 503, "the request took too long and was stopped", {"retry-after": "10"}
        except Exception:
            # One failed request must not affect the others.
            request_id = scope.get(REQUEST_ID, "")
            log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            status, detail, headers = 500, "the server failed on this request; its log says why", {}
        if not begun:
            await send_problem(scope, receive, send, status, detail, headers)
        return None
