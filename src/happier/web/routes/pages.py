"""The page and its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path

import xxhash
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from happier.report.class_map_colours import COARSE_COLOURS, OTHER_COLOUR
from happier.report.level_colours import css_variables, print_variables
from happier.web.explorer import Explorer

STATIC = Path(__file__).parents[1] / "static"
# Revalidated each time: cheap, and an update of the package takes effect when the server is started again.
_FRESH = {"cache-control": "no-cache"}
_IMPORT = re.compile(r'from "\./([\w.]+)"')


@dataclass(frozen=True)
class _StaticFile:
    """A file of the page, kept in memory: the first result waits for some twenty of them."""

    data: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, name: str, data: bytes) -> _StaticFile:
        return cls(data, guess_type(name)[0] or "text/plain", f'"{xxhash.xxh3_64_hexdigest(data)}"')

    def answer(self, request: Request) -> Response:
        headers = {**_FRESH, "etag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.data, media_type=self.kind, headers=headers)


def page_routes(explorer: Explorer) -> APIRouter:
    """``/``, ``/docs`` and ``/static``."""
    routes = APIRouter(include_in_schema=False)
    read = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}
    files = {name: _StaticFile.of(name, data) for name, data in read.items()}
    files["index.html"] = _StaticFile.of("index.html", _with_preloads(read))

    @routes.get("/")
    async def page(request: Request) -> Response:
        return files["index.html"].answer(request)

    @routes.get("/docs")
    async def documentation(request: Request) -> Response:
        return files["docs.html"].answer(request)

    @routes.get("/palette.css")
    async def palette() -> Response:
        depth = len(explorer.model("a").index.levels)
        branches = [f"--map-{at}: {colour};" for at, colour in enumerate(COARSE_COLOURS)]
        branches.append(f"--map-other: {OTHER_COLOUR};")
        colours = f"{css_variables(depth)}{print_variables(depth)}:root {{ {' '.join(branches)} }}\n"
        return Response(colours, media_type="text/css", headers=_FRESH)

    @routes.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        return files["icon.svg"].answer(request)

    @routes.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        if name not in files:
            return JSONResponse({"detail": "no such file"}, status_code=404)
        return files[name].answer(request)

    return routes


def _with_preloads(read: dict[str, bytes]) -> bytes:
    """The page, with the names of all modules that it starts with: a browser would find them one by one."""
    modules = ["app.js"]
    for module in modules:
        modules += [name for name in _IMPORT.findall(read[module].decode()) if name not in modules]
    links = "".join(f'  <link rel="modulepreload" href="static/{name}">\n' for name in modules)
    # As `fetch` asks for it, so that the browser takes the answer that it has.
    links += '  <link rel="preload" as="fetch" crossorigin="anonymous" href="api/info">\n'
    return read["index.html"].replace(b"</head>", links.encode() + b"</head>", 1)
