"""The JSON API and the page, over an `Explorer`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.types import ASGIApp

import happier
from happier.errors import HappierError, ImageError, InputError, OptionError
from happier.palette import css_variables
from happier.search.branch import split_path
from happier.web import answers, schemas
from happier.web.explorer import LARGE_SIZE, THUMBNAIL_SIZE, Explorer
from happier.web.guard import Access, Guard, Limits
from happier.web.pictures import ByteCache

STATIC = Path(__file__).parent / "static"
MAX_K = 200
CACHE_BYTES = 64 << 20
# How long the end of the server waits for a step of the analysis.
ANALYSIS_SECONDS = 5.0
_FOREVER = "private, max-age=31536000, immutable"
_MISSING: dict[int | str, dict[str, Any]] = {
    404: {"model": schemas.Problem, "description": "no such image, class or index"},
}
_UPLOAD: dict[int | str, dict[str, Any]] = {
    **_MISSING,
    400: {"model": schemas.Problem, "description": "not an image, damaged, or a malformed body"},
    413: {"model": schemas.Problem, "description": "too large"},
}
_EVERYWHERE: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.Problem, "description": "a parameter is missing or out of range"},
    429: {"model": schemas.Problem, "description": "the server is busy"},
    503: {"model": schemas.Problem, "description": "it took too long"},
}

Answer = TypeVar("Answer")
SideKey = Annotated[Literal["a", "b"], Query(description="which index: a, or b where two are compared")]
K = Annotated[int, Query(ge=1, le=MAX_K, description="how many results")]
Text = Annotated[str, Query(max_length=2048)]
Within = Annotated[str, Query(max_length=2048, description="only this branch, e.g. animals/birds")]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]
Version = Annotated[str, Query(max_length=64, description="state of the index, for caching")]
Limit = Annotated[int, Query(ge=1, le=200)]


def create_app(explorer: Explorer, *, access: Access | None = None, limits: Limits | None = None) -> ASGIApp:
    """The whole application: API, page, and the guard around them."""
    limits = limits or Limits()
    return Guard(create_api(explorer, limits=limits), access=access or Access(), limits=limits)


def create_api(explorer: Explorer, *, limits: Limits | None = None) -> FastAPI:
    """The application without its guard."""
    limits = limits or Limits()
    workers = Workers(limits.workers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workers.start_analysis(explorer)  # ready by the time somebody asks for the mistakes
        yield
        workers.close()

    api = FastAPI(
        title="happier explorer",
        version=happier.__version__,
        description="Search a catalogue of images by image, within its taxonomy.",
        openapi_url="/api/openapi.json",
        # The usual documentation pages load code from elsewhere; ours is at /docs and needs no network.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )

    @api.exception_handler(HappierError)
    async def refuse(_: Request, error: HappierError) -> Response:
        status = 400 if isinstance(error, ImageError) else 404
        if isinstance(error, InputError | OptionError):
            status = 422
        return JSONResponse({"detail": str(error)}, status_code=status)

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return JSONResponse({"detail": f"{where}: {first['msg']}"}, status_code=422)

    api.include_router(_json_routes(explorer, workers, limits))
    api.include_router(_picture_routes(explorer, workers))
    api.include_router(_page_routes(explorer))
    return api


class Workers:
    """A few threads for everything that computes, so that the event loop never waits for it."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="happier-web")
        self._analysing: threading.Thread | None = None
        self._stop = threading.Event()

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """Do it in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def start_analysis(self, explorer: Explorer) -> bool:
        """Begin the analysis of all sides where nobody has; whether it is done."""
        sides = explorer.sides.values()
        if self._analysing is None:
            # Takes long for a large index: it must keep neither a search waiting nor the end of the server.
            self._analysing = threading.Thread(
                target=lambda: [side.analysis(self._stop) for side in sides], name="happier-analysis"
            )
            self._analysing.start()
        return all(side.analysed for side in sides)

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._analysing is not None:
            # It looks at `_stop` about every second, and must not run into the end of the interpreter.
            self._analysing.join(ANALYSIS_SECONDS)


def _json_routes(explorer: Explorer, workers: Workers, limits: Limits) -> APIRouter:
    routes = APIRouter(prefix="/api", responses=_EVERYWHERE)

    @routes.get("/health", tags=["server"])
    async def health() -> schemas.Health:
        """Whether the server answers."""
        uptime = asyncio.get_running_loop().time() - explorer.started
        return schemas.Health(status="ok", version=happier.__version__, uptime_seconds=uptime)

    @routes.get("/info", tags=["server"])
    async def info() -> schemas.Info:
        """What is being explored: levels, indexes, limits."""
        first = explorer.side("a").index
        return schemas.Info(
            title=first.items.name or explorer.side("a").name,
            levels=list(first.levels),
            sides=[answers.side_info(side) for side in explorer.sides.values()],
            max_k=MAX_K,
            max_upload_bytes=limits.upload_bytes,
            credits=first.items.credits,
        )

    @routes.get("/tree", tags=["taxonomy"], responses=_MISSING)
    async def tree(path: Within = "", side: SideKey = "a", offset: Offset = 0) -> schemas.TreeOut:
        """A class and the classes right below it; the whole tree's coarsest classes for an empty path."""

        def work() -> schemas.TreeOut:
            chosen = explorer.side(side)
            return answers.tree_out(chosen, chosen.tree.node(path), offset)

        return await workers.run(work)

    @routes.get("/classes", tags=["taxonomy"], responses=_MISSING)
    async def classes(text: Text, side: SideKey = "a", limit: Limit = 20) -> schemas.FoundOut:
        """Classes whose name holds a text."""

        def work() -> schemas.FoundOut:
            chosen = explorer.side(side)
            nodes = chosen.tree.find(text, limit)
            return schemas.FoundOut(classes=[answers.node_out(chosen, node) for node in nodes])

        return await workers.run(work)

    @routes.get("/class", tags=["taxonomy"], responses=_MISSING)
    async def one_class(path: Within = "", side: SideKey = "a") -> schemas.ClassOut:
        """A class: those below it, how well its images are found, what they are taken for."""
        ready = workers.start_analysis(explorer)

        def work() -> schemas.ClassOut:
            chosen = explorer.side(side)
            node = chosen.tree.node(path)
            found = explorer.confusions(chosen, node) if ready else []
            confusions = [
                schemas.ConfusionOut(
                    path=one.class_path,
                    names=list(split_path(one.class_path)),
                    level=one.level,
                    share=one.share,
                )
                for one in found
            ]
            return schemas.ClassOut(
                node=answers.tree_out(chosen, node, 0), ready=ready, confusions=confusions
            )

        return await workers.run(work)

    @routes.get("/items", tags=["images"], responses=_MISSING)
    async def items(
        within: Within = "",
        side: SideKey = "a",
        offset: Offset = 0,
        limit: Limit = 48,
        spread: Annotated[
            bool, Query(description="a few from all over the branch instead of the first")
        ] = False,
    ) -> schemas.ItemsOut:
        """Images of a branch, in the order of the index."""

        def work() -> schemas.ItemsOut:
            chosen = explorer.side(side)
            rows = chosen.tree.node(within).rows
            if spread:
                step = len(rows) / min(limit, len(rows))
                part = [int(rows[int((at + 0.5) * step)]) for at in range(min(limit, len(rows)))]
            else:
                part = rows[offset : offset + limit].tolist()
            some = [answers.item_out(chosen, row) for row in part]
            return schemas.ItemsOut(items=some, total=len(rows), offset=offset)

        return await workers.run(work)

    @routes.get("/search", tags=["search"], responses=_MISSING)
    async def search(
        item: Annotated[
            str | None, Query(alias="id", max_length=4096, description="id of an image of the index")
        ] = None,
        upload: Annotated[str | None, Query(max_length=64, description="key of an upload")] = None,
        label: Annotated[str | None, Query(max_length=2048, description="class of the upload")] = None,
        k: K = 24,
        within: Within = "",
        side: SideKey = "a",
    ) -> schemas.SearchOut:
        """Images nearest to one of the index, or to an upload."""

        def work() -> schemas.SearchOut:
            chosen = explorer.side(side)
            query = explorer.query(chosen, item=item, upload=upload, label=label)
            return answers.search_out(explorer, chosen, query, k, within)

        return await workers.run(work)

    @routes.post("/search", tags=["search"], responses=_UPLOAD)
    async def search_by_file(
        file: Annotated[UploadFile, File(description="the query image")],
        k: K = 24,
        within: Within = "",
        label: Annotated[str | None, Query(max_length=2048, description="class of the image")] = None,
        side: SideKey = "a",
    ) -> schemas.SearchOut:
        """Images nearest to the one in the body, in one request."""
        data, name = await file.read(), (file.filename or "image")[:200]

        def work() -> schemas.SearchOut:
            chosen = explorer.side(side)
            taken = explorer.upload(data, name)
            query = explorer.query(chosen, upload=taken.key, label=label)
            return answers.search_out(explorer, chosen, query, k, within)

        return await workers.run(work)

    @routes.post("/uploads", tags=["search"], status_code=201, responses=_UPLOAD)
    async def upload_image(
        file: Annotated[UploadFile, File(description="the query image")],
    ) -> schemas.UploadOut:
        """Keep an image for a while, to search with it by its key."""
        data, name = await file.read(), (file.filename or "image")[:200]
        taken = await workers.run(lambda: explorer.upload(data, name))
        return schemas.UploadOut(upload=taken.key, thumbnail=f"/uploads/{taken.key}")

    @routes.get("/mistakes", tags=["search"], responses=_MISSING)
    async def mistakes(
        side: SideKey = "a",
        sort: Literal["severity", "h-ap", "gain", "loss"] = "severity",
        within: Within = "",
        offset: Offset = 0,
        limit: Limit = 24,
    ) -> schemas.MistakesOut:
        """Images of the index whose own search goes wrong, the worst first."""
        chosen = explorer.side(side)
        if not workers.start_analysis(explorer):
            return schemas.MistakesOut(ready=False, mistakes=[], total=0, offset=offset)

        def work() -> schemas.MistakesOut:
            found, total = explorer.mistakes(chosen, sort=sort, within=within, offset=offset, limit=limit)
            out = [
                schemas.MistakeOut(
                    query=answers.item_out(chosen, one.row),
                    result=answers.hit_out(chosen, chosen.index.hit(one.result, one.score), 1, one.level),
                    h_ap=answers.number(one.h_ap),
                    severity=one.severity,
                    other_h_ap=one.other_h_ap,
                )
                for one in found
            ]
            return schemas.MistakesOut(ready=True, mistakes=out, total=total, offset=offset)

        return await workers.run(work)

    return routes


def _picture_routes(explorer: Explorer, workers: Workers) -> APIRouter:
    responses: dict[int | str, dict[str, Any]] = {
        **_EVERYWHERE,
        **_UPLOAD,
        200: {"content": {"image/webp": {}}, "description": "the image as WebP"},
        304: {"description": "as you have it"},
    }
    responses.pop(413)
    routes = APIRouter(tags=["images"], responses=responses)
    cache = ByteCache(CACHE_BYTES)

    async def picture(request: Request, key: str, row: int, size: int, version: str) -> Response:
        side = explorer.side(key)
        tag = f'"{side.version}-{row}-{size}"'
        # The address names the state of the index: what it leads to never changes.
        caching = _FOREVER if version == side.version else "private, no-cache"
        headers = {"etag": tag, "cache-control": caching}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        data = cache.get(tag)
        if data is None:
            data = await workers.run(lambda: side.picture(row, size))
            cache.put(tag, data)
        return Response(data, media_type="image/webp", headers=headers)

    @routes.get("/thumbnails/{side}/{row}", response_class=Response)
    async def thumbnail(request: Request, side: Literal["a", "b"], row: int, v: Version = "") -> Response:
        """An image of the index, small."""
        return await picture(request, side, row, THUMBNAIL_SIZE, v)

    @routes.get("/images/{side}/{row}", response_class=Response)
    async def image(request: Request, side: Literal["a", "b"], row: int, v: Version = "") -> Response:
        """An image of the index, large."""
        return await picture(request, side, row, LARGE_SIZE, v)

    @routes.get("/uploads/{key}", response_class=Response)
    async def uploaded(key: str) -> Response:
        """An uploaded image, small."""
        data = explorer.find_upload(key).thumbnail
        return Response(data, media_type="image/webp", headers={"cache-control": "private, max-age=3600"})

    return routes


def _page_routes(explorer: Explorer) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = {path.name: path for path in STATIC.iterdir() if path.is_file()}
    colours = css_variables(len(explorer.side("a").index.levels))
    # Revalidated each time: cheap on this machine, and an update of the package shows at once.
    fresh = {"cache-control": "no-cache"}

    @routes.get("/")
    async def page() -> Response:
        return FileResponse(files["index.html"], headers=fresh)

    @routes.get("/docs")
    async def documentation() -> Response:
        return FileResponse(files["docs.html"], headers=fresh)

    @routes.get("/palette.css")
    async def palette() -> Response:
        return Response(colours, media_type="text/css", headers=fresh)

    @routes.get("/favicon.ico")
    async def icon() -> Response:
        return FileResponse(files["icon.svg"], headers={"cache-control": "max-age=86400"})

    @routes.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in files:
            return JSONResponse({"detail": "no such file"}, status_code=404)
        return FileResponse(files[name], headers=fresh)

    return routes
