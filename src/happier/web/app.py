"""The application: JSON API and page over an `Explorer`, inside its middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp

from happier.errors import HappierError, ImageError, InputError, OptionError
from happier.version import __version__
from happier.web.access import Access
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.middleware import add_middleware
from happier.web.routes.images import image_routes, item_routes
from happier.web.routes.mistakes import mistake_routes
from happier.web.routes.pages import page_routes
from happier.web.routes.search import search_routes, upload_routes
from happier.web.routes.server import server_routes
from happier.web.routes.suspects import suspect_routes
from happier.web.routes.taxonomy import taxonomy_routes
from happier.web.workers import Workers


def create_app(explorer: Explorer, *, access: Access | None = None, limits: Limits | None = None) -> ASGIApp:
    """The whole application."""
    limits = limits or Limits()
    return add_middleware(create_api(explorer, limits=limits), access=access or Access(), limits=limits)


def create_api(explorer: Explorer, *, limits: Limits | None = None) -> FastAPI:
    """The application without its middleware."""
    limits = limits or Limits()
    workers = Workers(limits.workers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workers.start_analysis(explorer)  # ready by the time the mistakes are requested
        yield
        workers.close()

    api = FastAPI(
        title="happier explorer",
        version=__version__,
        description="Search a catalogue of images by image, within its taxonomy.",
        openapi_url="/api/openapi.json",
        # The default documentation pages load code from the network; ours is at /docs and needs no network.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={HappierError: _refused, RequestValidationError: _invalid},
    )
    api.include_router(server_routes(explorer, limits))
    api.include_router(taxonomy_routes(explorer, workers))
    api.include_router(item_routes(explorer, workers))
    api.include_router(search_routes(explorer, workers))
    api.include_router(upload_routes(explorer, workers))
    api.include_router(mistake_routes(explorer, workers))
    api.include_router(suspect_routes(explorer, workers))
    api.include_router(image_routes(explorer, workers))
    api.include_router(page_routes(explorer))
    return api


async def _refused(_: Request, error: Exception) -> Response:
    status = 400 if isinstance(error, ImageError) else 404
    if isinstance(error, InputError | OptionError):
        status = 422
    return JSONResponse({"detail": str(error)}, status_code=status)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, status_code=422)
