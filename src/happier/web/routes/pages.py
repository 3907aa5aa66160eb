"""The page and its files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import urlencode

import orjson
import xxhash
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Message

from happier.report.class_map_colours import COARSE_COLOURS, OTHER_COLOUR
from happier.report.level_colours import css_variables, print_variables
from happier.web.bundle import bundled
from happier.web.explorer import Explorer
from happier.web.middleware.answer_cache import ANSWERS
from happier.web.middleware.security_headers import content_policy
from happier.web.routes.parameters import MAX_IMAGES, MAX_K

STATIC = Path(__file__).parents[1] / "static"
# Revalidated each time: cheap, and an update of the package takes effect when the server is started again.
_FRESH = {"cache-control": "no-cache"}
# What `index.html` links to, which is sent in its place.
_LINK = re.compile(r'<link rel="stylesheet" href="(?:static/)?(\w+\.css)"(.*?)>')
_SCRIPT = re.compile(r'<script(.*?) src="static/(\w+\.js)"></script>')
# How long a page waits for the answers that it comes with. Without one, it is drawn and asks for it.
_ANSWER_SECONDS = 0.3
# Pictures that a search shows at once, on a large screen.
_FIRST_PICTURES = 8


@dataclass(frozen=True)
class _StaticFile:
    """A file of the page, kept in memory."""

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


@dataclass(frozen=True)
class _Page:
    """The page with its styles and scripts in it: before the first result, only pictures are left to fetch.

    Attributes:
        start: up to where the answers go.
        end: what follows them.
        policy: the content policy, which allows these styles and scripts.
    """

    start: bytes
    end: bytes
    policy: str

    @classmethod
    def of(cls, html: str, files: Mapping[str, bytes]) -> _Page:
        inside: dict[str, list[str]] = {"style": [], "script": []}

        def put(tag: str, attributes: str, name: str) -> str:
            text = files[name].decode()
            if re.search(f"</{tag}|<!--", text, re.IGNORECASE):
                raise ValueError(f"{name} cannot stand in a page: it holds </{tag} or <!--")
            inside[tag].append(text)
            return f"<{tag}{attributes}>{text}</{tag}>"

        html = _LINK.sub(lambda found: put("style", found[2], found[1]), html)
        html = _SCRIPT.sub(lambda found: put("script", found[1], found[2]), html)
        start, end, rest = html.partition("</body>")
        return cls(start.encode(), (end + rest).encode(), content_policy(inside["script"], inside["style"]))


def page_routes(explorer: Explorer) -> APIRouter:
    """``/``, ``/docs`` and ``/static``."""
    routes = APIRouter(include_in_schema=False)
    read = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}
    modules = {name.removesuffix(".js"): data.decode() for name, data in read.items() if name.endswith(".js")}
    read |= {f"{name}.js": text.encode() for name, text in bundled(modules, "app").items()}
    files = {name: _StaticFile.of(name, data) for name, data in read.items()}

    @lru_cache(maxsize=4)
    def whole_page(palette: bytes) -> _Page:
        return _Page.of(read["index.html"].decode(), {**read, "palette.css": palette})

    asking: set[asyncio.Task[bytes | None]] = set()

    @routes.get("/")
    async def page(request: Request) -> Response:
        app = request.scope.get(ANSWERS, request.app)
        tasks = {}
        for address in ("api/info", *_first_requests(request.query_params, list(explorer.models))):
            tasks[address] = task = asyncio.create_task(_answer(app, address))
            asking.add(task)  # an event loop keeps no task alive
            task.add_done_callback(asking.discard)
        whole = whole_page(_palette(explorer))
        parts = _page_parts(whole, tasks, root=f"{explorer.root_path}/")
        headers = {"cache-control": "private, no-cache", "content-security-policy": whole.policy}
        return StreamingResponse(parts, media_type="text/html", headers=headers)

    @routes.get("/docs")
    async def documentation(request: Request) -> Response:
        return files["docs.html"].answer(request)

    @routes.get("/palette.css")
    async def colours() -> Response:
        return Response(_palette(explorer), media_type="text/css", headers=_FRESH)

    @routes.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        return files["icon.svg"].answer(request)

    @routes.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        if name not in files:
            return JSONResponse({"detail": "no such file"}, status_code=404)
        return files[name].answer(request)

    return routes


def _palette(explorer: Explorer) -> bytes:
    """The colours of the levels, and of the branches in the map."""
    depth = len(explorer.model("a").index.levels)
    branches = [f"--map-{at}: {colour};" for at, colour in enumerate(COARSE_COLOURS)]
    branches.append(f"--map-other: {OTHER_COLOUR};")
    return f"{css_variables(depth)}{print_variables(depth)}:root {{ {' '.join(branches)} }}\n".encode()


def _first_requests(query: QueryParams, models: Sequence[str]) -> list[str]:
    """What the start, a branch or a plain search will request, spelt as `api.js` does; else nothing."""
    ids, within, k = query.getlist("id"), query.get("within", ""), query.get("k", "24")
    branch = [("within", within)] if within else []
    try:
        if not query:
            return ["api/items?spread=true&limit=36"]
        if set(query) == {"within"} and within:
            return [f"api/items?{_spelt([*branch, ('offset', '0'), ('limit', '48')])}"]
        plain = set(query) <= {"id", "within", "k", "shown"} and all(ids) and 0 < len(ids) <= MAX_IMAGES
        if not plain or not re.fullmatch(r"[1-9]\d{0,2}", k) or int(k) > MAX_K:
            return []
        values = [*(("id", one) for one in ids), *branch, ("k", k)]
        return [f"api/search?{_spelt([*values, ('side', side)])}" for side in models]
    except UnicodeEncodeError:
        return []


def _spelt(values: Sequence[tuple[str, str]]) -> str:
    """A query as the browser's URLSearchParams writes it."""
    return urlencode(values, safe="*").replace("~", "%7E")


async def _answer(app: ASGIApp, address: str) -> bytes | None:
    """What the application answers to an address of its own, None where that is a refusal."""
    path, _, query = address.partition("?")
    scope = {"type": "http", "method": "GET", "path": f"/{path}", "query_string": query.encode()}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({**scope, "headers": [], "root_path": ""}, receive, send)
    return b"".join(one.get("body", b"") for one in sent) if sent[0]["status"] == 200 else None


async def _page_parts(
    page: _Page, tasks: Mapping[str, asyncio.Task[bytes | None]], *, root: str
) -> AsyncIterator[bytes]:
    """The page, which the browser begins to read, then the answers to what it asks first.

    Args:
        page: the page without them.
        tasks: give the answers, by address.
        root: what the server's addresses begin with.
    """
    yield page.start
    await asyncio.wait(tasks.values(), timeout=_ANSWER_SECONDS)
    done = {address: task.result() for address, task in tasks.items() if task.done()}
    answers = {address: answer for address, answer in done.items() if answer is not None}
    yield _preloads(answers.values(), root=root) + _island(answers) + page.end


def _preloads(answers: Iterable[bytes], *, root: str) -> bytes:
    """The first pictures: a browser would ask for them when they are drawn."""
    found: list[str] = []
    for answer in map(orjson.loads, answers):
        items = [*answer.get("positive", ()), *answer.get("hits", ()), *answer.get("items", ())]
        found += [one["thumbnail"] for one in items[:_FIRST_PICTURES]]
    links = [f'<link rel="preload" as="image" href="{escape(one.removeprefix(root))}">\n' for one in found]
    return "".join(links).encode()


def _island(answers: Mapping[str, bytes]) -> bytes:
    """Answers by address, as JSON that the page reads; nothing in it can end the element."""
    pairs = [orjson.dumps(address) + b":" + answer for address, answer in answers.items()]
    text = (b"{" + b",".join(pairs) + b"}").replace(b"<", b"\\u003c")
    return b'<script type="application/json" id="answers">' + text + b"</script>\n"
