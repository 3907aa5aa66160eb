"""What an image of the index, or an upload, is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from happier.errors import InputError
from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.routes.parameters import EVERYWHERE, MISSING, ModelKey, Within
from happier.web.workers import Workers


def identify_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/identify``."""
    routes = APIRouter(prefix="/api", tags=["search"], responses=EVERYWHERE)

    @routes.get("/identify", response_model=schemas.IdentifyOut, responses=MISSING)
    async def identify(
        item: Annotated[
            str | None, Query(alias="id", max_length=4096, description="id of an image of the index")
        ] = None,
        upload: Annotated[str | None, Query(max_length=64, description="key of an upload")] = None,
        sure: Annotated[float, Query(gt=0, le=1, description="how probable the answer must be")] = 0.9,
        within: Within = "",
        side: ModelKey = "a",
    ) -> Response:
        """The deepest class that the index is sure of, the likeliest path, and the images that voted."""

        def work() -> schemas.IdentifyOut:
            model = explorer.model(side)
            if (item is None) == (upload is None):
                raise InputError("give either the id of an image of the index or the key of an upload")
            query = explorer.query(model, items=[item] if item else [], uploads=[upload] if upload else [])
            found = explorer.identify(model, query, sure=sure, within=within)
            return responses.identify_out(model, found, sure=sure, within=within)

        return await workers.answer(work)

    return routes
