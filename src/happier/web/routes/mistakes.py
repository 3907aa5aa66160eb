"""Searches that go wrong."""

from __future__ import annotations

from fastapi import APIRouter, Response

from happier.web import responses, schemas
from happier.web.explorer import Explorer, Sort
from happier.web.routes.parameters import EVERYWHERE, MISSING, Limit, ModelKey, Offset, Within
from happier.web.workers import Workers


def mistake_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/mistakes``."""
    routes = APIRouter(prefix="/api", tags=["search"], responses={**EVERYWHERE, **MISSING})

    @routes.get("/mistakes", response_model=schemas.MistakesOut)
    async def mistakes(
        side: ModelKey = "a",
        sort: Sort = "severity",
        within: Within = "",
        offset: Offset = 0,
        limit: Limit = 24,
    ) -> Response:
        """Images of the index whose own search goes wrong, the worst first."""
        workers.start_analysis(explorer)

        def work() -> schemas.MistakesOut:
            model = explorer.model(side)
            if not explorer.analysed:
                return schemas.MistakesOut(ready=False, mistakes=[], total=0, offset=offset)
            found, total = explorer.mistakes(model, sort=sort, within=within, offset=offset, limit=limit)
            out = [responses.mistake_out(model, one) for one in found]
            return schemas.MistakesOut(ready=True, mistakes=out, total=total, offset=offset)

        return await workers.answer(work)

    return routes
