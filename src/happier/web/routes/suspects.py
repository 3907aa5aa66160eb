"""Labels that are probably wrong, and what a person decides about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from happier.curation.corrections import Correction
from happier.curation.suspects import Kind
from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.middleware.problem import TOKEN
from happier.web.routes.parameters import EVERYWHERE, FORBIDDEN, MISSING, Limit, Offset
from happier.web.tokens import Token
from happier.web.workers import Workers


def suspect_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/suspects``: of the first index."""
    routes = APIRouter(prefix="/api", tags=["labels"], responses={**EVERYWHERE, **MISSING})

    @routes.get("/suspects", response_model=schemas.SuspectsOut)
    async def suspects(
        kind: Annotated[Kind | None, Query(description="only this kind")] = None,
        offset: Offset = 0,
        limit: Limit = 24,
    ) -> Response:
        """Labels that are probably wrong, the most severe first, with what was decided."""

        def work() -> schemas.SuspectsOut:
            listed = explorer.suspects
            found = listed.page(kind, offset, limit)
            return schemas.SuspectsOut(
                ready=found.ready,
                writable=listed.writable,
                suspects=[responses.suspect_out(listed.model, *one) for one in found.suspects],
                total=found.total,
                decided=found.decided,
                offset=offset,
            )

        return await workers.answer(work)

    @routes.post("/suspects", response_model=schemas.DecisionOut, responses=FORBIDDEN)
    async def decide(request: Request, decision: schemas.DecisionIn) -> Response:
        """Keep a decision; only where the server was started with a file for them."""
        token: Token | None = request.scope.get(TOKEN)
        if token is not None and token.name and token.role != "write":
            raise HTTPException(403, "this token may not decide; use one with the role write")

        def work() -> schemas.DecisionOut:
            made = Correction(decision.id, decision.label, decision.decision, decision.class_path)
            return schemas.DecisionOut(decisions=explorer.suspects.decide(made))

        return await workers.answer(work)

    return routes
