"""How long a reader waits for the page: from opening a link to the first result, in a real browser."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from happier.bench.http_load import Connection, serve
from happier.bench.serve import drawn_index
from happier.errors import SearchError
from happier.extras import needs_extra

Report = Callable[[str], None]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Since the page was asked for: when the first result was in it, and when its picture had arrived.
_WATCH = """() => new Promise((done) => {
    const times = {};
    const look = () => {
        const card = document.querySelector(".results .card:not(.skeleton)");
        if (card && times.result === undefined) times.result = performance.now();
        if (card?.querySelector("img")?.naturalWidth) done({ ...times, picture: performance.now() });
        else requestAnimationFrame(look);
    };
    look();
})"""


@dataclass(frozen=True)
class FirstResult:
    """Milliseconds after a link was opened, the median of several.

    Attributes:
        images: in the index.
        opened: how often the link was opened, each time with another query and an empty cache.
        result: until the first result was in the page.
        picture: until its picture was there as well.
        slowest: until the first result, in the slowest case.
    """

    images: int
    opened: int
    result: float
    picture: float
    slowest: float


def bench_page(index: Path | None = None, *, times: int = 20, report: Report = lambda _: None) -> FirstResult:
    """Open searches in a headless browser, one after the other.

    Args:
        index: what to serve; None for 2,000 drawn images.
        times: how often.
        report: called with what is being done.

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
            report("making a catalogue")
            index = drawn_index(Path(folder), 2_000)
        report("starting the server")
        server = stack.enter_context(serve(index))
        asyncio.run(server.ready())
        images, ids = asyncio.run(_some_ids(server.port, times + 1))
        driver = stack.enter_context(sync_playwright())
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=path, args=flags)
        report(f"opening {times} searches")
        found = [_open(browser, server.port, one) for one in ids][1:]  # the first one warms up
        browser.close()
    results = [one["result"] for one in found]
    pictures = [one["picture"] for one in found]
    return FirstResult(
        images, len(found), statistics.median(results), statistics.median(pictures), max(results)
    )


async def _some_ids(port: int, count: int) -> tuple[int, list[str]]:
    async with Connection(port) as client:
        answer = (await client.get("/api/items", spread="true", limit=min(200, count))).json()
        return int(answer["total"]), [item["id"] for item in answer["items"]]


def _open(browser: Any, port: int, item: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/?{urlencode({'id': item})}", wait_until="commit")
    times: dict[str, float] = page.evaluate(_WATCH)
    context.close()
    return times
