"""The taxonomy: its classes, by path and by name."""

from __future__ import annotations

from fastapi import APIRouter, Response

from happier.web import responses, schemas
from happier.web.explorer import Explorer
from happier.web.routes.parameters import EVERYWHERE, MISSING, Limit, ModelKey, Offset, Text, Within
from happier.web.workers import Workers


def taxonomy_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    """``/api/tree``, ``/api/classes`` and ``/api/class``."""
    routes = APIRouter(prefix="/api", tags=["taxonomy"], responses={**EVERYWHERE, **MISSING})

    @routes.get("/tree", response_model=schemas.TreeOut)
    async def tree(path: Within = "", side: ModelKey = "a", offset: Offset = 0) -> Response:
        """A class and the classes right below it; the whole tree's coarsest classes for an empty path."""

        def work() -> schemas.TreeOut:
            model = explorer.model(side)
            return responses.tree_out(model, model.tree.node(path), offset)

        return await workers.answer(work)

    @routes.get("/classes", response_model=schemas.FoundOut)
    async def classes(text: Text, side: ModelKey = "a", limit: Limit = 20) -> Response:
        """Classes whose name contains a text."""

        def work() -> schemas.FoundOut:
            model = explorer.model(side)
            nodes = model.tree.find(text, limit)
            return schemas.FoundOut(classes=[responses.node_out(model, node) for node in nodes])

        return await workers.answer(work)

    @routes.get("/class", response_model=schemas.ClassOut)
    async def one_class(path: Within = "", side: ModelKey = "a") -> Response:
        """A class: those below it, how well its images are found, what they are confused with."""
        workers.start_analysis(explorer)

        def work() -> schemas.ClassOut:
            model = explorer.model(side)
            node = model.tree.node(path)
            ready = model.analysed
            confusions = explorer.confusions(model, node) if ready else []
            return schemas.ClassOut(
                node=responses.tree_out(model, node, 0),
                ready=ready,
                confusions=[responses.confusion_out(one) for one in confusions],
            )

        return await workers.answer(work)

    return routes
