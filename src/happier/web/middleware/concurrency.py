"""Limits on the requests under way at once, in all and per client."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from happier.web.limits import Limits
from happier.web.middleware.problem import HEALTH, METRICS, client_of, send_problem

LONGEST_RETRY = 60
# Weight of the last request in the mean duration.
_WEIGHT = 0.1


class ConcurrencyMiddleware:
    """Answers with 429 where too many requests are under way; health checks and metrics do not count.

    ``Retry-After`` says when those under way should be done: their number times the mean duration of the last
    requests, over the number of workers.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._under_way: Counter[str] = Counter()  # requests of each client
        self._seconds = 0.0  # mean time that a worker needs for a request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it for now."""
        if scope["type"] != "http" or scope["path"] in (HEALTH, METRICS):
            return await self._app(scope, receive, send)
        client = client_of(scope)
        total = self._under_way.total()
        if total >= self._limits.requests or self._under_way[client] >= self._limits.client_requests:
            detail = "the server is busy; try again in a moment"
            if total < self._limits.requests:
                who = "with this token" if client.startswith("token ") else "from this address"
                detail = f"too many requests at once {who}; try again in a moment"
            return await send_problem(
                scope, receive, send, 429, detail, {"retry-after": str(self._retry_after())}
            )
        self._under_way[client] += 1
        clock = asyncio.get_running_loop().time
        began, others = clock(), total
        try:
            return await self._app(scope, receive, send)
        finally:
            waiting = max(1.0, (others + 1) / self._limits.workers)
            self._seconds += _WEIGHT * ((clock() - began) / waiting - self._seconds)
            self._under_way[client] -= 1
            if self._under_way[client] <= 0:
                del self._under_way[client]

    def _retry_after(self) -> int:
        expected = self._under_way.total() * self._seconds / self._limits.workers
        return min(LONGEST_RETRY, max(1, math.ceil(expected)))
