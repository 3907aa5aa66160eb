"""What every request passes through before the application, and every response after it.

Each concern is an ASGI middleware of its own. From the outside in:

1. `SecurityHeadersMiddleware`: headers that every response has.
2. `HostMiddleware`: refuses other host names (DNS rebinding) and requests from other sites.
3. `TokenMiddleware`: requires the token where there is one.
4. `BodyMiddleware`: receives the body, bounded in size, time and memory.
5. `ConcurrencyMiddleware`: limits the requests under way, in all and per client.
6. `FailureMiddleware`: ends requests that fail or take too long.

A request counts as under way only once its body has arrived, so slow clients do not block others.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from happier.web.access import Access
from happier.web.limits import Limits
from happier.web.middleware.body import BodyMiddleware
from happier.web.middleware.concurrency import ConcurrencyMiddleware
from happier.web.middleware.failure import FailureMiddleware
from happier.web.middleware.host import HostMiddleware
from happier.web.middleware.security_headers import SecurityHeadersMiddleware
from happier.web.middleware.token import TokenMiddleware

__all__ = [
    "Access",
    "BodyMiddleware",
    "ConcurrencyMiddleware",
    "FailureMiddleware",
    "HostMiddleware",
    "Limits",
    "SecurityHeadersMiddleware",
    "TokenMiddleware",
    "add_middleware",
]


def add_middleware(app: ASGIApp, *, access: Access, limits: Limits) -> ASGIApp:
    """The application inside all of its middleware."""
    app = FailureMiddleware(app, seconds=limits.request_seconds)
    app = ConcurrencyMiddleware(app, limits=limits)
    app = BodyMiddleware(app, limits=limits)
    if access.token is not None:
        app = TokenMiddleware(app, token=access.token)
    app = HostMiddleware(app, hosts=access.hosts)
    return SecurityHeadersMiddleware(app)
