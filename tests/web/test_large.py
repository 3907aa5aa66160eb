"""The page over 100,000 images in a real Chromium: random vectors, few small pictures, real thumbnails."""

from __future__ import annotations

import functools
import re

import numpy as np
import pandas as pd
import pytest
from catalogue import COLOURS, draw

from happier.data import Manifest
from happier.search import Index
from happier.web import analysis, catalogue_map, indexed_model
from happier.web.explorer import Explorer
from happier.web.server import ExplorerServer

pytestmark = pytest.mark.slow

COUNT, PICTURES, CLASSES = 100_000, 1_000, 400
RESULT = ".results .card:not(.skeleton)"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An index of vectors in clusters; a hundred folders are links to one of a thousand pictures."""
    folder = tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(0)
    (folder / "0").mkdir()
    colours = [value for group in COLOURS.values() for value in group.values()]
    for number in range(PICTURES):
        target = folder / "0" / f"{number}.png"
        if number < 24:
            draw(colours[number % 4], ("circle", "square", "cross")[number % 3], generator).save(target)
        else:
            target.hardlink_to(folder / "0" / f"{number % 24}.png")
    for link in range(1, COUNT // PICTURES):
        (folder / str(link)).symlink_to("0")
    item = generator.integers(0, CLASSES, COUNT)
    vectors = generator.standard_normal((CLASSES, 24))[item] + 0.6 * generator.standard_normal((COUNT, 24))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = pd.DataFrame(
        {
            "path": [f"{number // PICTURES}/{number % PICTURES}.png" for number in range(COUNT)],
            "split": "test",
            "kind": [f"kind {one // 80}" for one in item],
            "group": [f"group {one // 8}" for one in item],
            "item": [f"item {one}" for one in item],
        }
    )
    manifest = Manifest(table, levels=("kind", "group", "item"), root=folder, name="many")
    return Index.build(folder / "many.index", manifest, vectors.astype(np.float32), fingerprint="f" * 64)


@pytest.fixture(scope="module")
def address(large):
    with pytest.MonkeyPatch.context() as patch:
        # A smaller sample: this module is about the page, and the machine is shared.
        patch.setattr(catalogue_map, "LANDMARKS", 300)
        patch.setattr(indexed_model, "analyse", functools.partial(analysis.analyse, max_pairs=10_000_000))
        with ExplorerServer(Explorer(large)).running() as server:
            yield server.address


def test_search_and_scroll_to_the_end_of_the_ranking(page, address, large):
    page.goto(f"{address}/?id=0/7.png&k=100")
    page.wait_for_selector(RESULT)
    expected = [hit.id for hit in large.search_id("0/7.png", k=300)]
    assert "H-AP" in page.locator(".metrics").inner_text()
    page.mouse.move(600, 500)
    for shown in (200, 300):
        page.mouse.wheel(0, 20_000)
        page.wait_for_function(
            "([what, n]) => document.querySelectorAll(what).length >= n", arg=[RESULT, shown]
        )
    ids = page.eval_on_selector_all(RESULT, "cards => cards.map((one) => one.dataset.id)")
    assert ids[:300] == expected
    page.wait_for_function(
        "() => [...document.querySelectorAll('main img')].filter((one) => one.naturalWidth).length > 20"
    )


def test_a_long_branch_keeps_its_place(page, address):
    page.goto(f"{address}/?within=kind 0&shown=600")
    page.wait_for_function("() => document.querySelectorAll('main .card').length === 600")
    where = page.evaluate("() => { scrollTo(0, document.body.scrollHeight / 2); return scrollY; }")
    page.wait_for_function("(y) => Math.abs((history.state?.scroll ?? -1) - y) < 2", arg=where)
    page.reload()
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 2", arg=where)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1440, "dark")])
def test_the_map_of_100_000_images(page, address, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/?view=map")
    page.wait_for_selector(".map-legend")
    page.wait_for_function("() => document.querySelector('canvas').map?.visible?.length === 100000")
    assert page.get_by_role("list", name="Branches").get_by_role("link").count() == 5
    canvas = page.locator("canvas")
    canvas.focus()
    # Zoom on one image until its picture and those around it are shown.
    page.evaluate(
        """() => {
            const { map } = document.querySelector("canvas");
            map.look({ x: map.points.x(7), y: map.points.y(7), zoom: 400 });
        }"""
    )
    page.wait_for_function("() => document.querySelector('canvas').map.pictureOf(7)")
    page.get_by_role("button", name="List these images").click()
    page.wait_for_selector(".map-list .card")
    seen = page.evaluate("() => document.querySelector('canvas').map.visible.length")
    title = page.locator(".map-list h2").inner_text()
    assert re.sub(r"\D", "", title) == str(seen)
    assert 0 < seen < 5_000
