"""The page and its files."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse

from happier.report.class_map_colours import COARSE_COLOURS, OTHER_COLOUR
from happier.report.level_colours import css_variables, print_variables
from happier.web.explorer import Explorer

STATIC = Path(__file__).parents[1] / "static"
# Revalidated each time: cheap on this machine, and an update of the package takes effect at once.
_FRESH = {"cache-control": "no-cache"}


def page_routes(explorer: Explorer) -> APIRouter:
    """``/``, ``/docs`` and ``/static``."""
    routes = APIRouter(include_in_schema=False)
    files = {path.name: path for path in STATIC.iterdir() if path.is_file()}

    @routes.get("/")
    async def page() -> Response:
        return FileResponse(files["index.html"], headers=_FRESH)

    @routes.get("/docs")
    async def documentation() -> Response:
        return FileResponse(files["docs.html"], headers=_FRESH)

    @routes.get("/palette.css")
    async def palette() -> Response:
        depth = len(explorer.model("a").index.levels)
        branches = [f"--map-{at}: {colour};" for at, colour in enumerate(COARSE_COLOURS)]
        branches.append(f"--map-other: {OTHER_COLOUR};")
        colours = f"{css_variables(depth)}{print_variables(depth)}:root {{ {' '.join(branches)} }}\n"
        return Response(colours, media_type="text/css", headers=_FRESH)

    @routes.get("/favicon.ico")
    async def icon() -> Response:
        return FileResponse(files["icon.svg"], headers={"cache-control": "max-age=86400"})

    @routes.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in files:
            return JSONResponse({"detail": "no such file"}, status_code=404)
        return FileResponse(files[name], headers=_FRESH)

    return routes
