"""Search by an image of the index, or by an upload."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Query, Response, UploadFile

from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.routes.parameters import (
    EVERYWHERE,
    MAX_HITS,
    MAX_K,
    MISSING,
    UPLOAD,
    Ids,
    K,
    Label,
    Metrics,
    ModelKey,
    Uploads,
    Within,
)
from happier.web.workers import Workers

LONGEST_NAME = 200


def query_images(
    item: Annotated[Ids, Query(alias="id", description="images of the index that results are like")] = [],  # noqa: B006 - FastAPI copies it
    upload: Annotated[Uploads, Query(description="uploads that results are like")] = [],  # noqa: B006
    more: Annotated[Ids, Query(description="further images that they are like, after the uploads")] = [],  # noqa: B006
    less: Annotated[Ids, Query(description="images of the index that they are not like")] = [],  # noqa: B006
    less_upload: Annotated[Uploads, Query(description="uploads that they are not like")] = [],  # noqa: B006
    label: Label = None,
) -> dict[str, Any]:
    """What to search with, as `Explorer.query` takes it."""
    named = {"items": item, "uploads": upload, "more": more, "less": less, "less_uploads": less_upload}
    return {**named, "label": label}


def search_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/search``."""
    routes = APIRouter(prefix="/api", tags=["search"], responses=EVERYWHERE)

    @routes.get("/search", response_model=schemas.SearchOut, responses=MISSING)
    async def search(
        images: Annotated[dict[str, Any], Depends(query_images)],
        k: K = 24,
        offset: Annotated[int, Query(ge=0, le=MAX_HITS - MAX_K, description="results to skip")] = 0,
        within: Within = "",
        side: ModelKey = "a",
        metrics: Metrics = True,
    ) -> Response:
        """Images nearest to some of the index or to uploads, and away from others (Rocchio)."""

        def work() -> schemas.SearchOut:
            model = explorer.model(side)
            query = explorer.query(model, **images)
            return responses.search_out(
                explorer, model, query, k=k, within=within, offset=offset, metrics=metrics
            )

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
            query = explorer.query(model, uploads=[key], label=label)
            return responses.search_out(explorer, model, query, k=k, within=within)

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
