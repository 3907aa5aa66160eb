"""Images of the index: lists of them, and the images themselves in two sizes."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from cachetools import LRUCache
from fastapi import APIRouter, Query, Request, Response

from happier.errors import SearchError
from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.indexed_model import IndexedModel
from happier.web.routes.parameters import (
    EVERYWHERE,
    MISSING,
    UPLOAD,
    ItemId,
    Limit,
    ModelKey,
    Offset,
    Side,
    Version,
    Within,
)
from happier.web.workers import Workers

THUMBNAIL_SIZE = 256
LARGE_SIZE = 1024
CACHE_BYTES = 64 << 20
_FOREVER = "private, max-age=31536000, immutable"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **EVERYWHERE,
    **{status: text for status, text in UPLOAD.items() if status != 413},
    200: {"content": {"image/webp": {}}, "description": "the image as WebP"},
    304: {"description": "the image you have is current"},
}


class _Place(NamedTuple):
    """Which image: the row that it had, the id that it has, and the version that the address was made for."""

    row: int
    item_id: str | None
    version: str


def item_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/items``: images of a branch."""
    routes = APIRouter(prefix="/api", tags=["images"], responses={**EVERYWHERE, **MISSING})

    @routes.get("/items", response_model=schemas.ItemsOut)
    async def items(
        within: Within = "",
        side: ModelKey = "a",
        offset: Offset = 0,
        limit: Limit = 48,
        spread: Annotated[
            bool, Query(description="a few from all over the branch instead of the first")
        ] = False,
    ) -> Response:
        """Images of a branch, in the order of the index."""

        def work() -> schemas.ItemsOut:
            model = explorer.model(side)
            rows = model.tree.node(within).rows
            if spread:
                step = len(rows) / min(limit, len(rows))
                part = [int(rows[int((at + 0.5) * step)]) for at in range(min(limit, len(rows)))]
            else:
                part = rows[offset : offset + limit].tolist()
            some = [responses.item_out(model, row) for row in part]
            return schemas.ItemsOut(items=some, total=len(rows), offset=offset, version=model.version)

        return await workers.answer(work)

    return routes


def image_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/thumbnails``, ``/images`` and ``/uploads``, as WebP."""
    routes = APIRouter(tags=["images"], responses=_RESPONSES)
    cache: LRUCache[str, bytes] = LRUCache(CACHE_BYTES, getsizeof=len)

    def find(key: str, row: int, item_id: str | None) -> tuple[IndexedModel, int]:
        model = explorer.model(key)
        return model, model.row_of(row, item_id)

    async def picture(request: Request, key: str, place: _Place, size: int) -> Response:
        try:
            model, row = find(key, place.row, place.item_id)
        except SearchError:
            model, row = await workers.run(lambda: find(key, place.row, place.item_id))
        version = model.picture_version(row)
        tag = f'"{version}-{size}"'
        # The address includes the version of the image: its content never changes.
        caching = _FOREVER if place.version == version else "private, no-cache"
        headers = {"etag": tag, "cache-control": caching}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        data = cache.get(tag)
        if data is None:
            data = await workers.run(lambda: model.picture(row, size))
            if len(data) <= CACHE_BYTES:
                cache[tag] = data
        return Response(data, media_type="image/webp", headers=headers)

    @routes.get("/thumbnails/{side}/{row}", response_class=Response)
    async def thumbnail(
        request: Request, side: Side, row: int, item: ItemId = None, v: Version = ""
    ) -> Response:
        """An image of the index, small."""
        return await picture(request, side, _Place(row, item, v), THUMBNAIL_SIZE)

    @routes.get("/images/{side}/{row}", response_class=Response)
    async def image(request: Request, side: Side, row: int, item: ItemId = None, v: Version = "") -> Response:
        """An image of the index, large."""
        return await picture(request, side, _Place(row, item, v), LARGE_SIZE)

    @routes.get("/uploads/{key}", response_class=Response)
    async def uploaded(key: str) -> Response:
        """An uploaded image, small."""
        data = (await workers.run(lambda: explorer.uploads.get(key))).thumbnail
        return Response(data, media_type="image/webp", headers={"cache-control": "private, max-age=3600"})

    return routes
