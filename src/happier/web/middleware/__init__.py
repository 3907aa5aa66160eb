"""What every request passes through before the application, and every response after it.

Each concern is an ASGI middleware of its own. From the outside in:

1. `SecurityHeadersMiddleware`: headers that every response has.
   `RootPathMiddleware`: takes the path off that the server is reached under, where there is one.
2. `HostMiddleware`: refuses other host names (DNS rebinding) and requests from other sites.
3. `ObservationMiddleware`: gives each request an id, counts and times it, writes the access log.
4. `TokenMiddleware`: requires a token where there are some.
5. `BodyMiddleware`: receives the body, bounded in size, time and memory.
6. `ConcurrencyMiddleware`: limits the requests under way, in all and per client.
7. `AnswerCacheMiddleware`: repeats answers as long as the indexes do not change.
8. `FailureMiddleware`: ends requests that fail or take too long.

A request counts as under way only once its body has arrived, so slow clients do not block others.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp

from happier.web.access import Access
from happier.web.limits import Limits
from happier.web.metrics import ServerMetrics
from happier.web.middleware.answer_cache import AnswerCacheMiddleware
from happier.web.middleware.body import BodyMiddleware
from happier.web.middleware.concurrency import ConcurrencyMiddleware
from happier.web.middleware.failure import FailureMiddleware
from happier.web.middleware.host import HostMiddleware
from happier.web.middleware.observation import ObservationMiddleware
from happier.web.middleware.root_path import RootPathMiddleware
from happier.web.middleware.security_headers import SecurityHeadersMiddleware
from happier.web.middleware.token import TokenMiddleware

__all__ = [
    "Access",
    "AnswerCacheMiddleware",
    "BodyMiddleware",
    "ConcurrencyMiddleware",
    "FailureMiddleware",
    "HostMiddleware",
    "Limits",
    "ObservationMiddleware",
    "RootPathMiddleware",
    "SecurityHeadersMiddleware",
    "TokenMiddleware",
    "add_middleware",
]


def add_middleware(
    app: ASGIApp,
    *,
    access: Access,
    limits: Limits,
    metrics: ServerMetrics | None = None,
    root_path: str = "",
    version: Callable[[], object] | None = None,
) -> ASGIApp:
    """The application inside all of its middleware; ``version`` names the state that answers depend on."""
    app = FailureMiddleware(app, seconds=limits.request_seconds)
    if version is not None:
        app = AnswerCacheMiddleware(app, version=version)
    app = ConcurrencyMiddleware(app, limits=limits)
    app = BodyMiddleware(app, limits=limits)
    if access.required:
        app = TokenMiddleware(app, access=access, root_path=root_path)
    app = ObservationMiddleware(app, metrics=metrics or ServerMetrics())
    app = HostMiddleware(app, hosts=access.hosts)
    if root_path:
        app = RootPathMiddleware(app, root_path=root_path)
    return SecurityHeadersMiddleware(app)
