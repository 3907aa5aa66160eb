"""Search by an image of the index, or by an upload."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Query, Response, UploadFile

from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.routes.parameters import EVERYWHERE, MISSING, UPLOAD, K, Label, Metrics, ModelKey, Within
from happier.web.workers import Workers

LONGEST_NAME = 200


def search_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/search``."""
    routes = APIRouter(prefix="/api", tags=["search"], responses=EVERYWHERE)

    @routes.get("/search", response_model=schemas.SearchOut, responses=MISSING)
    async def search(
        item: Annotated[
            str | None, Query(alias="id", max_length=4096, description="id of an image of the index")
        ] = None,
        upload: Annotated[str | None, Query(max_length=64, description="key of an upload")] = None,
        label: Label = None,
        k: K = 24,
        within: Within = "",
        side: ModelKey = "a",
        metrics: Metrics = True,
    ) -> Response:
        """Images nearest to one of the index, or to an upload."""

        def work() -> schemas.SearchOut:
            model = explorer.model(side)
            query = explorer.query(model, item=item, upload=upload, label=label)
            return responses.search_out(explorer, model, query, k, within, metrics=metrics)

        return await workers.answer(work)

    @routes.post("/search", response_model=schemas.SearchOut, responses=UPLOAD)
    async def search_by_file(
        file: Annotated[UploadFile, File(description="the query image")],
        k: K = 24,
        within: Within = "",
        label: Label = None,
        side: ModelKey = "a",
    ) -> Response:
        """Images nearest to the one in the body, in one request."""
        data, name = await _read(file)

        def work() -> schemas.SearchOut:
            model = explorer.model(side)
            key = explorer.uploads.add(data, name).key
            query = explorer.query(model, upload=key, label=label)
            return responses.search_out(explorer, model, query, k, within)

        return await workers.answer(work)

    return routes


def upload_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/uploads``."""
    routes = APIRouter(prefix="/api", tags=["search"], responses={**EVERYWHERE, **UPLOAD})

    @routes.post("/uploads", status_code=201, response_model=schemas.UploadOut)
    async def upload_image(
        file: Annotated[UploadFile, File(description="the query image")],
    ) -> Response:
        """Keep an image for a while, to search with it by its key."""
        data, name = await _read(file)

        def work() -> schemas.UploadOut:
            key = explorer.uploads.add(data, name).key
            return schemas.UploadOut(upload=key, thumbnail=f"{explorer.root_path}/uploads/{key}")

        return await workers.answer(work, status=201)

    return routes


async def _read(file: UploadFile) -> tuple[bytes, str]:
    return await file.read(), (file.filename or "image")[:LONGEST_NAME]
