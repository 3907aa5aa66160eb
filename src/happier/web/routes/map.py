"""The map of the catalogue: where each image is, and images by their place in it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from happier.errors import SearchError
from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.indexed_model import IndexedModel
from happier.web.routes.parameters import EVERYWHERE, MISSING, ModelKey
from happier.web.workers import Workers

MAX_ITEMS = 200
MapVersion = Annotated[str, Query(max_length=64, description="state of the index that the map is of")]


def map_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/map``, ``/api/map/points`` and ``/api/map/items``."""
    routes = APIRouter(prefix="/api/map", tags=["map"], responses={**EVERYWHERE, **MISSING})

    @routes.get("", response_model=schemas.MapOut)
    async def catalogue_map(side: ModelKey = "a") -> Response:
        """The classes of the map's points; ``ready`` is false while the map is being laid out."""

        def work() -> schemas.MapOut:
            model = explorer.model(side)
            ready = workers.start_map(model)
            classes = model.class_numbers[0] if ready else []
            return schemas.MapOut(ready=ready, version=model.version, total=len(model.index), classes=classes)

        return await workers.answer(work)

    @routes.get(
        "/points",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "the points"}},
    )
    async def points(version: MapVersion, side: ModelKey = "a") -> Response:
        """For each image x and y (two 16-bit numbers each), then for each its class (32 bits); little endian.

        The class is a place in the list of classes; 0xffffffff where it is unknown.
        """
        data = await workers.run(lambda: _points(_of_version(explorer, side, version)))
        headers = {"cache-control": "private, max-age=86400"}
        return Response(data, media_type="application/octet-stream", headers=headers)

    @routes.get("/items", response_model=schemas.ItemsOut)
    async def items(
        version: MapVersion,
        row: Annotated[list[int], Query(min_length=1, max_length=MAX_ITEMS, description="rows of the map")],
        side: ModelKey = "a",
    ) -> Response:
        """Images by their rows in the map."""
        return await workers.answer(lambda: _items(_of_version(explorer, side, version), row))

    return routes


def _of_version(explorer: Explorer, side: str, version: str) -> IndexedModel:
    model = explorer.model(side)
    if model.version != version:
        raise SearchError("the index has changed since this map was drawn; load it again")
    return model


def _points(model: IndexedModel) -> bytes:
    places = model.map.positions() if model.map.read() else None
    if places is None:
        raise SearchError("the map is still being laid out; /api/map says when it is ready")
    return places.astype("<u2").tobytes() + model.class_numbers[1].astype("<u4").tobytes()


def _items(model: IndexedModel, rows: list[int]) -> schemas.ItemsOut:
    if any(not 0 <= row < len(model.index) for row in rows):
        raise SearchError(f"the map has the rows 0 to {len(model.index) - 1}")
    some = [responses.item_out(model, row) for row in rows]
    return schemas.ItemsOut(items=some, total=len(some), offset=0, version=model.version)
