"""Images added and removed; only for tokens that may write, and only where the server was started for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from fastapi import APIRouter, File, Form, HTTPException, Query, Request, Response, UploadFile

from happier.search.index import Index
from happier.web import schemas
from happier.web.explorer import Explorer
from happier.web.live import shown_everywhere
from happier.web.metrics import ServerMetrics
from happier.web.middleware.problem import TOKEN
from happier.web.routes.parameters import EVERYWHERE, FORBIDDEN, UPLOAD, Id, ModelKey
from happier.web.tokens import Token
from happier.web.writer import CatalogueWriter

MAX_IMAGES = 64


def change_routes(explorer: Explorer, metrics: ServerMetrics) -> APIRouter:
    """``POST`` and ``DELETE /api/images``."""
    routes = APIRouter(prefix="/api", tags=["images"], responses={**EVERYWHERE, **UPLOAD, **FORBIDDEN})
    # One at a time, and beside the requests' threads: a change may wait for another process.
    thread = ThreadPoolExecutor(1, thread_name_prefix="happier-change")

    @routes.post("/images", status_code=201, response_model=schemas.ChangeOut)
    async def add_images(
        request: Request,
        file: Annotated[list[UploadFile], File(description="the images", max_length=MAX_IMAGES)],
        class_path: Annotated[str, Form(max_length=2048, description="their class, e.g. animals/birds")] = "",
        item: Annotated[
            list[Id], Form(alias="id", description="an id for each; by default a checksum of its content")
        ] = [],  # noqa: B006 - FastAPI copies it
        side: ModelKey = "a",
    ) -> Response:
        """Add images of one class to the index; they are found when this is answered."""
        writer = _writer(request, explorer)
        files = [await one.read() for one in file]

        def work() -> tuple[Index, list[str]]:
            return writer.add(side, files, class_path, item)

        index, ids = await asyncio.get_running_loop().run_in_executor(thread, work)
        await shown_everywhere(explorer, side, index, metrics)
        return _answer(index, ids, status=201)

    @routes.delete("/images", response_model=schemas.ChangeOut)
    async def delete_images(
        request: Request,
        item: Annotated[list[str], Query(alias="id", min_length=1, max_length=1000)],
        side: ModelKey = "a",
    ) -> Response:
        """Remove images from the index; no search finds them when this is answered. Their files stay."""
        writer = _writer(request, explorer)
        index = await asyncio.get_running_loop().run_in_executor(thread, writer.delete, side, item)
        await shown_everywhere(explorer, side, index, metrics)
        return _answer(index, item, status=200)

    return routes


def _writer(request: Request, explorer: Explorer) -> CatalogueWriter:
    token: Token | None = request.scope.get(TOKEN)
    if explorer.writer is None:
        raise HTTPException(403, "this server does not change its index; start it with --add-to FOLDER")
    if token is None or token.role != "write":
        raise HTTPException(403, "this token may not change the index; use one with the role write")
    return explorer.writer


def _answer(index: Index, ids: list[str], *, status: int) -> Response:
    body = schemas.ChangeOut(ids=ids, version=index.version, images=len(index))
    return Response(body.model_dump_json(), status_code=status, media_type="application/json")
