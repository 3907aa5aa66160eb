"""How long a reader waits for the page: from opening a link to the first result, in a real browser."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from happier.bench.http_load import Connection, serve
from happier.bench.serve import drawn_index
from happier.errors import SearchError
from happier.extras import needs_extra
from happier.progress import Status, no_status

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A browser goes on drawing its own window for a while after it has opened it; whoever follows a link has one.
SETTLE_MS = 1_000
# Since the link was opened: when the screen showed the first result's text, and when it showed its picture.
# The browser says so itself (Element Timing): a page that is looked at in every frame takes longer.
_WATCH = """
window.shown = new Promise((done, fail) => {
    const times = {};
    new MutationObserver(() => {
        const card = document.querySelector(".results .card:not(.skeleton)");
        card?.querySelector(".caption b")?.setAttribute("elementtiming", "result");
        card?.querySelector("img")?.setAttribute("elementtiming", "picture");
    }).observe(document, { childList: true, subtree: true });
    new PerformanceObserver((list) => {
        for (const one of list.getEntries()) times[one.identifier] = one.renderTime;
        if (times.result && times.picture) done(times);
    }).observe({ type: "element" });
    setTimeout(() => fail(new Error("no result was shown within a minute")), 60_000);
});
"""
# What the browser alone takes: a page of one picture and one word. They are marked in the page itself, which
# is drawn before a script could mark them.
_SMALLEST = b"""<!doctype html><title>One picture</title>
<img src="picture" elementtiming="picture"><p elementtiming="result">One</p>"""


@dataclass(frozen=True)
class FirstResult:
    """Milliseconds after a link was opened, the median of several.

    Attributes:
        images: in the index.
        opened: how often the link was opened, each time with another query and an empty cache.
        result: until the screen showed the first result.
        picture: until it showed its picture as well.
        fastest, slowest: until the picture, in the best and in the worst case.
        floor: until the screen showed the picture of a page that is nothing else, opened in turns with them.
    """

    images: int
    opened: int
    result: float
    picture: float
    fastest: float
    slowest: float
    floor: float


def bench_page(index: Path | None = None, *, times: int = 20, status: Status = no_status) -> FirstResult:
    """Open searches in a headless browser, one after the other.

    Args:
        index: what to serve; None for 2,000 drawn images.
        times: how often.
        status: called with what is being done.

    Raises:
        MissingExtraError: playwright is not installed.
        SearchError: there is no browser, or the server did not start.
    """
    with needs_extra("bench"):
        from playwright.sync_api import sync_playwright
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SearchError(f"no browser was found; install one of {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory(prefix="happier-bench-") as folder, ExitStack() as stack:
        if index is None:
            status("making a catalogue")
            index = drawn_index(Path(folder), 2_000)
        status("starting the server")
        server = stack.enter_context(serve(index))
        asyncio.run(server.ready())
        images, ids, picture = asyncio.run(_some_ids(server.port, times + 1))
        floor = stack.enter_context(_one_picture(picture))
        driver = stack.enter_context(sync_playwright())
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=path, args=flags)
        status(f"opening {times} searches")
        links = [f"http://127.0.0.1:{server.port}/?{urlencode({'id': one})}" for one in ids]
        both = [(_open(browser, link), _open(browser, floor)) for link in links]
        browser.close()
    found = both[1:]  # the first one warms up
    pictures = [search["picture"] for search, _ in found]
    return FirstResult(
        images,
        len(found),
        statistics.median(search["result"] for search, _ in found),
        statistics.median(pictures),
        min(pictures),
        max(pictures),
        statistics.median(smallest["picture"] for _, smallest in found),
    )


async def _some_ids(port: int, count: int) -> tuple[int, list[str], bytes]:
    """How many images there are, the ids of some, and a thumbnail."""
    async with Connection(port) as client:
        answer = (await client.get("/api/items", spread="true", limit=min(200, count))).json()
        items = answer["items"]
        picture = (await client.get(items[0]["thumbnail"])).body
        return int(answer["total"]), [item["id"] for item in items], picture


@contextmanager
def _one_picture(picture: bytes) -> Iterator[str]:
    """The address of a page that shows a picture, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = self.path == "/"
            self.send_response(200)
            self.send_header("content-type", "text/html" if is_page else "image/webp")
            self.end_headers()
            self.wfile.write(_SMALLEST if is_page else picture)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def _open(browser: Any, link: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(_WATCH)
    page = context.new_page()
    page.wait_for_timeout(SETTLE_MS)
    page.goto(link, wait_until="commit")
    times: dict[str, float] = page.evaluate("window.shown")
    context.close()
    return times
