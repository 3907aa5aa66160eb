"""The server itself: its health, and what it serves."""

from __future__ import annotations

import time

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from happier.version import __version__
from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.metrics import ServerMetrics
from happier.web.routes.parameters import EVERYWHERE, MAX_K


def server_routes(explorer: Explorer, limits: Limits, metrics: ServerMetrics) -> APIRouter:
    """``/api/health``, ``/api/info`` and ``/metrics``."""
    routes = APIRouter(tags=["server"], responses=EVERYWHERE)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> PlainTextResponse:
        """Requests, durations, queues, states of the indexes and memory, for Prometheus."""
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    @routes.get("/api/health")
    async def health() -> schemas.Health:
        """Whether the server answers."""
        uptime = time.monotonic() - explorer.started
        return schemas.Health(status="ok", version=__version__, uptime_seconds=uptime)

    @routes.get("/api/info")
    async def info() -> schemas.Info:
        """What is being explored: levels, indexes, limits."""
        first = explorer.model("a").index
        return schemas.Info(
            title=first.items.name or explorer.model("a").name,
            levels=list(first.levels),
            sides=[responses.index_info(model) for model in explorer.models.values()],
            max_k=MAX_K,
            max_upload_bytes=limits.upload_bytes,
            credits=first.items.credits,
        )

    return routes
