"""Two small models of the drawn shapes, their report and their explorer, as a headless browser sees them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from shapes import LEVELS, write_folder

from happier.cli import app
from happier.data import Manifest, import_manifest, split_by_class
from happier.search import Hit, Index
from happier.web.server import ExplorerServer, open_explorer

VIEW = {"width": 1180, "height": 940}
MARGIN = 16
SHOWN = 12


def happier(*words: str | Path) -> None:
    """Call the command line in this process: starting another would take longer than most of the work."""
    app([str(word) for word in words], standalone_mode=False)


def train_models(work: Path, *, epochs: int) -> tuple[Path, Path]:
    """Draw the shapes and train HAPPIER and NSM on half of the classes."""
    images = work / "shapes"
    write_folder(images)
    rows = import_manifest("folder", images, levels=LEVELS)
    named = Manifest(rows.table, levels=LEVELS, root=images, name="shapes")
    split_by_class(named, test=0.5, seed=0).write(work / "split.parquet")
    for loss in ("happier", "nsm"):
        happier(
            "train", "recipe=small", f"loss={loss}", f"data.manifest={work / 'split.parquet'}",
            f"training.epochs={epochs}", "evaluation.every=0", f"run={work / 'runs' / loss}",
        )  # fmt: skip
    return work / "runs" / "happier", work / "runs" / "nsm"


def take_screenshots(
    run: Path, against: Path, manifest: Path, work: Path, output: Path, *, with_map: bool = False
) -> list[Path]:
    """Pictures of the report and of the explorer, for two runs on the test rows of a manifest.

    A map of a few drawn shapes would say nothing, so that it is taken of larger catalogues only.
    """
    report = work / "report"
    happier("report", run, "--against", against, "--manifest", manifest, "-o", report, "--no-figures")
    indexes = [work / f"{model.name}.index" for model in (run, against)]
    for model, index in zip((run, against), indexes, strict=True):
        happier("index", model, manifest, "--split", "test", "-o", index)
    taken = []
    with _browser() as browser:
        page = browser.new_page(viewport=VIEW, device_scale_factor=1, reduced_motion="reduce")
        page.goto((report / "index.html").as_uri())
        taken.append(_shot(page, output / "report.webp", start=".hero .kicker", end=".hero .legend"))
        page.evaluate("document.querySelector('#examples').scrollIntoView()")
        page.wait_for_load_state("networkidle")
        example = "#examples .reason:first-of-type .example:first-of-type"
        taken.append(_shot(page, output / "report-examples.webp", start="#examples > h2", end=example))
        taken += _explorer(page, *indexes, output, with_map=with_map)
    return taken


def _explorer(page: Any, index: Path, against: Path, output: Path, *, with_map: bool) -> list[Path]:
    opened = Index.open(index)
    query = _telling_query(opened)
    more, *_, less = sorted(opened.search_id(query, k=SHOWN), key=lambda hit: -_shared(opened, query, hit))
    with ExplorerServer(open_explorer(index, against)).running() as server:
        page.goto(f"{server.address}/?id={quote(query)}&id={quote(more.id)}&less={quote(less.id)}&k={SHOWN}")
        page.wait_for_selector(".results .card:not(.skeleton)")
        page.wait_for_load_state("networkidle")
        taken = [_shot(page, output / "explorer.webp", end=".results .card:nth-child(6)")]
        if not with_map:
            return taken
        page.goto(f"{server.address}/?view=map&id={quote(query)}&k={SHOWN}")
        page.wait_for_selector(".map-list .card")
        page.wait_for_load_state("networkidle")
        return [*taken, _shot(page, output / "map.webp", start=".map-tools", end=".map-legend")]


def _telling_query(index: Index) -> str:
    """The image whose answers share the most different levels with it, and then the most levels in all."""

    def kinds(item: str) -> tuple[int, int]:
        shared = [_shared(index, item, hit) for hit in index.search_id(item, k=SHOWN)]
        return len(set(shared)), sum(shared)

    return max(index.ids, key=kinds)


def _shared(index: Index, item: str, hit: Hit) -> int:
    own, other = index.class_paths[index.row(item)].split("/"), hit.class_path.split("/")
    return sum(a == b for a, b in zip(own, other, strict=True))


def _shot(page: Any, path: Path, *, start: str = "body", end: str) -> Path:
    """The page from the top of ``start`` to the bottom of the last ``end``: nothing is cut in half."""
    page.wait_for_timeout(300)
    clip = page.evaluate(
        """([start, end, margin]) => {
          const ends = [...document.querySelectorAll(end)];
          const boxes = [document.querySelector(start), ...ends].map((one) => one.getBoundingClientRect());
          const x = Math.max(0, Math.min(...boxes.map((box) => box.left)) - margin);
          const y = Math.max(0, boxes[0].top + scrollY - margin);
          const right = Math.min(innerWidth, Math.max(...boxes.map((box) => box.right)) + margin);
          const bottom = Math.max(...boxes.slice(1).map((box) => box.bottom)) + scrollY + margin;
          return { x, y, width: right - x, height: bottom - y };
        }""",
        [start, end, MARGIN],
    )
    with Image.open(io.BytesIO(page.screenshot(clip=clip, full_page=True))) as image:
        image.convert("RGB").save(path, lossless=True, method=6)
    return path


def compress(folder: Path) -> None:
    """Drawings and photographs need no lossless pixels."""
    for path in folder.glob("*.webp"):
        with Image.open(path) as image:
            whole = image.convert("RGB")
        whole.save(path, quality=88, method=6)


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise SystemExit("no Chromium was found; `make browser` installs it")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=flags)
        yield opened
        opened.close()
