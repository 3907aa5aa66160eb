"""The application: JSON API and page over an `Explorer`, inside its middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from happier.errors import EngineUnavailableError, HappierError, ImageError, InputError, OptionError
from happier.version import __version__
from happier.web.access import Access
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.live import GENERATION, watch
from happier.web.metrics import ServerMetrics
from happier.web.middleware import add_middleware
from happier.web.routes.changes import change_routes
from happier.web.routes.identify import identify_routes
from happier.web.routes.images import image_routes, item_routes
from happier.web.routes.map import map_routes
from happier.web.routes.mistakes import mistake_routes
from happier.web.routes.pages import page_routes
from happier.web.routes.search import search_routes, upload_routes
from happier.web.routes.server import server_routes
from happier.web.routes.suspects import suspect_routes
from happier.web.routes.taxonomy import taxonomy_routes
from happier.web.workers import Workers


def create_app(
    explorer: Explorer,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    metrics: ServerMetrics | None = None,
) -> ASGIApp:
    """The whole application."""
    limits, metrics, access = limits or Limits(), metrics or ServerMetrics(), access or Access()
    api = create_api(explorer, limits=limits, metrics=metrics)
    return add_middleware(
        api,
        access=access,
        limits=limits,
        metrics=metrics,
        root_path=explorer.root_path,
        version=lambda: explorer.versions,
    )


def create_api(
    explorer: Explorer, *, limits: Limits | None = None, metrics: ServerMetrics | None = None
) -> FastAPI:
    """The application without its middleware."""
    limits, metrics = limits or Limits(), metrics or ServerMetrics()
    workers = Workers(limits.workers, refresh=explorer.refresh)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workers.start_analysis(explorer)  # ready by the time the mistakes are requested
        watching = asyncio.create_task(watch(explorer, limits.refresh_seconds, metrics))
        yield
        watching.cancel()
        workers.close()

    api = FastAPI(
        title="happier explorer",
        version=__version__,
        description="Search a catalogue of images by image, within its taxonomy.",
        openapi_url="/api/openapi.json",
        servers=[{"url": explorer.root_path}] if explorer.root_path else None,
        # The default documentation pages load code from the network; ours is at /docs and needs no network.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={HappierError: _refused, RequestValidationError: _invalid},
    )
    routers = [
        server_routes(explorer, limits, metrics),
        taxonomy_routes(explorer, workers),
        item_routes(explorer, workers),
        search_routes(explorer, workers),
        identify_routes(explorer, workers),
        upload_routes(explorer, workers),
        mistake_routes(explorer, workers),
        map_routes(explorer, workers),
        suspect_routes(explorer, workers),
        image_routes(explorer, workers),
        change_routes(explorer, metrics),
        page_routes(explorer),
    ]
    for router in routers:
        api.include_router(router)
    paths = [route.path for router in routers for route in router.routes if isinstance(route, APIRoute)]
    metrics.describe(paths, _gauges(explorer, workers))
    return api


def _gauges(explorer: Explorer, workers: Workers) -> dict[str, Callable[[], float]]:
    """What each process shows in /metrics beside its counters."""

    def generation(key: str) -> float:
        return explorer.models[key].index.head.generation

    def images(key: str) -> float:
        return len(explorer.models[key].index)

    gauges: dict[str, Callable[[], float]] = {"happier_queued": lambda: workers.queued}
    for key in explorer.models:
        gauges[GENERATION.format(key)] = partial(generation, key)
        gauges[f"happier_index_images_{key}"] = partial(images, key)
    return gauges


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, EngineUnavailableError):
        headers = {"retry-after": "10", "cache-control": "no-store"}
        return JSONResponse({"detail": str(error)}, status_code=503, headers=headers)
    status = 400 if isinstance(error, ImageError) else 404
    if isinstance(error, InputError | OptionError):
        status = 422
    return JSONResponse({"detail": str(error)}, status_code=status)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, status_code=422)
