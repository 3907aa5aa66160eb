"""The map of the catalogue: its layout, its API, and the page in a real Chromium."""

from __future__ import annotations

import math
import re
import threading

import numpy as np
import pytest
from fastapi.testclient import TestClient

from happier.search import Index
from happier.web import catalogue_map
from happier.web.app import create_app
from happier.web.catalogue_map import GRID, CatalogueMap, beside_landmarks, lay_out
from happier.web.explorer import Explorer
from happier.web.server import ExplorerServer
from happier.web.thumbnails import ThumbnailStore

LOCAL = {"base_url": "http://127.0.0.1"}
QUERY = "images/red-circle-0.png"


def clusters(count, *, seed=0):
    """Unit vectors around eight centres, and the centre of each."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((8, 12))
    item = generator.integers(0, 8, count)
    vectors = centres[item] + 0.25 * generator.standard_normal((count, 12))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), item


def test_others_are_put_beside_their_landmarks():
    """Against a loop over scalars."""
    vectors, _ = clusters(40)
    landmarks, others = vectors[:25], vectors[25:]
    plane = np.random.default_rng(1).standard_normal((25, 2))
    found = beside_landmarks(others, landmarks, plane)
    for vector, place in zip(others, found, strict=True):
        scores = [sum(float(a) * float(b) for a, b in zip(vector, one, strict=True)) for one in landmarks]
        nearest = sorted(range(25), key=lambda at: -scores[at])[: catalogue_map.NEIGHBOURS]
        weights = [math.exp((scores[at] - scores[nearest[0]]) / catalogue_map.TEMPERATURE) for at in nearest]
        for axis in (0, 1):
            mean = sum(w * plane[at][axis] for w, at in zip(weights, nearest, strict=True)) / sum(weights)
            assert place[axis] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("count", [1, 3, 5, 200, 500])
def test_alike_images_are_near_each_other(count, monkeypatch):
    monkeypatch.setattr(catalogue_map, "LANDMARKS", 200)
    vectors, item = clusters(count)
    places = lay_out(vectors)
    assert places.shape == (count, 2)
    assert places.dtype == np.uint16
    assert places.max() <= GRID
    assert np.array_equal(places, lay_out(vectors))  # the same every time
    if count >= 200:
        far = ((places[:, None].astype(float) - places[None]) ** 2).sum(-1) + np.eye(count) * 1e12
        assert (item[far.argmin(axis=1)] == item).mean() > 0.9
        assert places[:, 0].std() > places[:, 1].std()  # wide rather than high


def test_a_map_is_made_once_for_each_state_and_kept(place, tmp_path, monkeypatch):
    index = Index.open(place / "a.index")
    store = ThumbnailStore(tmp_path / "t.sqlite")
    first = CatalogueMap(index, store, threading.Event())
    assert not first.read()
    places = first.positions()
    monkeypatch.setattr(catalogue_map, "lay_out", None)  # another server on the same cache makes none
    again = CatalogueMap(index, ThumbnailStore(tmp_path / "t.sqlite"), threading.Event())
    assert again.read()
    assert np.array_equal(again.positions(), places)
    store.put(again._key, b"cut")
    damaged = CatalogueMap(index, store, threading.Event())
    assert not damaged.read()


def test_a_map_that_is_stopped_is_not_kept(place, tmp_path):
    stop = threading.Event()
    stop.set()
    store = ThumbnailStore(tmp_path / "t.sqlite")
    assert CatalogueMap(Index.open(place / "a.index"), store, stop).positions() is None
    assert not CatalogueMap(Index.open(place / "a.index"), store, threading.Event()).read()


def test_points_and_items_over_http(place):
    explorer = Explorer(Index.open(place / "a.index"))
    index = explorer.model("a").index
    with TestClient(create_app(explorer), **LOCAL) as client:
        first = client.get("/api/map").json()
        assert not first["ready"]
        assert client.get("/api/map/points", params={"version": first["version"]}).status_code in (200, 404)
        while not (answer := client.get("/api/map").json())["ready"]:
            pass
        assert answer["total"] == 61
        data = client.get("/api/map/points", params={"version": answer["version"]}).content
        places = np.frombuffer(data[: 4 * 61], "<u2").reshape(-1, 2)
        assert np.array_equal(places, explorer.model("a").map.positions())
        numbers = np.frombuffer(data[4 * 61 :], "<u4")
        paths = [answer["classes"][one] if one != 0xFFFFFFFF else "" for one in numbers]
        assert paths == index.class_paths
        values = {"version": answer["version"], "row": [5, 2]}
        assert [one["id"] for one in client.get("/api/map/items", params=values).json()["items"]] == [
            index.ids[5],
            index.ids[2],
        ]
        for bad in ({"row": 61}, {"row": -1}, {"version": "old"}):
            assert client.get("/api/map/items", params={**values, **bad}).status_code == 404
        gone = client.get("/api/map/points", params={"version": "old"})
        assert gone.status_code == 404
        assert "has changed since this map was drawn" in gone.json()["detail"]


@pytest.fixture(scope="module")
def address(explorer):
    with ExplorerServer(explorer).running() as server:
        yield server.address


def open_map(page, address, values=""):
    page.goto(f"{address}/?view=map{values}")
    page.wait_for_selector(".map-legend")
    page.wait_for_function("() => document.querySelector('canvas').map?.drawn > 0")
    return page.locator("canvas")


def drawn(page):
    """Pixels of the map that are not empty."""
    return page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const canvas = document.querySelector("canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            let count = 0;
            for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
            done(count);
        })))"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (768, "light"), (1440, "dark")])
def test_zoom_from_a_branch_to_an_image(page, address, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    canvas = open_map(page, address)
    assert drawn(page) > 500
    assert page.get_by_role("list", name="Branches").get_by_role("link").count() == 2
    page.get_by_role("list", name="Branches").get_by_role("link", name="warm").click()
    page.wait_for_url(re.compile("within=warm"))
    page.wait_for_function("() => document.querySelector('.map-legend')?.textContent.includes('yellow')")
    canvas.focus()
    for _ in range(9):
        page.keyboard.press("+")
    page.wait_for_url(re.compile("at="))
    camera = page.evaluate("() => document.querySelector('canvas').map.camera")
    assert camera["zoom"] > 20
    page.reload()
    page.wait_for_function("() => document.querySelector('canvas')?.map?.drawn > 0")
    again = page.evaluate("() => document.querySelector('canvas').map.camera")
    assert again["zoom"] == pytest.approx(camera["zoom"], abs=0.01)
    page.get_by_role("button", name="All of the map").click()
    # A click on a point opens its image.
    at = page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const { map } = document.querySelector("canvas");
            done(map.toScreen(map.points.x(3), map.points.y(3)));
        })))"""
    )
    canvas.click(position={"x": at[0], "y": at[1]})
    page.wait_for_selector("#preview[open] img")


@pytest.mark.slow
def test_a_lasso_makes_a_list_that_the_address_keeps(page, address):
    canvas = open_map(page, address)
    box = canvas.bounding_box()
    page.get_by_role("button", name="Lasso").click()
    page.mouse.move(box["x"] + 15, box["y"] + 15)  # its corners are round
    page.mouse.down()
    for x, y in ((0.55, 0), (0.55, 1), (0, 1)):
        page.mouse.move(box["x"] + x * box["width"] + 2, box["y"] + y * box["height"] - 2, steps=8)
    page.mouse.move(box["x"] + 15, box["y"] + 15, steps=8)  # all around: it ends where it began
    page.mouse.up()
    page.wait_for_selector(".map-list .card")
    title = page.locator(".map-list h2").inner_text()
    count = int(re.match(r"(\d+) images in the area", title)[1])
    left = page.evaluate(
        """() => {
            const { map } = document.querySelector("canvas");
            const edge = map.toMap(0.55 * map.width + 2, 0)[0];
            return [...Array(map.points.count).keys()].filter((row) => map.points.x(row) < edge).length;
        }"""
    )
    assert abs(count - left) <= 1  # the address has whole thousandths
    assert 0 < count < 61
    page.reload()
    page.wait_for_selector(".map-list .card")
    assert page.locator(".map-list h2").inner_text() == title
    page.get_by_role("button", name="List these images").click()
    page.get_by_role("heading", name="61 images in view").wait_for()


@pytest.mark.slow
def test_the_results_of_a_query_from_above(page, address):
    page.goto(f"{address}/?id={QUERY}&k=9")
    page.get_by_role("link", name="on the map").click()
    page.wait_for_selector(".map-list .card")
    marks = page.evaluate("() => document.querySelector('canvas').map.marks.length")
    assert marks == 9
    assert page.evaluate("() => document.querySelector('canvas').map.query.length") == 2
    page.locator(".map-list .card a").nth(4).focus()
    assert page.evaluate("() => document.querySelector('canvas').map.hovered") >= 0
    # What a screen reader hears.
    assert page.get_by_role("application", name=re.compile("Map of 61 images. Arrow keys move")).count() == 1
    assert "9 results on the map" in page.locator("#status").inner_text()
    page.get_by_role("link", name="the results alone").click()
    page.wait_for_selector(".results .card:not(.skeleton)")
    assert "view=map" not in page.url
