"""Each request has an id, is counted and timed, and is a line of the access log."""

from __future__ import annotations

import logging
import re
import secrets
import time
from datetime import UTC, datetime

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from happier.web.metrics import ServerMetrics
from happier.web.middleware.problem import REQUEST_ID, client_of, headers_of

access_log = logging.getLogger("happier.access")
# An id from elsewhere goes into headers and logs: nothing that could end a line or a field.
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ObservationMiddleware:
    """Answers with ``X-Request-ID``, the request's own where it has one; logs one JSON object for each.

    The log has the path but not the query: tokens and file names stay out of it.
    """

    def __init__(self, app: ASGIApp, *, metrics: ServerMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and note what became of it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = headers_of(scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope = {**scope, REQUEST_ID: request_id}
        began, status, sent = time.perf_counter(), 500, 0

        async def watched(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            else:
                sent += len(message.get("body", b""))
            await send(message)

        self._metrics.begin()
        try:
            return await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - began
            self._metrics.end(scope["path"], status, seconds)
            if access_log.isEnabledFor(logging.INFO):
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "request_id": request_id,
                    "client": client_of(scope),
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "bytes": sent,
                    "ms": round(1000 * seconds, 2),
                }
                access_log.info(orjson.dumps(line).decode())
