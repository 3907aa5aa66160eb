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
from happier.search import Index
from happier.web.server import ExplorerServer, open_explorer

VIEW = {"width": 1180, "height": 820}


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
        taken.append(_shot(page, output / "report.webp"))
        # The end of the section before would look out from under the bar.
        page.evaluate(
            """() => {
              const examples = document.querySelector('#examples');
              examples.previousElementSibling.style.visibility = 'hidden';
              examples.scrollIntoView();
            }"""
        )
        taken.append(_shot(page, output / "report-examples.webp"))
        taken += _explorer(page, *indexes, output, with_map=with_map)
    return taken


def _explorer(page: Any, index: Path, against: Path, output: Path, *, with_map: bool) -> list[Path]:
    opened = Index.open(index)
    query = _telling_query(opened)
    more, less = opened.search_id(query, k=6)[0].id, opened.search_id(query, k=6)[-1].id
    with ExplorerServer(open_explorer(index, against)).running() as server:
        page.goto(f"{server.address}/?id={quote(query)}&id={quote(more)}&less={quote(less)}&k=12")
        page.wait_for_selector(".results .card:not(.skeleton)")
        page.wait_for_load_state("networkidle")
        taken = [_shot(page, output / "explorer.webp")]
        if not with_map:
            return taken
        page.goto(f"{server.address}/?view=map&id={quote(query)}&k=12")
        page.wait_for_selector(".map-list .card")
        page.wait_for_load_state("networkidle")
        page.evaluate("document.querySelector('.map-tools').scrollIntoView()")
        return [*taken, _shot(page, output / "map.webp")]


def _telling_query(index: Index) -> str:
    """The first image whose answers share as many different levels with it as any image's do."""

    def kinds(item: str) -> int:
        own = index.class_paths[index.row(item)].split("/")
        answers = (hit.class_path.split("/") for hit in index.search_id(item, k=6))
        return len({sum(a == b for a, b in zip(own, answer, strict=True)) for answer in answers})

    return max(index.ids, key=kinds)


def _shot(page: Any, path: Path) -> Path:
    page.wait_for_timeout(300)
    with Image.open(io.BytesIO(page.screenshot())) as image:
        image.convert("RGB").save(path, lossless=True, method=6)
    return path


def crop_for_first_page(folder: Path) -> None:
    """Leave out menus and margins, and compress: photographs and drawings need no lossless pixels."""
    boxes = {
        "report-examples": (40, 175, 1140, 815),
        "report": (40, 150, 1140, 800),
        "explorer": None,
        "map": (0, 0, 1180, 730),
    }
    for name, box in boxes.items():
        with Image.open(folder / f"{name}.webp") as image:
            part = image.convert("RGB").crop(box)
        part.save(folder / f"{name}.webp", quality=88, method=6)


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
