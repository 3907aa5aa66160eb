"""Refusals as JSON, and what several middleware classes need to know about a request."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from happier.web.tokens import Token

# Monitors request it often and without a token; it costs nothing and is never refused.
HEALTH = "/api/health"
# Monitors request it too, with a token where there is one; it counts for no limit.
METRICS = "/metrics"
# Where a request's scope has its `Token` and its id.
TOKEN = "happier_token"  # noqa: S105
REQUEST_ID = "happier_request_id"
_HEADERS = "happier_headers"


async def send_problem(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer a request with a status and the reason."""
    answer = JSONResponse(
        {"detail": detail}, status_code=status, headers={"cache-control": "no-store", **(headers or {})}
    )
    await answer(scope, receive, send)


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by their lower-case name."""
    found: dict[str, str] | None = scope.get(_HEADERS)
    if found is None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope[_HEADERS] = found
    return found


def client_of(scope: Scope) -> str:
    """Who a request came from: the holder of a named token, else an address."""
    token: Token | None = scope.get(TOKEN)
    if token is not None and token.name:
        return f"token {token.name}"
    client = scope.get("client")
    return client[0] if client else ""
